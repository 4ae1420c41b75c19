"""What a peer announces comes in: what is asked for, and in which order it is admitted."""

from fl_core.sync.effects import (
    Admit,
    Effect,
    SaveCursor,
)
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Changes,
    GetChanges,
    GetModel,
    GetTransactions,
    ModelComplete,
    Transactions,
)
from tests.gossip_desk import ANN, BOB, Desk, only


def test_what_is_announced_is_asked_for_then_its_model_then_it_is_admitted() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    assert desk.serve([x]) == []
    admit = only(desk.fetch(x), Admit)
    assert (admit.id, admit.from_peer) == (x, ANN)
    desk.admit(admit)
    assert len(desk.items) == 2
    assert desk.poll() == []


def test_children_that_come_first_are_admitted_after_their_parents() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("ann", [x], 2)
    desk.announce_whole(y)
    assert desk.asks(GetModel) == [], "an orphan's model is not fetched"
    desk.announce_whole(x)
    asks = desk.asks(GetModel)
    assert len(asks) == 2
    effects: list[Effect] = []
    for ask in reversed(asks):
        assert isinstance(ask.request, GetModel)
        desk.blobs.complete.add(ask.request.digest)
        effects += desk.answer(ask, ModelComplete())
    assert only(effects, Admit).id == x
    assert only(desk.admit(only(effects, Admit)), Admit).id == y


def test_an_announced_transaction_needs_only_its_model() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    assert desk.announce_whole(x) == []
    desk.announce_whole(x, BOB)
    admit = only(desk.fetch(x), Admit)
    assert (admit.id, admit.from_peer) == (x, ANN)


def test_missing_parents_are_asked_for_by_id() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("ann", [x], 2)
    desk.announce_whole(y)
    ask = desk.ask(GetTransactions)
    assert (ask.peer, ask.request) == (ANN, GetTransactions((x,)))
    desk.answer(ask, Transactions((desk.bundle(x),)))
    assert len(desk.asks(GetModel)) == 2


def test_a_gap_deeper_than_parents_brings_the_next_page_forward() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("ann", [x], 2)
    z = desk.write("ann", [y], 3)
    desk.announce_whole(z)
    desk.now_s = 1.0
    assert desk.asks(GetChanges) == []
    desk.now_s = 2.0
    for ask in [each for each in desk.requests if isinstance(each.request, GetTransactions)]:
        desk.answer(ask, Transactions((desk.bundle(y),)))
    assert [ask.peer for ask in desk.asks(GetChanges)] == [ANN]


def test_a_peer_that_announces_more_than_there_is_room_for_is_asked_later() -> None:
    desk = Desk(limits=GossipLimits(comparison_interval_s=1e9, pending_per_peer=1))
    x, y = (desk.write(name, [desk.ledger.id], value) for name, value in (("ann", 1), ("bob", 2)))
    desk.announce_whole(x)
    desk.announce_whole(y)
    assert y not in desk.node.inbound.pending
    desk.admit(only(desk.fetch(x), Admit))
    assert desk.ask(GetTransactions).request == GetTransactions((y,))


def test_one_admission_at_a_time() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("bob", [desk.ledger.id], 2)
    desk.blobs.complete |= {desk.model_of(x), desk.model_of(y)}
    first = only(desk.serve([x, y]), Admit)
    assert first.id == x
    assert desk.poll() == []
    assert only(desk.admit(first), Admit).id == y


def test_a_deferred_admission_comes_again_after_a_while() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.blobs.complete.add(desk.model_of(x))
    admit = only(desk.serve([x]), Admit)
    desk.node.deferred(admit.id, desk.now_s)
    assert [effect for effect in desk.poll() if isinstance(effect, Admit)] == []
    desk.now_s = 5.0
    assert only(desk.poll(), Admit).id == x


def test_a_page_of_changes_is_settled_when_all_of_it_is_admitted() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.blobs.complete.add(desk.model_of(x))
    desk.now_s = 10.0
    pull = desk.asks(GetChanges)[0]
    desk.answer(pull, Changes((desk.ledger.id, x), "e.2", more=False))
    ask = desk.ask(GetTransactions)
    admit = only(desk.answer(ask, Transactions((desk.bundle(x),))), Admit)
    assert only(desk.admit(admit), SaveCursor) == SaveCursor(pull.peer, "e.2")
