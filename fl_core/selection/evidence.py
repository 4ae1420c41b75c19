"""Selection evidence: why these tips, as canonical JSON bytes that a transaction's header names.

BEAST repeats itself to the bit only on one build with one CPU path, so nobody recomputes a choice: the
evidence records what was compared and what was decided, and what can be recomputed (the aggregate, from
the parents) is named by its digest. The SHA-256 of these bytes is the selection's id.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fl_core.dag.genesis import canonical_json
from fl_core.errors import TransactionInvalidError
from fl_core.selection.protocol import RankedCandidate, Selection
from fl_core.types import AuthorId, Digest, JsonScalar, TxId, digest_of, is_hex_id

FORMAT: Final = "dag-acfl/selection/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One run of the tip selector.

    Args:
        ledger: Whose tips.
        reference: The asking transaction; None where the client sent its model.
        reference_model: Digest of the client's model.
        selector: Name in the registry.
        params: All parameters of the selector, defaults included.
        selection: The outcome.
        aggregate: Digest of the resulting model.
        aggregate_size: Its size in bytes.
    """

    ledger: TxId
    reference: TxId | None
    reference_model: Digest
    selector: str
    params: Mapping[str, JsonScalar]
    selection: Selection
    aggregate: Digest
    aggregate_size: int

    def encode(self) -> bytes:
        """The canonical bytes."""
        return canonical_json(
            {
                "format": FORMAT,
                "ledger": self.ledger,
                "reference": self.reference,
                "reference_model": self.reference_model,
                "selector": {"name": self.selector, "params": dict(self.params)},
                "rule": self.selection.rule,
                "source": self.selection.source,
                "cut": self.selection.cut,
                "parents": list(self.selection.parents),
                "candidates": [
                    {
                        "transaction": c.transaction,
                        "author": c.author,
                        "similarity": c.similarity,
                        "update_similarity": c.update_similarity,
                        "probability": c.probability,
                        "selected": c.selected,
                    }
                    for c in self.selection.candidates
                ],
                "aggregate": {"digest": self.aggregate, "size": self.aggregate_size},
            }
        )


def evidence_id(encoded: bytes) -> Digest:
    """The selection's id."""
    return digest_of(encoded)


def parse_evidence(encoded: bytes) -> Evidence:
    """Read evidence back.

    Raises:
        TransactionInvalidError: Not selection evidence of this version, or not canonical.
    """
    try:
        content: dict[str, Any] = json.loads(encoded)
        if content["format"] != FORMAT:
            raise TransactionInvalidError(f"evidence format {content['format']!r}; this version reads {FORMAT!r}")
        evidence = Evidence(
            ledger=TxId(_hex_id(content["ledger"])),
            reference=None if content["reference"] is None else TxId(_hex_id(content["reference"])),
            reference_model=Digest(_hex_id(content["reference_model"])),
            selector=content["selector"]["name"],
            params=content["selector"]["params"],
            selection=_selection(content),
            aggregate=Digest(_hex_id(content["aggregate"]["digest"])),
            aggregate_size=content["aggregate"]["size"],
        )
        canonical = evidence.encode() == encoded
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TransactionInvalidError(f"not selection evidence: {error}"[:300]) from error
    if not canonical:
        raise TransactionInvalidError("the selection evidence is not in canonical form")
    return evidence


def _selection(content: Mapping[str, Any]) -> Selection:
    source: Literal["parents", "own"] = content["source"]
    parents = tuple(TxId(_hex_id(parent)) for parent in content["parents"])
    if source not in ("parents", "own") or not parents:
        raise TransactionInvalidError("selection evidence names no parents, or an unknown source")
    ranked = tuple(
        RankedCandidate(
            transaction=TxId(_hex_id(c["transaction"])),
            author=AuthorId(c["author"]),
            similarity=c["similarity"],
            update_similarity=c["update_similarity"],
            probability=c["probability"],
            selected=c["selected"],
        )
        for c in content["candidates"]
    )
    return Selection(parents=parents, source=source, rule=content["rule"], cut=content["cut"], candidates=ranked)


def _hex_id(value: str) -> str:
    if not is_hex_id(value):  # TypeError for what is no text: refused like any other malformed evidence
        raise TransactionInvalidError("an id in the evidence is not 64 lowercase hexadecimal digits")
    return value
