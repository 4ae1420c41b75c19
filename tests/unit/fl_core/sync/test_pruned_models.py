"""Models that peers say to have pruned: who is asked, what waits for what, and what is let in without."""

from collections.abc import Sequence

from fl_core.sync.effects import Admit, Ask, Effect, Failure, Incident, KeepCursor, Vet
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    BlobComplete,
    BlobUnknown,
    Changes,
    GetBlob,
    GetChanges,
    GetTransactions,
    Peer,
    Transactions,
)
from fl_core.sync.pulling import CursorPull
from fl_core.sync.waiting import Held, WaitingRoom
from fl_core.types import TxId
from tests.unit.fl_core.sync.test_node import ANN, BOB, Desk, incidents, only

SWEEP_S = 1.0


class LateDesk(Desk):
    """A desk that joins late: what is asked for its models is answered by what each peer has."""

    def __init__(self, *, limits: GossipLimits | None = None) -> None:
        super().__init__(limits=limits)
        self.has: dict[Peer, set[TxId]] = {ANN: set(), BOB: set()}
        self.asked: list[tuple[Peer, TxId]] = []
        self.is_away: set[Peer] = set()
        self.bare: list[TxId] = []

    def take_in(self, transactions: Sequence[TxId], peer: Peer = ANN) -> None:
        """Headers come from a peer."""
        for transaction in transactions:
            self.announce(transaction, peer)
        for ask in self.asks(GetTransactions):
            self.answer(ask, Transactions(tuple(map(self.carried, transactions))))

    def settle(self, *, for_s: float = 4.0) -> list[Effect]:
        """Let peers answer, and do what the node wants, until nothing is left to do in this time."""
        seen: list[Effect] = []
        for _ in range(int(for_s / SWEEP_S)):
            self.now_s += SWEEP_S
            waiting = self.poll()
            while waiting:
                effect = waiting.pop(0)
                seen.append(effect)
                waiting += self.do(effect)
                waiting += self.poll()
        return seen

    def do(self, effect: Effect) -> list[Effect]:  # noqa: PLR0911 -- a case per effect
        match effect:
            case Ask(peer=peer) if peer in self.is_away:
                return self.node.failed(effect, self.now_s, kind=Failure.UNREACHABLE)
            case Ask(request=GetBlob(digest=digest)):
                transaction = next(each for each in self.there.transactions if self.model_of(each) == digest)
                self.asked.append((effect.peer, transaction))
                if transaction not in self.has[effect.peer]:
                    return self.answer(effect, BlobUnknown(pruned=True))
                self.blobs.complete.add(digest)
                return self.answer(effect, BlobComplete())
            case Ask(request=GetChanges()):
                return self.answer(effect, Changes((), "e.1", more=False))
            case Vet():
                model = self.there.models[effect.carried.transaction.header.model_digest]
                return self.node.vetted(effect.id, self.there.norm(model), self.now_s)
            case Admit(is_bare=True):
                self.bare.append(effect.id)
                answer = self.ledger.review_bare(effect.id, effect.carried.transaction.header)
                self.ledger.add(answer.node)  # type: ignore[union-attr]
                return self.node.admitted(effect.id, self.now_s)
            case Admit():
                return self.admit(effect)
            case _:
                return []


def chain(desk: LateDesk, length: int) -> list[TxId]:
    """One author's transactions, each on the one before; both peers have the model of the newest."""
    ids = [desk.ledger.id]
    for number in range(length):
        ids.append(desk.write("ann", [ids[-1]], number / 64))
    for peer in (ANN, BOB):
        desk.has[peer].add(ids[-1])
    return ids[1:]


def test_what_all_peers_pruned_comes_in_bare_when_what_lies_above_shows_that_it_may() -> None:
    desk = LateDesk()
    ids = chain(desk, 4)
    desk.take_in(ids[:3])
    assert incidents(desk.settle()) == [], "to prune is no fault"
    assert len(desk.ledger) == 1, "the newest that is known may not lack its model"
    desk.take_in(ids[3:])
    desk.settle()
    assert desk.bare == ids[:3]
    assert len(desk.ledger) == 5
    assert len(desk.node.intake.waiting) == 0
    assert {(peer, each) for peer in (ANN, BOB) for each in ids[:3]} <= set(desk.asked), "everybody was asked"


def test_a_tip_that_is_said_to_be_pruned_stays_out_and_is_let_go_of() -> None:
    desk = LateDesk(limits=GossipLimits(orphan_lifetime_s=10.0, audit_interval_s=1e9))
    ids = chain(desk, 3)
    desk.has[ANN].clear()
    desk.has[BOB].clear()
    desk.take_in(ids)
    effects = desk.settle(for_s=30.0)
    assert desk.bare == []
    assert len(desk.ledger) == 1
    assert len(desk.node.intake.waiting) == 0
    assert (ANN, Incident.UNSERVED) in incidents(effects)
    assert (ANN, Incident.INVALID) not in incidents(effects), "an honest server may know of something newer"


def test_a_model_that_one_peer_still_has_is_fetched_although_it_did_not_say_so() -> None:
    desk = LateDesk()
    ids = chain(desk, 3)
    desk.has[BOB].update(ids)
    desk.take_in(ids, ANN)
    desk.settle()
    assert desk.bare == []
    assert len(desk.ledger) == 4


def test_a_peer_that_is_away_is_waited_for_and_not_for_ever() -> None:
    desk = LateDesk(limits=GossipLimits(pruned_patience_s=20.0, orphan_lifetime_s=1000.0, audit_interval_s=1e9))
    ids = chain(desk, 3)
    desk.is_away.add(BOB)
    desk.take_in(ids)
    desk.settle(for_s=15.0)
    assert len(desk.ledger) == 1
    desk.settle(for_s=20.0)
    assert desk.bare == ids[:2]
    assert len(desk.ledger) == 4


def test_a_peer_that_comes_back_is_asked_before_anything_is_let_in_bare() -> None:
    desk = LateDesk(limits=GossipLimits(pruned_patience_s=20.0, orphan_lifetime_s=1000.0, audit_interval_s=1e9))
    ids = chain(desk, 3)
    desk.has[BOB].update(ids)
    desk.is_away.add(BOB)
    desk.take_in(ids)
    desk.settle(for_s=15.0)
    desk.is_away.clear()
    desk.node.heard(BOB)
    desk.settle(for_s=10.0)
    assert desk.bare == []
    assert len(desk.ledger) == 4


def test_a_witness_whose_model_is_refused_is_no_witness() -> None:
    desk = LateDesk(limits=GossipLimits(orphan_lifetime_s=10.0, audit_interval_s=1e9))
    ids = chain(desk, 2)
    desk.take_in(ids)
    desk.now_s += SWEEP_S
    vet = None
    for _ in range(20):
        desk.now_s += SWEEP_S
        for effect in desk.poll():
            if isinstance(effect, Vet):
                vet = effect
            else:
                desk.do(effect)
        if vet is not None:
            break
    assert vet is not None
    assert vet.id == ids[1]
    effects = desk.node.refused(vet.id, desk.now_s, reason="a value is not finite")
    assert (ANN, Incident.INVALID) in incidents(effects)
    desk.settle(for_s=30.0)
    assert desk.bare == []
    assert len(desk.ledger) == 1


def test_what_a_grant_rests_on_is_kept_when_its_sender_is_banned() -> None:
    desk = LateDesk(limits=GossipLimits(banned_after=1, audit_interval_s=1e9))
    ids = chain(desk, 3)
    desk.take_in(ids)
    admit = None
    while admit is None:
        desk.now_s += SWEEP_S
        waiting = desk.poll()
        while waiting and admit is None:
            effect = waiting.pop(0)
            if isinstance(effect, Admit):
                admit = effect
            else:
                waiting += [*desk.do(effect), *desk.poll()]
    assert (admit.id, admit.is_bare) == (ids[0], True)
    desk.node.intake._roster.invalid(ANN, "something else")
    desk.node.poll(desk.now_s)
    assert desk.node.is_banned(ANN)
    waiting = desk.do(admit)
    while waiting:
        waiting += desk.do(waiting.pop(0))
    assert len(desk.ledger) == 4


# -- the parts ----------------------------------------------------------------------------------------


def test_a_page_that_is_held_up_is_read_past_and_no_cursor_behind_it_is_kept() -> None:
    pull = CursorPull(None, GossipLimits())
    x, y, z = (TxId(each * 64) for each in "123")
    pull.ask(0.0)
    assert pull.came(Changes((x,), "e.1", more=True), [x], 0.0, pause_s=5.0) is None
    pull.held_up(x, 1.0, pause_s=5.0)
    assert pull.is_due(1.0), "there is more, and it is asked for at once"
    assert pull.ask(1.0).after == "e.1"
    assert pull.came(Changes((y, z), "e.3", more=False), [y, z], 1.0, pause_s=5.0) is None
    assert pull.settled(y, 2.0, pause_s=5.0, dropped=False) is None
    assert pull.settled(z, 2.0, pause_s=5.0, dropped=False) is None, "x lies before it"
    assert not pull.is_settled(2.0)
    assert pull.settled(x, 3.0, pause_s=5.0, dropped=False) == "e.3"
    assert pull.is_settled(3.0)


def test_a_held_up_id_that_is_settled_while_a_page_is_open_lets_the_last_cursor_be_kept() -> None:
    pull = CursorPull(None, GossipLimits())
    x, y = TxId("1" * 64), TxId("2" * 64)
    pull.ask(0.0)
    pull.came(Changes((x,), "e.1", more=True), [x], 0.0, pause_s=5.0)
    pull.held_up(x, 1.0, pause_s=5.0)
    pull.ask(1.0)
    pull.came(Changes((y,), "e.2", more=False), [y], 1.0, pause_s=5.0)
    assert pull.settled(x, 2.0, pause_s=5.0, dropped=False) == "e.1"
    assert pull.settled(y, 2.0, pause_s=5.0, dropped=False) == "e.2"


def test_parked_transactions_have_a_share_of_their_own_and_make_room_above_them() -> None:
    desk = Desk()
    ids = [desk.write("ann", [desk.ledger.id], number) for number in range(1, 8)]
    room = WaitingRoom(
        desk.ledger,
        [ANN],
        max_orphans=2,
        max_bytes=1 << 20,
        lifetime_s=60.0,
        max_parked=2,
        max_parked_bytes=1 << 20,
        max_resting=3,
    )

    def add(number: int) -> Held | None:
        added = room.add(desk.carried(ids[number]), from_peer=ANN, sources=[], now_s=0.0)
        return None if added is None else added[0][0]

    first, second = add(0), add(1)
    assert first is not None
    assert second is not None
    assert (add(2), room.space(ANN)) == (None, 0)
    assert room.park(first)
    assert room.has_parked
    assert room.space(ANN) == 2, "three may rest while one is parked"
    assert room.park(second)
    third = add(2)
    assert third is not None
    assert not room.park(third), "two may be parked"
    room.unpark(first)
    assert room.space(ANN) == 1
    for held in (first, second, third):
        room.remove(held.id)
    assert (len(room), room.nbytes, room.has_parked, room.space(ANN)) == (0, 0, False, 2)


def test_a_cursor_is_kept_when_all_that_was_held_up_has_come_in() -> None:
    desk = LateDesk()
    ids = chain(desk, 3)
    desk.now_s += 10.0
    (ask, *_) = [ask for ask in desk.asks(GetChanges) if ask.peer == ANN]
    desk.answer(ask, Changes(tuple(ids), "e.4", more=False))
    asked = only(desk.poll(), Ask)
    desk.answer(asked, Transactions(tuple(map(desk.carried, ids))))
    effects = desk.settle()
    assert len(desk.ledger) == 4
    assert KeepCursor(ANN, "e.4") in effects
