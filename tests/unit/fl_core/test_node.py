"""One replica: what it makes of a publication, what it admits, and what it asks a selector."""

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.candidates import CANDIDATE_RULES
from fl_core.dag.author import author_of_secret
from fl_core.dag.figures import Figures
from fl_core.dag.signature import Role, sign
from fl_core.errors import (
    DigestMismatchError,
    ModelNormError,
    ParentsError,
    ParentsUnknownError,
    SelectionUnknownError,
    SequenceConflictError,
    SignatureError,
    SignatureRequiredError,
    TransactionInvalidError,
)
from fl_core.ledger import Admitted, AlreadyKnown, WaitingForParents
from fl_core.models import flat, model_norm
from fl_core.node import Draft, LedgerNode, ModelFacts, Publication, VectorsMissing
from fl_core.selection import SELECTORS, Selection, SelectionRequest
from fl_core.selection.evidence import Evidence
from fl_core.trust.refusal import refused_extension, refused_in
from fl_core.types import AuthorId, Digest, TxId, Vector32, digest_of
from tests.builders import CREATED_AT_MS, START, FewNodes, TinyLedger, author_of, key_from_seed, make_genesis, model
from tests.reference.node import NaiveNode, Update

SECRET = "5e" * 32
SELECTION = Digest("e4" * 32)


def node_of(tiny: TinyLedger) -> LedgerNode:
    """A replica of a ledger that holds nothing but genesis."""
    start = flat(tiny.genesis.layout, tiny.genesis_model)
    return LedgerNode(tiny.genesis, tiny.genesis_transaction, start, nodes=FewNodes())


def vector(*values: float) -> Vector32:
    filled = np.zeros(4, np.float32)
    filled[: len(values)] = values
    return filled


def asked(answer: SelectionRequest | VectorsMissing) -> list[TxId]:
    assert isinstance(answer, SelectionRequest)
    return [each.transaction for each in answer.candidates]


class Replica:
    """A node that is given a tiny ledger's transactions by name."""

    def __init__(self, **policy: Any) -> None:
        self.tiny = TinyLedger(make_genesis(**policy))
        self.node = node_of(self.tiny)
        self.genesis = self.tiny.genesis_id

    def publish(self, name: str, parents: list[TxId], *values: float, bring: bool = True) -> TxId:
        """Another server's transaction, admitted here."""
        made = self.tiny.publish(name, parents, model(*values))
        answer = self.admit(made, vector(*values) if bring else None)
        assert isinstance(answer, Admitted)
        return made

    def admit(self, transaction: TxId, values: Vector32 | None) -> Admitted | AlreadyKnown | WaitingForParents:
        return self.node.admit(self.tiny.transactions[transaction], values, figures=Figures(1.0))

    def prepare(self, *, evidence: Evidence | None = None, norm: float = 1.0, **fields: Any) -> Draft:
        """What a publication becomes here; on genesis unless told."""
        given = {"num_examples": 1, "start": START, **fields}
        if evidence is None:
            given.setdefault("parents", (self.genesis,))
        if "author" not in fields:
            given.setdefault("secret", SECRET)
        facts = ModelFacts(digest_of(model(1)), self.tiny.genesis.layout.nbytes, Figures(norm))
        return self.node.prepare(Publication(**given), facts, evidence=evidence, now_ms=CREATED_AT_MS)

    def evidence(self, reference: TxId | None, *parents: TxId) -> Evidence:
        selection = Selection(tuple(sorted(parents)), "parents", "by hand", len(parents), ())
        return self.node.evidence(
            selection,
            selector=SELECTORS.build("top-k", {}),
            author=None if reference is None else self.node.nodes_of([reference])[0].author,
            reference=reference,
            reference_model=digest_of(model(1)),
            aggregate=digest_of(model(2)),
        )


# -- preparing ----------------------------------------------------------------------------------------


def test_a_node_fills_in_what_a_client_leaves_out() -> None:
    draft = Replica().prepare()
    header = draft.unsigned.header
    assert (header.author, header.sequence, header.created_at_ms) == (author_of_secret(SECRET), 0, CREATED_AT_MS)
    assert not draft.is_known


def test_the_next_sequence_follows_the_author() -> None:
    replica = Replica()
    replica.publish("ann", [replica.genesis], 1)
    key = replica.tiny.key("ann")
    unsigned = replica.tiny.draft("ann", [replica.genesis], model(1), sequence=1)
    draft = replica.prepare(author=author_of(key), created_at_ms=CREATED_AT_MS, signature=unsigned.author_signature)
    assert (draft.unsigned.header.sequence, draft.unsigned.id) == (1, unsigned.id)


def test_a_known_transaction_is_said_to_be_known() -> None:
    replica = Replica()
    draft = replica.prepare()
    issued = draft.unsigned.issue(key_from_seed(1), author_signature=None, received_at_ms=CREATED_AT_MS)
    replica.node.admit(issued, vector(1), figures=Figures(1.0))
    assert replica.prepare(secret=SECRET, sequence=0).is_known


def test_device_with_a_secret_goes_on() -> None:
    replica = Replica()
    first = replica.prepare().unsigned.issue(key_from_seed(1), author_signature=None, received_at_ms=CREATED_AT_MS)
    replica.node.admit(first, vector(1), figures=Figures(1.0))
    evidence = replica.evidence(first.id, first.id)
    draft = replica.prepare(evidence=evidence, selection=SELECTION)
    assert draft.node.author == author_of_secret(SECRET)
    assert (draft.node.sequence, draft.node.parents) == (1, (first.id,))
    assert draft.unsigned.header.attachment_digest == SELECTION


def test_a_signature_of_another_transaction_is_refused() -> None:
    replica = Replica()
    author = author_of(key_from_seed(7))
    with pytest.raises(SignatureError):
        replica.prepare(author=author)
    draft_id = replica.tiny.draft("ann", [replica.genesis], model(1)).id
    with pytest.raises(SignatureError):
        replica.prepare(author=author, signature=sign(key_from_seed(7), draft_id, role=Role.AUTHOR))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"parents": None}, TransactionInvalidError),
        ({"parents": (TxId("1" * 64),)}, ParentsUnknownError),
        ({"claimed_id": TxId("2" * 64)}, DigestMismatchError),
        ({"norm": 1e10}, ModelNormError),
        ({"noise_std": 2.0}, TransactionInvalidError),
    ],
)
def test_a_broken_rule_is_named(fields: dict[str, Any], error: type[Exception]) -> None:
    replica = Replica()
    with pytest.raises(error):
        replica.prepare(**fields)
    assert len(replica.node.ledger) == 1


def test_a_used_sequence_is_a_conflict() -> None:
    replica = Replica()
    draft = replica.prepare()
    replica.node.admit(
        draft.unsigned.issue(key_from_seed(1), author_signature=None, received_at_ms=CREATED_AT_MS),
        vector(1),
        figures=Figures(1.0),
    )
    with pytest.raises(SequenceConflictError) as conflict:
        replica.prepare(sequence=0, num_examples=2)
    assert conflict.value.next_sequence == 1


def test_a_selections_parents_are_named_unless_its_average_was_refused() -> None:
    replica = Replica()
    ann, bob = (replica.publish(name, [replica.genesis], 1) for name in ("ann", "bob"))
    refusal = {"selection": SELECTION, "evidence": replica.evidence(None, ann, bob), "parents": (replica.genesis,)}
    with pytest.raises(ParentsError, match="other parents"):
        replica.prepare(**refusal)
    header = replica.prepare(**refusal, extensions=refused_extension([bob])).unsigned.header
    assert (refused_in(header), header.parents) == ((bob,), (replica.genesis,))
    with pytest.raises(ParentsError, match="updates that were in it"):
        replica.prepare(**refusal, extensions=refused_extension([TxId("ab" * 32)]))
    with pytest.raises(ParentsError, match="the author's own update"):
        replica.prepare(**{**refusal, "parents": (ann,)}, extensions=refused_extension([bob]))


def test_a_selection_serves_only_its_asker() -> None:
    replica = Replica()
    ann = replica.publish("ann", [replica.genesis], 1)
    evidence = replica.evidence(ann, ann)
    with pytest.raises(TransactionInvalidError, match="another author"):
        replica.prepare(evidence=evidence)
    with pytest.raises(SignatureRequiredError):
        replica.prepare(evidence=evidence, author=author_of_secret(SECRET), secret=None)


def test_a_selection_of_another_ledger_is_unknown() -> None:
    replica, other = Replica(), Replica(max_parents=3)
    with pytest.raises(SelectionUnknownError):
        replica.prepare(evidence=other.evidence(None, other.genesis))


# -- admitting and asking ----------------------------------------------------------------------------


def test_a_late_parent_is_a_wait() -> None:
    replica, other = Replica(), Replica()
    parent = other.publish("ann", [other.genesis], 1)
    child = other.publish("bob", [parent], 2)
    replica.tiny.transactions |= other.tiny.transactions
    assert replica.admit(child, vector(2)) == WaitingForParents((parent,))
    assert isinstance(replica.admit(parent, vector(1)), Admitted)
    assert isinstance(replica.admit(child, vector(2)), Admitted)
    assert isinstance(replica.admit(child, vector(2)), AlreadyKnown)


def test_a_missing_vector_is_named_and_brought() -> None:
    replica = Replica()
    ann = replica.publish("ann", [replica.genesis], 1, bring=False)
    bob = replica.publish("bob", [replica.genesis], 2)
    assert replica.node.question(None, vector(1)) == VectorsMissing((ann,))
    replica.node.bring(ann, vector(1))
    assert asked(replica.node.question(None, vector(1))) == sorted([ann, bob])


def test_noise_that_headers_declare_is_allowed_for() -> None:
    """Updates (2, 2, 2, 2) and (2, 2, 0, 0) after genesis, all ones, is subtracted; noise of 1 in the first."""
    replica = Replica(max_noise_std=1.0)
    unsigned = replica.prepare(noise_std=1.0).unsigned
    noisy = unsigned.issue(key_from_seed(1), author_signature=None, received_at_ms=CREATED_AT_MS)
    replica.node.admit(noisy, vector(3, 3, 3, 3), figures=Figures(1.0))
    for mine, expected in ((0.0, 8 / math.sqrt(12 * 8)), (0.5, 8 / math.sqrt(12 * 7))):
        request = replica.node.question(None, vector(3, 3, 1, 1), noise_std=mine)
        assert isinstance(request, SelectionRequest)
        assert request.update_similarities.tolist() == pytest.approx([expected])


def test_a_damaged_model_is_offered_to_nobody() -> None:
    replica = Replica()
    ann = replica.publish("ann", [replica.genesis], 1, bring=False)
    bob = replica.publish("bob", [replica.genesis], 2)
    replica.node.mark_damaged(ann)
    assert asked(replica.node.question(None, vector(1))) == [bob]
    replica.node.bring(ann, vector(1))  # repaired
    assert asked(replica.node.question(None, vector(1))) == sorted([ann, bob])


def test_one_approved_needs_no_vector() -> None:
    replica = Replica()
    ann = replica.publish("ann", [replica.genesis], 1, bring=False)
    bob = replica.publish("bob", [ann], 2)
    assert asked(replica.node.question(None, vector(1))) == [bob]
    replica.node.bring(ann, vector(1))
    assert replica.node.eligible == {bob}


def test_vectors_are_bounded_and_asked_for_again() -> None:
    replica = Replica(max_candidates=2, max_parents=128)
    tips = sorted(replica.publish(f"author {number}", [replica.genesis], 1) for number in range(100))
    assert len(replica.node._vectors) <= 3 + 64
    top = replica.publish("eve", tips[:90], 1)
    missing = replica.node.missing_vectors()
    for each in missing:
        replica.node.bring(each, vector(1))
    longest = sorted((replica.node.graph.get(each) for each in (*tips[90:], top)), key=lambda node: node.author)[:2]  # type: ignore[union-attr]
    assert asked(replica.node.question(None, vector(1))) == sorted(each.id for each in longest)  # type: ignore[union-attr]


def test_one_parent_is_that_model_and_a_joiner_keeps_its_own() -> None:
    replica = Replica()
    ann = replica.publish("ann", [replica.genesis], 1)
    assert replica.node.parents_to_average(Selection((replica.genesis,), "own", "", 0, ())) == ()
    assert replica.node.parents_to_average(Selection((ann,), "own", "", 0, ())) == (ann,)
    assert [node.num_examples for node in replica.node.nodes_of([ann])] == [1]
    with pytest.raises(KeyError):
        replica.node.nodes_of([TxId("1" * 64)])


@settings(max_examples=60, deadline=None)
@given(
    *(st.integers(0, 2**32 - 1), st.sampled_from([*CANDIDATE_RULES]), st.integers(1, 4), st.integers(1, 5)),
    st.integers(1, 5),
)
def test_questions_are_those_of_the_naive_twin(seed: int, rule: str, window_s: int, most: int, compared: int) -> None:
    rng = random.Random(seed)
    source = TinyLedger(make_genesis(candidates=rule, freshness_s=window_s, max_candidates=most, max_compared=compared))
    node, start = node_of(source), flat(source.genesis.layout, source.genesis_model)
    naive = NaiveNode(source.genesis_id, start.tolist(), rule, 1000 * window_s, most, compared)
    names = "abcdef"
    ids, models = [source.genesis_id], dict[TxId, Vector32]()
    for _ in range(15):
        values = [rng.uniform(-1, 1) for _ in range(4)]
        parents = rng.sample(ids[-6:], k=min(len(ids), rng.randint(1, 3)))
        source.now_s += rng.choice([0, 0.5, 1])
        made = source.publish(rng.choice(names), parents, model(*values))
        ids.append(made)
        models[made] = vector(*values)
    arriving, late = rng.sample(ids[1:], k=len(ids) - 1), set[TxId]()
    for each in arriving:
        header, receipt = source.transactions[each].header, source.transactions[each].receipt
        when = receipt.received_at_ms, receipt.issuer
        naive.receive(each, Update(header.parents, header.author, header.sequence, models[each].tolist(), *when))
        late.add(each)
        while came := [
            other
            for other in sorted(late)
            if isinstance(
                node.admit(
                    source.transactions[other],
                    models[other] if rng.random() < 0.8 else None,
                    figures=Figures(model_norm(models[other])),
                ),
                Admitted,
            )
        ]:
            late.difference_update(came)
        assert {found.id for found in node.ledger} == {source.genesis_id, *naive.updates}
        askers: list[AuthorId | None] = [None, *(source.author(name) for name in rng.sample(names, k=2))]
        asking = [vector(*(rng.uniform(-1, 1) for _ in range(4))) for _ in askers]
        requests = node.questions(askers, asking)
        if isinstance(requests, VectorsMissing):
            for missing in requests.transactions:
                node.bring(missing, models[missing])
            requests = node.questions(askers, asking)
        assert not isinstance(requests, VectorsMissing)
        for asker, values_asked, request in zip(askers, asking, requests, strict=True):
            candidates, similar, updates, genesis, own_averaged, own_newest = naive.question(
                asker, values_asked.tolist()
            )
            assert [each.transaction for each in request.candidates] == candidates
            assert request.similarities == pytest.approx(similar, abs=1e-5)
            assert request.update_similarities == pytest.approx(updates, abs=1e-5)
            assert request.genesis_similarity == pytest.approx(genesis, abs=1e-5)
            assert (request.own_averaged, request.own_newest) == (own_averaged, own_newest)
