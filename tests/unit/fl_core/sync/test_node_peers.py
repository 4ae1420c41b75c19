"""Peers that fail, are late, leave, and come."""

from fl_core.sync.effects import (
    Announce,
    Failure,
    SendRequest,
)
from fl_core.sync.messages import (
    Changes,
    CursorUnknown,
    GetChanges,
    GetSummary,
    GetTransactions,
    Peer,
    Transactions,
)
from fl_core.types import TxId
from tests.gossip_desk import ANN, BOB, Desk


def test_a_peer_that_did_not_serve_is_asked_for_half_a_minute_only_for_what_nobody_else_has() -> None:
    desk = Desk()
    x, y, z = (desk.write("ann", [desk.ledger.id], value) for value in (1, 2, 3))

    def asked() -> dict[Peer, tuple[TxId, ...]]:
        found = {}
        for ask in desk.asks(GetTransactions):
            assert isinstance(ask.request, GetTransactions)
            found[ask.peer] = ask.request.ids
            desk.answer(ask, Transactions(tuple(map(desk.bundle, ask.request.ids))))
        return found

    desk.announce(x)
    desk.node.failed(desk.ask(GetTransactions), desk.now_s, kind=Failure.TIMEOUT)
    for peer in (ANN, BOB):
        desk.announce(y, peer)
    assert asked() == {ANN: (x,), BOB: (y,)}
    desk.now_s += 30.0
    for peer in (ANN, BOB):
        desk.announce(z, peer)
    assert asked() == {ANN: (z,)}


def test_a_late_answer_changes_nothing() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.announce(x)
    ask = desk.ask(GetTransactions)
    desk.now_s = ask.deadline_s + 0.1
    desk.poll()
    assert desk.answer(ask, Transactions((desk.bundle(x),))) == []
    assert x not in desk.node.inbound.pending


def test_a_foreign_cursor_begins_again() -> None:
    desk = Desk()
    desk.now_s = 10.0
    pull = desk.asks(GetChanges)[0]
    desk.answer(pull, CursorUnknown())
    desk.now_s = 10.5
    assert desk.ask(GetChanges).request == GetChanges(None)


def test_a_peer_that_fails_is_left_alone_for_a_while_and_pulled_from_as_soon_as_it_calls() -> None:
    desk = Desk()
    for round_number in range(8):
        desk.now_s = 100.0 * (round_number + 1)
        for ask in desk.asks(GetChanges):
            if ask.peer == ANN:
                desk.node.failed(ask, desk.now_s, kind=Failure.UNREACHABLE)
            else:
                desk.answer(ask, Changes((), "e.1", more=False))
    desk.now_s += 4.5
    assert [ask.peer for ask in desk.asks(GetChanges) if ask.peer == ANN] == []
    desk.node.heard(ANN)
    assert [ask.peer for ask in desk.asks(GetChanges) if ask.peer == ANN] == [ANN]


def test_of_a_peer_that_left_nothing_is_asked_or_taken_and_what_it_alone_listed_is_let_go() -> None:
    desk = Desk()
    x, y = (desk.write(name, [desk.ledger.id], value) for name, value in (("ann", 1), ("bob", 2)))
    desk.announce(x)
    under_way = desk.ask(GetTransactions)
    assert desk.node.left(ANN, desk.now_s) == []
    assert desk.node.is_banned(ANN)
    desk.answer(under_way, Transactions((desk.bundle(x),)))
    desk.announce_whole(y)
    assert x not in desk.node.inbound.pending
    assert y not in desk.node.inbound.pending
    desk.now_s = 100.0
    assert {effect.peer for effect in desk.poll() if isinstance(effect, SendRequest)} == {BOB}
    assert [effect.peer for effect in desk.node.acts_kept() if isinstance(effect, Announce)] == [BOB]


def test_a_peer_that_joins_is_asked_at_once_from_its_cursor_and_compared_with() -> None:
    desk = Desk()
    carl = Peer("c" * 64)
    desk.node.joined(carl, desk.now_s, cursor="e.7")
    asked = [effect for effect in desk.poll() if isinstance(effect, SendRequest)]
    assert [(each.peer, each.request) for each in asked] == [(carl, GetChanges("e.7")), (carl, GetSummary())]
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.announce_whole(x, carl)
    assert x in desk.node.inbound.pending


def test_one_that_left_is_spoken_to_again_when_it_is_back() -> None:
    desk = Desk()
    desk.node.left(ANN, desk.now_s)
    desk.node.joined(ANN, desk.now_s)
    assert not desk.node.is_banned(ANN)
    assert desk.ask(GetChanges).peer == ANN
