"""What a peer announces comes in: what is asked for, and in which order it is admitted."""

from fl_core.dag.figures import Figures
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
from fl_core.types import TxId
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
    assert [effect.id for effect in effects if isinstance(effect, Admit)] == [x, y]


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


def admitted_together(desk: Desk, effects: list[Effect]) -> list[TxId]:
    together = [effect for effect in effects if isinstance(effect, Admit)]
    for each in together:
        assert [effect for effect in desk.poll() if isinstance(effect, Admit)] == [], "until all are settled"
        desk.here.node.admit(each.bundle.transaction, None, figures=Figures(1.0))
        desk.node.admitted(each.id, desk.now_s)
    return [each.id for each in together]


def test_what_is_ready_is_admitted_together_parents_first_and_no_more_than_may_be() -> None:
    size = Desk().there.genesis.layout.nbytes
    desk = Desk(limits=GossipLimits(comparison_interval_s=1e9, admitted_together_bytes=3 * size))
    w, x = (desk.write(name, [desk.ledger.id], value) for name, value in (("ann", 1), ("bob", 2)))
    y = desk.write("carl", sorted([w, x]), 3)
    z = desk.write("dora", [y], 4)
    desk.blobs.complete |= {desk.model_of(each) for each in (w, x, y, z)}
    first = admitted_together(desk, desk.serve([z, y, x, w]))
    assert (sorted(first[:2]), first[2:]) == (sorted([w, x]), [y])
    assert admitted_together(desk, desk.poll()) == [z]


def test_what_stands_behind_a_refused_one_is_refused_and_behind_a_deferred_one_waits_for_it() -> None:
    desk = Desk()
    x, y = (desk.write(name, [desk.ledger.id], value) for name, value in (("ann", 1), ("bob", 2)))
    of_x, of_y = desk.write("carl", [x], 3), desk.write("dora", [y], 4)
    everything = [x, y, of_x, of_y]
    desk.blobs.complete |= set(map(desk.model_of, everything))
    desk.serve(everything)
    desk.node.refused(x, desk.now_s, reason="its norm is too large")
    for each in (y, of_x, of_y):  # the disk is full, and two have no parent
        desk.node.deferred(each, desk.now_s)
    assert of_x not in desk.node.inbound.pending
    assert desk.poll() == []
    desk.now_s = 5.0
    assert admitted_together(desk, desk.poll()) == [y, of_y]


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
