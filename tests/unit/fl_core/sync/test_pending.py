from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.sync.messages import Peer, TransactionBundle
from fl_core.sync.pending import PendingPool, PendingTransaction
from fl_core.types import TxId
from tests.builders import TinyLedger, model

ANN, BOB = Peer("a" * 64), Peer("b" * 64)


class Chain:
    """Transactions 1 … n, each the child of the one before; 0 is genesis."""

    def __init__(self, length: int) -> None:
        tiny = TinyLedger()
        self.ids = [tiny.genesis_id]
        for number in range(length):
            self.ids.append(tiny.publish("ann", [self.ids[-1]], model(1.0, number)))
        self.transactions = tiny.transactions

    def bundle(self, number: int) -> TransactionBundle:
        return TransactionBundle(self.transactions[self.ids[number]])

    def numbers(self, held: Iterable[PendingTransaction]) -> list[int]:
        return [self.ids.index(each.id) for each in held]


def room(ledger: set[TxId], *, max_count: int = 100, max_bytes: int = 1 << 20, lifetime_s: float = 60.0) -> PendingPool:
    return PendingPool(ledger, max_count=max_count, max_bytes=max_bytes, lifetime_s=lifetime_s)


def put(waiting: PendingPool, chain: Chain, number: int, peer: Peer = ANN, now_s: float = 0.0) -> list[int] | None:
    """What becomes connected by adding it, as numbers; None when there was no room."""
    added = waiting.add(chain.bundle(number), from_peer=peer, sources=[], now_s=now_s)
    return None if added is None else chain.numbers(added)


def test_a_child_of_the_ledger_is_connected_and_waits_for_its_model() -> None:
    chain = Chain(1)
    waiting = room({chain.ids[0]})
    assert put(waiting, chain, 1) == [1]
    held = waiting.get(chain.ids[1])
    assert held is not None
    assert held.is_connected
    assert not held.is_ready
    held.model_is_here = True
    assert held.is_ready


def test_a_late_parent_connects_its_descendants_parents_first() -> None:
    chain = Chain(3)
    waiting = room({chain.ids[0]})
    assert put(waiting, chain, 3) == []
    assert put(waiting, chain, 2) == []
    assert put(waiting, chain, 1) == [1, 2, 3]


def test_an_orphan_says_which_parents_to_ask_for() -> None:
    chain = Chain(3)
    waiting = room({chain.ids[0]})
    put(waiting, chain, 3)
    assert waiting.missing_parents(chain.ids[3]) == (chain.ids[2],)
    put(waiting, chain, 2)
    assert waiting.missing_parents(chain.ids[3]) == ()


def test_children_are_freed_one_generation_at_a_time() -> None:
    chain = Chain(3)
    ledger = {chain.ids[0]}
    waiting = room(ledger)
    for number in (1, 2, 3):
        put(waiting, chain, number)
    ledger.add(chain.ids[1])
    connected, freed = waiting.entered_ledger(chain.ids[1])
    assert (chain.numbers(connected), chain.numbers(freed)) == ([], [2])


def test_a_parent_that_comes_by_another_way_frees_its_orphans() -> None:
    chain = Chain(2)
    ledger = {chain.ids[0]}
    waiting = room(ledger)
    put(waiting, chain, 2)
    ledger.add(chain.ids[1])
    connected, freed = waiting.entered_ledger(chain.ids[1])
    assert (chain.numbers(connected), chain.numbers(freed)) == ([2], [2])


def test_dropping_takes_descendants_along() -> None:
    chain = Chain(3)
    waiting = room({chain.ids[0]})
    put(waiting, chain, 1, ANN)
    put(waiting, chain, 2, BOB)
    put(waiting, chain, 3, BOB)
    assert chain.numbers(waiting.drop(chain.ids[1])) == [1, 2, 3]
    assert len(waiting) == 0
    assert waiting.space(ANN) == waiting.space(BOB) == 100


def test_only_orphans_become_overdue() -> None:
    chain = Chain(3)
    waiting = room({chain.ids[0]}, lifetime_s=10.0)
    put(waiting, chain, 1)
    put(waiting, chain, 3)
    assert waiting.overdue(10.0) == ()
    assert waiting.overdue(10.1) == (chain.ids[3],)


def test_a_full_room_takes_no_more_and_leaves_others_theirs() -> None:
    chain = Chain(3)
    waiting = room({chain.ids[0]}, max_count=2)
    assert put(waiting, chain, 1) == [1]
    assert waiting.space(ANN) == 1
    assert put(waiting, chain, 2) == [2]
    assert waiting.space(ANN) == 0
    assert put(waiting, chain, 3) is None
    assert put(waiting, chain, 3, BOB) == [3]


def test_orphans_have_as_much_room_again() -> None:
    chain = Chain(6)
    waiting = room({chain.ids[0]}, max_count=1)
    assert put(waiting, chain, 1) == [1]
    assert put(waiting, chain, 4) == []
    assert put(waiting, chain, 6) is None


def test_bytes_are_bounded_too() -> None:
    chain = Chain(2)
    one = chain.bundle(1).nbytes
    waiting = room({chain.ids[0]}, max_bytes=one)
    assert put(waiting, chain, 1) == [1]
    assert put(waiting, chain, 2) is None
    assert waiting.space(ANN) == 0


@settings(max_examples=60, deadline=None)
@given(order=st.permutations(range(1, 9)), in_ledger=st.integers(0, 4), seed=st.integers(0, 3))
def test_connected_is_what_a_search_finds_whatever_the_order(order: list[int], in_ledger: int, seed: int) -> None:
    tiny = TinyLedger()
    ids = [tiny.genesis_id]
    for number in range(8):
        parents = {ids[-1], ids[(number * (seed + 1)) % len(ids)]}
        ids.append(tiny.publish("ann", sorted(parents), model(1.0, number)))
    ledger = set(ids[: 1 + in_ledger])
    waiting = room(ledger)
    here: set[TxId] = set()
    for number in order:
        if ids[number] in ledger:
            continue
        waiting.add(TransactionBundle(tiny.transactions[ids[number]]), from_peer=ANN, sources=[], now_s=0.0)
        here.add(ids[number])
        for identity in here:
            held = waiting.get(identity)
            assert held is not None
            assert held.is_connected == _reaches(identity, ledger, here, tiny)


def _reaches(identity: TxId, ledger: set[TxId], here: set[TxId], tiny: TinyLedger) -> bool:
    if identity in ledger:
        return True
    parents = tiny.transactions[identity].header.parents
    return identity in here and all(_reaches(parent, ledger, here, tiny) for parent in parents)
