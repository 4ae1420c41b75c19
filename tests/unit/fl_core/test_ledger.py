"""The ledger's rules: who may enter, what is a tip, who is compared; the same in any order of arrival."""

import contextlib
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.dag.admission import MAX_AHEAD, check_payload, check_publication
from fl_core.dag.author import AuthorKind
from fl_core.dag.figures import Figures
from fl_core.dag.transaction import Header, verify_author
from fl_core.errors import (
    DigestMismatchError,
    GenesisError,
    ModelNormError,
    ModelNotFiniteError,
    ParentsError,
    ParentsStaleError,
    SequenceConflictError,
    SignatureError,
    SignatureRequiredError,
    TransactionInvalidError,
    WrongLedgerError,
)
from fl_core.ledger import Admitted, AlreadyKnown, Ledger, WaitingForParents
from fl_core.selection.parents import check_parents
from fl_core.types import TxId, digest_of
from tests.builders import CREATED_AT_MS, TinyLedger, make_genesis, model, seal
from tests.reference import graph as reference


def candidates_of(tiny: TinyLedger, asker: str | None = None) -> set[TxId]:
    return {c.transaction for c in tiny.node.candidate_rule.candidates(None if asker is None else tiny.author(asker))}


def test_a_new_ledger_has_genesis_as_its_tip_and_nobody_to_compare_with() -> None:
    tiny = TinyLedger()
    assert tiny.ledger.graph.tips() == (tiny.genesis_id,)
    assert candidates_of(tiny) == set()


def test_tips_are_the_transactions_nobody_approves() -> None:
    tiny = TinyLedger()
    a = tiny.publish("ann", [tiny.genesis_id], model(1))
    b = tiny.publish("bob", [tiny.genesis_id], model(2))
    c = tiny.publish("cid", [a, b], model(3))
    d = tiny.publish("dan", [b], model(4))
    assert {*tiny.ledger.graph.tips()} == {c, d}
    assert [node.depth for node in tiny.ledger] == [0, 1, 1, 2, 2]


def test_reviewing_changes_nothing() -> None:
    tiny = TinyLedger()
    draft = tiny.draft("ann", [tiny.genesis_id], model(1))
    assert isinstance(tiny.ledger.review(draft.id, draft.header, figures=Figures(1.0)), Admitted)
    assert draft.id not in tiny.ledger


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_same_transactions_in_any_order_give_the_same_ledger(seed: int) -> None:
    rng = random.Random(seed)
    source = TinyLedger()
    ids = [source.genesis_id]
    for _ in range(12):
        parents = rng.sample(ids, k=min(len(ids), rng.randint(1, 3)))
        ids.append(source.publish(rng.choice("abcd"), parents, model(rng.random())))
    replica = TinyLedger()
    waiting = [source.transactions[each] for each in ids[1:]]
    while waiting:
        rng.shuffle(waiting)
        waiting = [
            t for t in waiting if isinstance(replica.node.admit(t, None, figures=Figures(1.0)), WaitingForParents)
        ]
    parents_of = {node.id: node.parents for node in source.ledger}
    assert {*replica.ledger.graph.tips()} == reference.tips(parents_of)
    assert all(node.depth == reference.depth(parents_of, node.id) for node in replica.ledger)
    assert replica.node.candidate_rule.candidates(None) == source.node.candidate_rule.candidates(None)
    newest_here, newest_there = ({node.id for node in each.ledger.graph.newest_nodes()} for each in (replica, source))
    assert newest_here == newest_there


def test_two_transactions_under_one_sequence_number_are_both_kept_and_one_counts_everywhere() -> None:
    source = TinyLedger()
    first = source.draft("ann", [source.genesis_id], model(1), sequence=0)
    second = source.draft("ann", [source.genesis_id], model(2), sequence=0)
    winners = set()
    for order in ([first, second], [second, first]):
        replica = TinyLedger()
        for transaction in order:
            assert isinstance(replica.node.admit(transaction, None, figures=Figures(1.0)), Admitted)
        winners |= candidates_of(replica)
    assert winners == {max(first.id, second.id)}


def rewritten(tiny: TinyLedger, **changes: object) -> Header:
    plain = tiny.draft("ann", [tiny.genesis_id], model(1)).header
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"ledger": TxId("f" * 64)}, WrongLedgerError),
        ({"num_examples": 0}, TransactionInvalidError),
        ({"model_size": 5}, DigestMismatchError),
        ({"parents": tuple(TxId(f"{i:064x}") for i in range(65))}, ParentsError),
    ],
)
def test_a_header_beyond_the_rules_is_refused(changes: dict[str, object], error: type[Exception]) -> None:
    tiny = TinyLedger()
    with pytest.raises(error):
        tiny.node.admit(seal(rewritten(tiny, **changes)), None, figures=Figures(1.0))
    assert len(tiny.ledger) == 1


def test_a_second_genesis_is_refused() -> None:
    tiny = TinyLedger()
    second = TinyLedger(make_genesis(name="other")).genesis_transaction
    with pytest.raises(TransactionInvalidError):
        tiny.node.admit(second, None, figures=Figures(1.0))


def test_a_genesis_transaction_of_other_rules_is_refused() -> None:
    tiny = TinyLedger()
    with pytest.raises(GenesisError):
        Ledger(make_genesis(name="other"), tiny.genesis_transaction, genesis_norm=1.0)


def test_the_absolute_norm_bound_holds_whatever_the_parents() -> None:
    tiny = TinyLedger(make_genesis(max_norm=3.0), genesis_model=model(1, 1, 1, 1))
    with pytest.raises(ModelNormError):
        tiny.publish("ann", [tiny.genesis_id], model(3, 1))


def test_gossip_allows_for_rounding_at_the_very_bound() -> None:
    tiny = TinyLedger(make_genesis(max_norm=3.0), genesis_model=model(1, 1, 1, 1))
    draft = tiny.draft("ann", [tiny.genesis_id], model(3))
    with pytest.raises(ModelNormError):
        tiny.ledger.review(draft.id, draft.header, figures=Figures(3.0 + 1e-9), slack=0.0)
    assert isinstance(tiny.ledger.review(draft.id, draft.header, figures=Figures(3.0 + 1e-9)), Admitted)


def test_the_payload_must_be_what_the_header_names() -> None:
    tiny = TinyLedger()
    header = tiny.draft("ann", [tiny.genesis_id], model(1, 2), attachment=b"{}").header
    assert check_payload(header, genesis=tiny.genesis, model=model(1, 2), attachment=b"{}")[1] in (1.0, 2.0, 0.0)
    with pytest.raises(DigestMismatchError) as caught:
        check_payload(header, genesis=tiny.genesis, model=model(1, 3), attachment=b"{}")
    assert caught.value.computed == digest_of(model(1, 3))
    with pytest.raises(DigestMismatchError):
        check_payload(header, genesis=tiny.genesis, model=model(1, 2), attachment=None)
    with pytest.raises(ModelNotFiniteError):
        check_payload(header, genesis=tiny.genesis, model=model(math.nan), attachment=b"{}")


def test_policy_can_demand_signatures() -> None:
    strict = TinyLedger(make_genesis(keys_only=True))
    anonymous = rewritten(strict, author=AuthorKind.SECRET.author("1" * 64))
    with pytest.raises(SignatureRequiredError):
        verify_author(anonymous, strict.genesis_id, None, keys_only=strict.genesis.keys_only)
    strict.draft("ann", [strict.genesis_id], model(1)).verify_signatures(keys_only=strict.genesis.keys_only)
    relaxed = TinyLedger()
    verify_author(anonymous, relaxed.genesis_id, None, keys_only=relaxed.genesis.keys_only)
    with pytest.raises(SignatureError):
        seal(rewritten(relaxed), author_key=relaxed.key("bob")).verify_signatures(keys_only=relaxed.genesis.keys_only)


def publication(tiny: TinyLedger, header: Header) -> None:
    answer = tiny.ledger.review(seal(header).id, header, figures=Figures(1.0))
    assert isinstance(answer, Admitted | AlreadyKnown)
    check_publication(header, node=answer.node, graph=tiny.ledger.graph, genesis=tiny.genesis)


def test_creation_time_is_never_used() -> None:
    tiny = TinyLedger()
    for created_at_ms in (0, CREATED_AT_MS, 2**63 - 1):
        publication(tiny, rewritten(tiny, created_at_ms=created_at_ms))


def test_declared_noise_is_bounded() -> None:
    tiny = TinyLedger(make_genesis(max_noise_std=0.5))
    publication(tiny, rewritten(tiny, noise_std=0.5))
    with pytest.raises(TransactionInvalidError):
        publication(tiny, rewritten(tiny, noise_std=0.75))
    silent = TinyLedger()
    with pytest.raises(TransactionInvalidError, match="allows 0"):
        publication(silent, rewritten(silent, noise_std=1e-9))


def test_evidence_is_bounded() -> None:
    tiny = TinyLedger(make_genesis(max_evidence_bytes=2))
    for evidence, error in ((b"{}", None), (b"{ }", TransactionInvalidError)):
        header = rewritten(tiny, attachment_digest=digest_of(evidence))
        with contextlib.nullcontext() if error is None else pytest.raises(error):
            check_payload(header, genesis=tiny.genesis, model=model(1), attachment=evidence)


def test_a_used_sequence_number_names_the_next() -> None:
    tiny = TinyLedger()
    a = tiny.publish("ann", [tiny.genesis_id], model(1))
    with pytest.raises(SequenceConflictError) as caught:
        publication(tiny, rewritten(tiny, sequence=0, num_examples=2))
    assert (caught.value.existing, caught.value.next_sequence) == (a, 1)
    publication(tiny, rewritten(tiny, sequence=7))


def test_no_broken_counter_and_no_thief_uses_up_an_authors_numbers() -> None:
    tiny = TinyLedger()
    publication(tiny, rewritten(tiny, sequence=MAX_AHEAD))
    tiny.publish("ann", [tiny.genesis_id], model(1))
    publication(tiny, rewritten(tiny, sequence=1 + MAX_AHEAD))
    for beyond in (2 + MAX_AHEAD, 2**63 - 1):
        with pytest.raises(SequenceConflictError, match="beyond the author's next, 1") as caught:
            publication(tiny, rewritten(tiny, sequence=beyond))
        assert caught.value.next_sequence == 1


def test_no_server_uses_up_the_numbers_of_an_author_in_whose_name_it_publishes() -> None:
    tiny = TinyLedger()
    first = tiny.publish("ann", [tiny.genesis_id], model(1))
    with pytest.raises(SequenceConflictError, match="the most at depth 2") as caught:
        tiny.node.admit(tiny.draft("ann", [first], model(2), sequence=2**63 - 1), None, figures=Figures(1.0))
    assert caught.value.next_sequence == 1
    forged = tiny.draft("ann", [first], model(2), sequence=3 * MAX_AHEAD)
    assert isinstance(tiny.node.admit(forged, None, figures=Figures(1.0)), Admitted)
    own = tiny.draft("ann", [forged.id], model(3))
    answer = tiny.node.admit(own, None, figures=Figures(1.0))
    assert isinstance(answer, Admitted)
    check_publication(own.header, node=answer.node, graph=tiny.ledger.graph, genesis=tiny.genesis)
    assert own.header.sequence == 1 + 3 * MAX_AHEAD


def test_parents_older_than_the_window_are_stale_unless_they_are_ones_own() -> None:
    tiny = TinyLedger(make_genesis(freshness_s=10))
    old = tiny.publish("bob", [tiny.genesis_id], model(1))
    tiny.now_s = 11
    new = tiny.publish("ann", [tiny.genesis_id], model(1))
    with pytest.raises(ParentsStaleError, match="the newest parent is 11 s old, the window is 10 s"):
        publication(tiny, tiny.draft("cid", [old], model(2), attachment=b"{}").header)
    publication(tiny, tiny.draft("bob", [old], model(2)).header)
    publication(tiny, tiny.draft("cid", [old, new], model(2), attachment=b"{}").header)
    publication(tiny, tiny.draft("cid", [tiny.genesis_id], model(2)).header)


def test_without_a_selection_the_only_parent_is_ones_own_or_genesis() -> None:
    tiny = TinyLedger()
    ann, bob = (tiny.publish(name, [tiny.genesis_id], model(1)) for name in ("ann", "bob"))
    publication(tiny, tiny.draft("ann", [ann], model(2)).header)
    with pytest.raises(ParentsError, match="ask for a selection"):
        publication(tiny, tiny.draft("ann", [bob], model(2)).header)
    with pytest.raises(ParentsError, match="several parents need the selection"):
        check_parents(tiny.draft("ann", [ann, bob], model(2)).header, None)
