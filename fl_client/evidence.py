"""A selection's evidence as it travels with a publication to a server that did not make the selection."""

from fl_client.errors import AnswerInvalidError
from fl_core.selection.evidence import Evidence, TooFew, evidence_id
from fl_core.selection.protocol import RankedCandidate, Selection
from fl_core.types import AuthorId, Digest, TxId
from fl_core.wire import v1


def evidence_of(selection: v1.SelectionOut) -> v1.CarriedEvidence | None:
    """A selection's evidence as its server signed it; None from a server that does not sign, or if it is too long.

    Raises:
        AnswerInvalidError: The answer is not what its id says.
    """
    if selection.issuer is None or selection.issuer_signature is None:
        return None
    evidence = Evidence(
        ledger=TxId(selection.ledger),
        author=None if selection.author is None else AuthorId(selection.author),
        reference=None if selection.reference is None else TxId(selection.reference),
        reference_model=Digest(selection.reference_model),
        selector=selection.selector,
        params=selection.params,
        selection=Selection(
            parents=tuple(map(TxId, selection.parents)),
            source=selection.source,
            rule=selection.rule,
            cut=selection.cut,
            candidates=tuple(
                RankedCandidate(
                    transaction=TxId(candidate.transaction),
                    author=AuthorId(candidate.author),
                    similarity=candidate.similarity,
                    update_similarity=candidate.update_similarity,
                    probability=candidate.score,
                    selected=candidate.selected,
                )
                for candidate in selection.candidates
            ),
        ),
        weights=tuple(selection.weights),
        too_few=None if selection.too_few is None else TooFew(selection.too_few.models, selection.too_few.needed),
        extensions=selection.extensions,
        aggregate=Digest(selection.aggregate.digest),
        aggregate_size=selection.aggregate.size,
    ).encode()
    if evidence_id(evidence) != selection.id:
        raise AnswerInvalidError("the selection's fields do not hash to its id")
    if len(evidence) > v1.MAX_CARRIED_EVIDENCE:
        return None
    return v1.CarriedEvidence(
        document=evidence.decode("ascii"), issuer=selection.issuer, signature=selection.issuer_signature
    )
