"""Evidence that peers have archived: one that kept it is asked first, then a member's checkpoint stands for it."""

from dataclasses import replace

import pytest

from fl_core.dag.figures import Figures
from fl_core.sync.effects import Admit, Incident
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    CheckpointAnswer,
    GetCheckpoint,
    GetModel,
    GetTransactions,
    ModelComplete,
    Peer,
    TransactionBundle,
    Transactions,
)
from tests.builders import model
from tests.checkpoints import checkpoint_of
from tests.gossip_desk import ANN, BOB, Desk, incidents, only

EVIDENCE = b'{"evidence":1}'


def archived(desk: Desk) -> tuple[TransactionBundle, TransactionBundle]:
    """An update of the peers with its evidence, and as it comes from one that has archived that."""
    transaction = desk.there.draft("ann", [desk.ledger.id], model(1), attachment=EVIDENCE)
    desk.there.node.admit(transaction, None, figures=Figures(desk.there.norm(model(1))))
    desk.there.transactions[transaction.id] = transaction
    whole = TransactionBundle(transaction, EVIDENCE)
    return whole, replace(whole, attachment=b"")


def sends(desk: Desk, bundle: TransactionBundle) -> Peer:
    """Who is asked for the transaction sends this; returns who that was."""
    ask = desk.ask(GetTransactions)
    desk.answer(ask, Transactions((bundle,)))
    return ask.peer


def test_a_checkpoint_is_asked_for_and_then_the_update_comes_without_its_evidence() -> None:
    desk = Desk()
    whole, without = archived(desk)
    desk.announce(whole.id)
    assert sends(desk, without) == ANN
    assert whole.id not in desk.node.inbound.pending
    ask = desk.ask(GetCheckpoint)
    assert ask.peer == ANN
    desk.answer(ask, CheckpointAnswer(checkpoint_of(desk.there, [whole.id])))
    desk.announce(whole.id)
    sends(desk, without)
    fetch = desk.ask(GetModel)
    desk.blobs.complete.add(desk.model_of(whole.id))
    admit = only(desk.answer(fetch, ModelComplete()), Admit)
    assert (admit.bundle, admit.norm) == (without, None), "its model is had all the same"
    assert desk.asks(GetCheckpoint) == []


def test_a_peer_that_kept_the_evidence_is_asked_before_any_checkpoint() -> None:
    desk = Desk()
    whole, without = archived(desk)
    desk.announce(whole.id)
    desk.announce(whole.id, BOB)
    assert [sends(desk, without), sends(desk, whole)] == [ANN, BOB]
    assert not any(isinstance(each.request, GetCheckpoint) for each in desk.requests)
    held = desk.node.inbound.pending.get(whole.id)
    assert held is not None
    assert held.bundle == whole


def test_what_no_checkpoint_has_below_its_horizon_does_not_come_in() -> None:
    desk = Desk()
    whole, without = archived(desk)
    desk.announce(whole.id)
    sends(desk, without)
    desk.answer(desk.ask(GetCheckpoint), CheckpointAnswer(checkpoint_of(desk.there, [])))
    desk.announce(whole.id)
    sends(desk, without)
    assert whole.id not in desk.node.inbound.pending
    assert desk.asks(GetCheckpoint) == [], "it is not asked for again at once"
    desk.now_s += GossipLimits().checkpoint_interval_s
    desk.announce(whole.id)
    sends(desk, without)
    assert desk.ask(GetCheckpoint).peer == ANN


def test_a_checkpoint_from_before_a_restart_stands_for_it_at_once() -> None:
    before = Desk()
    whole, without = archived(before)
    desk = Desk(checkpoints=[checkpoint_of(before.there, [whole.id])])
    desk.announce(whole.id)
    sends(desk, without)
    assert whole.id in desk.node.inbound.pending


@pytest.mark.parametrize("attachment", [None, b"{}"])
def test_other_evidence_or_none_is_still_held_against_the_peer(attachment: bytes | None) -> None:
    desk = Desk()
    whole, _ = archived(desk)
    desk.announce(whole.id)
    ask = desk.ask(GetTransactions)
    effects = desk.answer(ask, Transactions((replace(whole, attachment=attachment),)))
    assert (ANN, Incident.INVALID) in incidents(effects)


def test_an_empty_attachment_of_an_update_that_names_none_is_held_against_the_peer() -> None:
    desk = Desk()
    bare = desk.bundle(desk.write("ann", [desk.ledger.id], 1))
    desk.announce(bare.id)
    effects = desk.answer(desk.ask(GetTransactions), Transactions((replace(bare, attachment=b""),)))
    assert (ANN, Incident.INVALID) in incidents(effects)
