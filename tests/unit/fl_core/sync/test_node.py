"""The node by its effects: what it asks, what it takes in, and what it makes of peers that misbehave."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from fl_core.dag.acts import Act, ActKind, SignedAct, sign_act
from fl_core.dag.transaction import Transaction
from fl_core.joining import ServedCheckpoint
from fl_core.sync.act_set import ActSet
from fl_core.sync.effects import (
    Admit,
    Announce,
    DiscardModel,
    Effect,
    Failure,
    Incident,
    KeepActs,
    LogIncident,
    SaveCursor,
    SendRequest,
)
from fl_core.sync.items import ItemSet
from fl_core.sync.journal_pull import HURRIED_INTERVAL_S
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Acts,
    Announcement,
    Changes,
    CheckpointAnswer,
    CursorUnknown,
    GetActs,
    GetChanges,
    GetCheckpoint,
    GetModel,
    GetSummary,
    GetTransactions,
    ModelComplete,
    ModelCorrupt,
    ModelUnknown,
    Peer,
    ReconcileAnswer,
    ReconcileFrame,
    Request,
    Response,
    SummaryAnswer,
    TransactionBundle,
    Transactions,
)
from fl_core.sync.node import GossipNode
from fl_core.sync.reconcile import answer
from fl_core.sync.summary import StateSummary
from fl_core.types import Digest, TxId, digest_of
from tests.builders import CREATED_AT_MS, TinyLedger, key_from_seed, model, unreceipted
from tests.checkpoints import checkpoint_of

ANN, BOB = Peer("a" * 64), Peer("b" * 64)
E = TypeVar("E", bound=Effect)


@dataclass
class Blobs:
    """A blob store that is told what it holds."""

    complete: set[Digest] = field(default_factory=set)
    partial: dict[Digest, int] = field(default_factory=dict)

    def is_complete(self, digest: Digest) -> bool:
        return digest in self.complete

    def bytes_held(self, digest: Digest) -> int:
        return self.partial.get(digest, 0)


class Desk:
    """A node over an empty ledger, and a peer's ledger (``there``) with what may come from it."""

    def __init__(
        self,
        *,
        relay: bool = False,
        limits: GossipLimits | None = None,
        audits: bool = False,
        checkpoints: Sequence[ServedCheckpoint] = (),
    ) -> None:
        self.there = TinyLedger()
        self.here = TinyLedger()
        self.ledger = self.here.ledger
        self.items = ItemSet()
        self.items.add(0, self.ledger.id)
        self.acts = ActSet(self.ledger.id)
        self.blobs = Blobs()
        self.now_s = 0.0
        self.requests: list[SendRequest] = []
        self.admits: list[Admit] = []
        # Without audits, a test sees only what it is about.
        limits = limits or GossipLimits(comparison_interval_s=60.0 if audits else 1e9)
        self.node = GossipNode(
            self.ledger,
            self.items,
            acts=self.acts,
            summary=lambda: self.summary(len(self.ledger)),
            peers=[ANN, BOB],
            models=self.blobs,
            check=Transaction.verify_signatures,
            rng=random.Random(1),
            now_s=0.0,
            checkpoints=checkpoints,
            relay=relay,
            limits=limits,
        )
        for ask in self.asks(GetChanges):
            self.answer(ask, Changes((), "e.1", more=False))

    def summary(
        self, count: int, *, epoch: str = "0" * 32, server: Peer = ANN, acts_digest: Digest | None = None
    ) -> StateSummary:
        return StateSummary(
            ledger=self.ledger.id,
            server=server,
            epoch=epoch,
            count=count,
            tips_digest=digest_of(count.to_bytes(8, "big")),
            set_sum=digest_of(count.to_bytes(9, "big")),
            acts_digest=acts_digest or self.acts.digest,
            created_at_ms=0,
        )

    def write(self, name: str, parents: Sequence[TxId], value: float) -> TxId:
        """A transaction in the peer's ledger."""
        return self.there.publish(name, parents, model(1.0, value))

    def bundle(self, transaction: TxId) -> TransactionBundle:
        return TransactionBundle(self.there.transactions[transaction])

    def model_of(self, transaction: TxId) -> Digest:
        return self.there.transactions[transaction].header.model_digest

    def announce(self, transaction: TxId, peer: Peer = ANN) -> list[Effect]:
        """By its id, as one that is too large to be announced whole."""
        return self.node.announced(peer, Announcement(ids=(transaction,)), self.now_s)

    def announce_whole(self, transaction: TxId, peer: Peer = ANN) -> list[Effect]:
        return self.node.announced(peer, Announcement.of(self.bundle(transaction)), self.now_s)

    def poll(self) -> list[Effect]:
        effects = self.node.poll(self.now_s)
        self.requests += [effect for effect in effects if isinstance(effect, SendRequest)]
        return effects

    def asks(self, kind: type[Request]) -> list[SendRequest]:
        return [
            effect for effect in self.poll() if isinstance(effect, SendRequest) and isinstance(effect.request, kind)
        ]

    def ask(self, kind: type[Request]) -> SendRequest:
        (only,) = self.asks(kind)
        return only

    def answer(self, ask: SendRequest, response: Response) -> list[Effect]:
        effects = self.node.answered(ask, response, self.now_s)
        self.admits += [effect for effect in effects if isinstance(effect, Admit)]
        return effects

    def fetch(self, transaction: TxId) -> list[Effect]:
        """Have a grounded transaction's model come in."""
        ask = self.ask(GetModel)
        assert ask.request == GetModel(self.model_of(transaction), 0, self.there.genesis.layout.nbytes)
        self.blobs.complete.add(self.model_of(transaction))
        return self.answer(ask, ModelComplete())

    def serve(self, transactions: Sequence[TxId], peer: Peer = ANN) -> list[Effect]:
        """A peer announces and serves transactions, without their models."""
        for transaction in transactions:
            self.announce(transaction, peer)
        ask = self.ask(GetTransactions)
        assert ask.peer == peer
        return self.answer(ask, Transactions(tuple(map(self.bundle, transactions))))

    def audit(self, peer: Peer) -> SendRequest:
        """Let time pass, without news, until a peer is asked for its summary."""
        for _ in range(100):
            self.now_s += 2.0
            for effect in self.poll():
                if isinstance(effect, SendRequest) and isinstance(effect.request, GetChanges):
                    self.answer(effect, Changes((), "e.1", more=False))
                elif isinstance(effect, SendRequest) and isinstance(effect.request, GetSummary):
                    if effect.peer == peer:
                        return effect
                    self.answer(effect, SummaryAnswer(self.summary(len(self.ledger), server=effect.peer)))
        pytest.fail("no audit in 200 s")

    def admit(self, effect: Admit) -> list[Effect]:
        norm = 1.0
        self.here.node.admit(effect.bundle.transaction, None, norm=norm)
        return self.node.admitted(effect.id, self.now_s)

    def admit_without_model(self, effect: Admit) -> list[Effect]:
        assert effect.norm is not None
        self.here.node.restore(effect.bundle.transaction, norm=effect.norm)
        return self.node.admitted(effect.id, self.now_s)


def only(effects: Sequence[Effect], kind: type[E]) -> E:
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


def incidents(effects: Sequence[Effect]) -> list[tuple[Peer, Incident]]:
    return [(effect.peer, effect.incident) for effect in effects if isinstance(effect, LogIncident)]


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


def test_two_transactions_with_one_model_fetch_it_once() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("bob", [desk.ledger.id], 1)
    desk.serve([x, y])
    first = only(desk.fetch(x), Admit)
    second = only(desk.admit(first), Admit)
    assert {first.id, second.id} == {x, y}
    assert desk.asks(GetModel) == []


def test_a_transaction_that_was_not_asked_for_is_dropped_and_held_against_the_peer() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("bob", [desk.ledger.id], 2)
    desk.announce(x)
    effects = desk.answer(desk.ask(GetTransactions), Transactions((desk.bundle(y),)))
    assert (ANN, Incident.INVALID) in incidents(effects)
    assert y not in desk.node.inbound.pending


def test_the_twentieth_invalid_transaction_brings_the_ban_and_then_nothing_is_asked_or_heard() -> None:
    desk = Desk()
    ids = [desk.write(f"author {n}", [desk.ledger.id], n / 2) for n in range(21)]
    for identity in ids:
        desk.announce(identity)
    forged = [unreceipted(desk.there.transactions[identity]) for identity in ids]
    effects = desk.answer(desk.ask(GetTransactions), Transactions(tuple(map(TransactionBundle, forged))))
    assert incidents(effects).count((ANN, Incident.INVALID)) == 20
    assert incidents(effects).count((ANN, Incident.BANNED)) == 1
    assert desk.node.is_banned(ANN)
    desk.announce(ids[0])
    desk.now_s = 100.0
    assert {effect.peer for effect in desk.poll() if isinstance(effect, SendRequest)} == {BOB}


def test_a_copy_with_a_bad_signature_does_not_keep_a_sound_one_from_another_peer_out() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    forged = unreceipted(desk.there.transactions[x])
    desk.announce(x, ANN)
    desk.announce(x, BOB)
    first = desk.ask(GetTransactions)
    assert first.peer == ANN
    desk.answer(first, Transactions((TransactionBundle(forged),)))
    second = desk.ask(GetTransactions)
    assert second.peer == BOB
    desk.answer(second, Transactions((desk.bundle(x),)))
    assert x in desk.node.inbound.pending


def test_an_attachment_that_the_header_does_not_name_is_a_bad_copy() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.announce(x)
    bundle = replace(desk.bundle(x), attachment=b"not mine")
    effects = desk.answer(desk.ask(GetTransactions), Transactions((bundle,)))
    assert (ANN, Incident.INVALID) in incidents(effects)
    assert x not in desk.node.inbound.pending


def test_what_the_ledger_refuses_is_never_asked_for_again_nor_its_children() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("ann", [x], 2)
    desk.blobs.complete.add(desk.model_of(x))
    admit = only(desk.serve([x, y]), Admit)
    effects = desk.node.refused(admit.id, desk.now_s, reason="its norm is too large")
    assert incidents(effects) == [(ANN, Incident.INVALID)]
    assert {effect.digest for effect in effects if isinstance(effect, DiscardModel)} == {
        desk.model_of(x),
        desk.model_of(y),
    }
    desk.announce(x, BOB)
    desk.announce(y, BOB)
    assert desk.asks(GetTransactions) == []


def test_a_deferred_admission_comes_again_after_a_while() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.blobs.complete.add(desk.model_of(x))
    admit = only(desk.serve([x]), Admit)
    desk.node.deferred(admit.id, desk.now_s)
    assert [effect for effect in desk.poll() if isinstance(effect, Admit)] == []
    desk.now_s = 5.0
    assert only(desk.poll(), Admit).id == x


def test_a_model_that_is_gone_at_its_admission_is_fetched_again_and_holds_up_nobody() -> None:
    desk = Desk()
    x, y = (desk.write(name, [desk.ledger.id], value) for name, value in (("ann", 1), ("bob", 2)))
    desk.blobs.complete |= {desk.model_of(x), desk.model_of(y)}
    first = only(desk.serve([x, y]), Admit)
    (other,) = {x, y} - {first.id}
    desk.blobs.complete.discard(desk.model_of(first.id))
    assert only(desk.node.model_lost(first.id, desk.now_s), Admit).id == other
    effects = desk.node.refused(other, desk.now_s, reason="its norm is too large")
    assert only(effects, DiscardModel).digest == desk.model_of(other)
    assert only(desk.fetch(first.id), Admit).id == first.id


def test_a_model_that_two_have_is_needed_until_both_are_admitted() -> None:
    desk = Desk()
    x, y = (desk.write(name, [desk.ledger.id], 1) for name in ("ann", "bob"))
    assert desk.model_of(x) == desk.model_of(y)
    desk.blobs.complete.add(desk.model_of(x))
    first = only(desk.serve([x, y]), Admit)
    desk.here.node.admit(first.bundle.transaction, None, norm=1.0)
    effects = desk.node.admitted(first.id, desk.now_s)
    second = only(effects, Admit)
    assert not [effect for effect in effects if isinstance(effect, DiscardModel)]
    desk.here.node.admit(second.bundle.transaction, None, norm=1.0)
    effects = desk.node.admitted(second.id, desk.now_s)
    assert only(effects, DiscardModel).digest == desk.model_of(x)


def test_the_next_peer_is_asked_for_a_model_after_three_seconds_from_the_byte_reached() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.announce(x, BOB)
    ask = desk.ask(GetTransactions)
    desk.announce(x, ANN)
    desk.answer(ask, Transactions((desk.bundle(x),)))
    first = desk.ask(GetModel)
    desk.blobs.partial[desk.model_of(x)] = 7
    assert desk.node.model_progress(first, 0.5) is not None
    desk.now_s = 3.2
    second = desk.ask(GetModel)
    assert second.peer != first.peer
    assert isinstance(second.request, GetModel)
    assert second.request.start == 7
    assert desk.node.model_progress(first, 3.3) is None


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


def test_a_peer_that_did_not_deliver_a_model_is_asked_after_the_others_until_it_delivers_one() -> None:
    desk = Desk()
    x, y, z = (desk.write("ann", [desk.ledger.id], value) for value in (1, 2, 3))
    for transaction in (x, y):
        desk.announce_whole(transaction)
    first, second = desk.asks(GetModel)
    desk.node.failed(first, desk.now_s, kind=Failure.TIMEOUT)
    for peer in (ANN, BOB):
        desk.announce_whole(x, peer)  # its sender calls, so that it may be asked again at once
    assert desk.ask(GetModel).peer == BOB
    desk.blobs.complete.add(desk.model_of(y))
    desk.answer(second, ModelComplete())
    for peer in (ANN, BOB):
        desk.announce_whole(z, peer)
    assert desk.ask(GetModel).peer == ANN


def test_a_late_answer_changes_nothing() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.announce(x)
    ask = desk.ask(GetTransactions)
    desk.now_s = ask.deadline_s + 0.1
    desk.poll()
    assert desk.answer(ask, Transactions((desk.bundle(x),))) == []
    assert x not in desk.node.inbound.pending


def test_a_whole_model_that_does_not_hash_is_held_against_its_only_sender() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.serve([x])
    ask = desk.ask(GetModel)
    desk.node.model_progress(ask, 0.0)
    effects = desk.answer(ask, ModelCorrupt())
    assert (ANN, Incident.INVALID) in incidents(effects)
    assert (ANN, Incident.DROPPED) in incidents(effects), "nobody else has it"


def pruned_chain(desk: Desk) -> list[TxId]:
    """Three updates by ann on each other, of which the peers have pruned the first two; what is asked for the first."""
    parent, chain = desk.ledger.id, []
    for value in range(1, 4):
        parent = desk.write("ann", [parent], value)
        chain.append(parent)
    desk.serve(chain)
    for _ in range(2):  # ann says that she has pruned it, and so does bob, who had not listed it
        for ask in desk.asks(GetModel):
            assert isinstance(ask.request, GetModel)
            if ask.request.digest == desk.model_of(chain[2]):
                desk.blobs.complete.add(ask.request.digest)
                desk.answer(ask, ModelComplete())
            else:
                desk.answer(ask, ModelUnknown(pruned=True))
    return chain


def test_where_all_have_pruned_a_model_a_checkpoint_is_asked_for_and_stands_for_it() -> None:
    desk = Desk()
    first, second, third = pruned_chain(desk)
    ask = desk.ask(GetCheckpoint)
    served = checkpoint_of(desk.there, [first, second])
    admit = only(desk.answer(ask, CheckpointAnswer(served)), Admit)
    assert (admit.id, admit.norm) == (first, desk.there.genesis.bounds.max_norm), "no update above names it"
    admit = only(desk.admit_without_model(admit), Admit)
    assert (admit.id, admit.norm) == (second, desk.there.genesis.bounds.max_norm), "whatever the checkpoint says"
    admit = only(desk.admit_without_model(admit), Admit)
    assert (admit.id, admit.norm) == (third, None), "its model came"
    desk.admit(admit)
    assert desk.asks(GetCheckpoint) == []


def test_a_peer_that_kept_the_model_is_found_before_any_checkpoint_is_asked_for() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.write("ann", [x], 2)
    desk.serve([x])
    assert desk.answer(desk.ask(GetModel), ModelUnknown(pruned=True)) == []
    ask = desk.ask(GetModel)
    assert ask.peer == BOB
    assert desk.asks(GetCheckpoint) == []
    desk.blobs.complete.add(desk.model_of(x))
    assert only(desk.answer(ask, ModelComplete()), Admit).norm is None


def test_what_no_checkpoint_stands_for_is_dropped_when_every_peer_that_pruned_it_was_asked() -> None:
    desk = Desk()
    first, second, _ = pruned_chain(desk)
    ask = desk.ask(GetCheckpoint)
    assert ask.peer == ANN
    effects = desk.answer(ask, CheckpointAnswer(checkpoint_of(desk.there, [first])))
    assert only(effects, Admit).id == first
    ask = desk.ask(GetCheckpoint)
    assert ask.peer == BOB
    effects = desk.node.failed(ask, desk.now_s, kind=Failure.REFUSED)
    assert incidents(effects) == [(ANN, Incident.DROPPED)] * 2, "the second, and the third with it"
    assert second not in desk.node.inbound.pending


def test_a_checkpoint_that_came_is_not_asked_for_again_at_once() -> None:
    desk = Desk()
    first, second, _ = pruned_chain(desk)
    stands = CheckpointAnswer(checkpoint_of(desk.there, [first]))
    for _ in range(2):
        desk.answer(desk.ask(GetCheckpoint), stands)
    assert second not in desk.node.inbound.pending

    def again() -> list[SendRequest]:
        desk.serve([second])
        for _ in range(2):
            for ask in desk.asks(GetModel):
                desk.answer(ask, ModelUnknown(pruned=True))
        return desk.asks(GetCheckpoint)

    desk.admit_without_model(desk.admits[0])
    assert again() == []
    assert second not in desk.node.inbound.pending
    desk.now_s += GossipLimits().checkpoint_interval_s
    assert [each.peer for each in again()] == [ANN]


def test_a_norm_beyond_what_its_parents_allow_is_not_held_against_who_sent_it() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.serve([x])
    admit = only(desk.fetch(x), Admit)
    assert incidents(desk.node.refused(admit.id, desk.now_s, reason="its norm", is_to_blame=False)) == []
    desk.announce(x)
    assert desk.asks(GetTransactions) == [], "it never comes in, even so"


def test_a_checkpoint_from_before_a_restart_stands_for_models_at_once() -> None:
    before = Desk()
    first, second, _ = pruned_chain(before)
    desk = Desk(checkpoints=[checkpoint_of(before.there, [first, second])])
    assert pruned_chain(desk)[0] == first
    assert desk.asks(GetCheckpoint) == []
    assert [each.norm for each in desk.admits] == [desk.there.genesis.bounds.max_norm]


def test_a_peer_that_cannot_be_reached_is_not_waited_for_where_another_has_pruned_the_model() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.write("ann", [x], 2)
    desk.serve([x])
    desk.answer(desk.ask(GetModel), ModelUnknown(pruned=True))
    ask = desk.ask(GetModel)
    assert ask.peer == BOB
    desk.node.failed(ask, desk.now_s, kind=Failure.UNREACHABLE)
    assert desk.ask(GetCheckpoint).peer == ANN


def test_a_model_that_cannot_be_kept_here_is_asked_for_again_and_nobody_is_blamed() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.serve([x])
    ask = desk.ask(GetModel)
    assert incidents(desk.node.failed(ask, desk.now_s, kind=Failure.LOCAL)) == []
    assert desk.model_of(x) in desk.node.inbound.fetches


def test_a_client_that_publishes_what_is_being_fetched_ends_the_fetch() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.serve([x])
    ask = desk.ask(GetModel)
    desk.here.node.admit(desk.there.transactions[x], None, norm=1.0)
    effects = desk.node.published(desk.bundle(x), desk.now_s)
    assert only(effects, DiscardModel).digest == desk.model_of(x)
    assert desk.node.model_progress(ask, desk.now_s) is None
    assert x not in desk.node.inbound.pending


def test_publishing_the_same_again_adds_nothing() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.here.node.admit(desk.there.transactions[x], None, norm=1.0)
    for _ in range(2):
        desk.node.published(desk.bundle(x), desk.now_s)
    assert len(desk.items) == 2


def test_what_is_published_is_told_to_every_peer_that_answers() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("ann", [x], 2)
    desk.here.node.admit(desk.there.transactions[x], None, norm=1.0)
    announcement = Announcement.of(desk.bundle(x))
    assert desk.node.published(desk.bundle(x), 0.0) == [
        Announce(ANN, announcement, True),
        Announce(BOB, announcement, True),
    ]
    desk.announce(y)
    desk.node.failed(desk.ask(GetTransactions), 0.0, kind=Failure.UNREACHABLE)
    desk.here.node.admit(desk.there.transactions[y], None, norm=1.0)
    announcement = Announcement.of(desk.bundle(y))
    assert desk.node.published(desk.bundle(y), 0.0) == [Announce(BOB, announcement, True)]


@pytest.mark.parametrize(("relay", "told"), [(True, [BOB]), (False, [])])
def test_a_relay_tells_those_that_do_not_have_it(*, relay: bool, told: list[Peer]) -> None:
    desk = Desk(relay=relay)
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.blobs.complete.add(desk.model_of(x))
    effects = desk.admit(only(desk.serve([x]), Admit))
    assert [effect.peer for effect in effects if isinstance(effect, Announce)] == told


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


@pytest.mark.parametrize(
    "answer",
    [
        Changes(tuple(TxId(f"{n:064x}") for n in range(1001)), "e.9", more=False),
        Changes((TxId("../../etc/passwd"),), "e.9", more=False),
        Changes((), "x" * 257, more=False),
        Changes((), "e.1", more=True),
        ReconcileAnswer(b""),
    ],
)
def test_an_answer_outside_the_protocol_is_invalid(answer: Response) -> None:
    desk = Desk()
    desk.now_s = 10.0
    pull = desk.asks(GetChanges)[0]
    assert incidents(desk.answer(pull, answer)) == [(pull.peer, Incident.INVALID)]


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


def test_equal_summaries_end_the_audit() -> None:
    desk = Desk(audits=True)
    ask = desk.audit(ANN)
    assert desk.answer(ask, SummaryAnswer(desk.summary(1))) == []
    assert desk.asks(ReconcileFrame) == []


def test_ledgers_that_differ_are_reconciled() -> None:
    desk = Desk(audits=True)
    x = desk.write("ann", [desk.ledger.id], 1)
    ask = desk.audit(ANN)
    effects = desk.answer(ask, SummaryAnswer(desk.summary(2)))
    assert incidents(effects) == [(ANN, Incident.DIFFERS)]
    theirs = ItemSet()
    theirs.add(0, desk.ledger.id)
    theirs.add(1, x)
    while frames := desk.asks(ReconcileFrame):
        (frame,) = frames
        assert isinstance(frame.request, ReconcileFrame)
        desk.answer(frame, ReconcileAnswer(answer(theirs, frame.request.frame, 65_536)))
        if asked := desk.asks(GetTransactions):
            assert asked[0].request == GetTransactions((x,))
            return
    pytest.fail("the reconciliation ended without a want")


def test_a_frame_of_nonsense_is_invalid() -> None:
    desk = Desk(limits=GossipLimits())
    desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(2)))
    effects = desk.answer(desk.ask(ReconcileFrame), ReconcileAnswer(b"\xff" * 7))
    assert incidents(effects) == [(ANN, Incident.INVALID)]


def signed_act(desk: Desk) -> SignedAct:
    act = Act(
        ledger=desk.ledger.id,
        number=1,
        kind=ActKind.ADD_MEMBER,
        subject="member:" + "a" * 64,
        created_at_ms=CREATED_AT_MS,
    )
    return sign_act(act, key_from_seed(1))


def test_acts_that_we_lack_are_asked_for_by_what_we_have() -> None:
    desk = Desk(audits=True)
    theirs = ActSet(desk.ledger.id)
    theirs.merge([signed_act(desk)])
    desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(1, acts_digest=theirs.digest)))
    ask = desk.ask(GetActs)
    assert ask.request == GetActs(())
    assert desk.answer(ask, Acts(theirs.besides(()))) == [KeepActs(ANN, theirs.besides(()))]
    assert desk.poll() == []


def test_acts_that_were_not_kept_are_asked_for_again() -> None:
    desk = Desk(audits=True)
    theirs = ActSet(desk.ledger.id)
    theirs.merge([signed_act(desk)])
    for _ in range(2):
        desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(1, acts_digest=theirs.digest)))
        assert desk.answer(desk.ask(GetActs), Acts(theirs.all())) == [KeepActs(ANN, theirs.all())]
    desk.acts.merge(theirs.all())
    desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(1, acts_digest=theirs.digest)))
    assert desk.asks(GetActs) == []


def test_an_act_of_another_ledger_is_invalid() -> None:
    desk = Desk(audits=True)
    desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(1, acts_digest=digest_of(b"more"))))
    other = sign_act(replace(signed_act(desk).act, ledger=TxId("2e" * 32)), key_from_seed(1))
    assert incidents(desk.answer(desk.ask(GetActs), Acts((other,)))) == [(ANN, Incident.INVALID)]


def test_a_forged_act_is_held_against_the_peer() -> None:
    desk = Desk(audits=True)
    assert incidents(desk.node.act_forged(ANN, desk.now_s, reason="forged")) == [(ANN, Incident.INVALID)]


def test_a_journal_that_went_back_in_time_is_noticed() -> None:
    desk = Desk(audits=True)
    desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(5)))
    desk.node.failed(desk.ask(ReconcileFrame), desk.now_s, kind=Failure.REFUSED)
    effects = desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(4)))
    assert (ANN, Incident.ROLLED_BACK) in incidents(effects)


def test_a_new_journal_may_hold_less() -> None:
    desk = Desk(audits=True)
    desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(5)))
    desk.node.failed(desk.ask(ReconcileFrame), desk.now_s, kind=Failure.REFUSED)
    effects = desk.answer(desk.audit(ANN), SummaryAnswer(desk.summary(4, epoch="1" * 32)))
    assert (ANN, Incident.ROLLED_BACK) not in incidents(effects)


def test_models_that_are_far_ahead_of_admission_wait_until_half_of_them_are_admitted() -> None:
    size = Desk().there.genesis.layout.nbytes
    desk = Desk(limits=GossipLimits(comparison_interval_s=1e9, models_per_peer=2, models_ahead_bytes=4 * size))
    desk.serve([desk.write(f"author {number}", [desk.ledger.id], number) for number in range(12)])
    admits: list[Admit] = []
    for _ in range(2):
        for ask in desk.asks(GetModel):
            assert isinstance(ask.request, GetModel)
            desk.blobs.complete.add(ask.request.digest)
            admits += [effect for effect in desk.answer(ask, ModelComplete()) if isinstance(effect, Admit)]
    (admit,) = admits
    assert desk.asks(GetModel) == [], "four are here, one of them on its way in"
    admit = only(desk.admit(admit), Admit)
    assert desk.asks(GetModel) == [], "three are here"
    desk.admit(admit)
    assert len(desk.asks(GetModel)) == 2


def test_a_model_is_fetched_however_many_are_here_when_none_of_those_can_be_admitted() -> None:
    size = Desk().there.genesis.layout.nbytes
    desk = Desk(limits=GossipLimits(comparison_interval_s=1e9, models_per_peer=1, models_ahead_bytes=size))
    parent = desk.write("ann", [desk.ledger.id], 1)
    child = desk.write("bob", [parent], 2)
    desk.blobs.complete.add(desk.model_of(child))
    desk.serve([parent, child])
    assert only(desk.fetch(parent), Admit).id == parent


# -- peers that come and go ---------------------------------------------------------------------------


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


def test_a_model_that_a_peer_was_to_serve_is_asked_of_another_when_it_leaves() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.announce_whole(x)
    desk.announce_whole(x, BOB)
    assert desk.ask(GetModel).peer == ANN
    desk.node.left(ANN, desk.now_s)
    assert desk.ask(GetModel).peer == BOB


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


def test_an_announcement_of_nothing_brings_a_comparison_also_while_one_is_running() -> None:
    desk = Desk()
    hint = only(desk.node.acts_kept()[:1], Announce)
    assert (hint.announcement, hint.is_new) == (Announcement(), False)
    desk.node.announced(ANN, hint.announcement, desk.now_s)
    first = desk.ask(GetSummary)
    assert first.peer == ANN
    desk.node.announced(ANN, hint.announcement, desk.now_s)
    assert desk.asks(GetSummary) == []
    desk.answer(first, SummaryAnswer(desk.summary(len(desk.ledger))))
    assert desk.asks(GetSummary) == [], "however often a peer announces nothing"
    desk.now_s += HURRIED_INTERVAL_S
    desk.answer(desk.ask(GetSummary), SummaryAnswer(desk.summary(len(desk.ledger))))
    desk.now_s += HURRIED_INTERVAL_S
    assert desk.asks(GetSummary) == []


def test_acts_are_asked_for_also_while_a_page_is_being_pulled() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.now_s = 10.0
    for ask in desk.asks(GetChanges):
        if ask.peer == ANN:
            desk.answer(ask, Changes((x,), "e.2", more=False))
    desk.node.announced(ANN, Announcement(), desk.now_s)
    ask = next(each for each in desk.asks(GetSummary) if each.peer == ANN)
    desk.answer(ask, SummaryAnswer(desk.summary(5, acts_digest=digest_of(b"others"))))
    requests = [effect.request for effect in desk.poll() if isinstance(effect, SendRequest)]
    assert [each for each in requests if isinstance(each, GetActs | ReconcileFrame)] == [GetActs(())]
