"""What is held against a peer, what is not, and what else comes of it."""

from dataclasses import replace

import pytest

from fl_core.dag.signature import public_key_of
from fl_core.sync.effects import (
    Admit,
    DiscardModel,
    Incident,
    SendRequest,
)
from fl_core.sync.messages import (
    Changes,
    GetChanges,
    GetModel,
    GetTransactions,
    ModelCorrupt,
    ReconcileAnswer,
    Response,
    TransactionBundle,
    Transactions,
)
from fl_core.types import TxId
from tests.builders import ISSUER, unreceipted
from tests.gossip_desk import ANN, BOB, Desk, incidents, only


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
    assert incidents(effects) == [(ANN, Incident.DROPPED)]
    assert {effect.digest for effect in effects if isinstance(effect, DiscardModel)} == {
        desk.model_of(x),
        desk.model_of(y),
    }
    desk.announce(x, BOB)
    desk.announce(y, BOB)
    assert desk.asks(GetTransactions) == []


def test_a_whole_model_that_does_not_hash_is_held_against_its_only_sender() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.serve([x])
    ask = desk.ask(GetModel)
    desk.node.model_progress(ask, 0.0)
    effects = desk.answer(ask, ModelCorrupt())
    assert (ANN, Incident.INVALID) in incidents(effects)
    assert (ANN, Incident.DROPPED) in incidents(effects), "nobody else has it"


def test_what_is_refused_here_is_held_against_who_issued_its_receipt_and_nobody_who_passes_it_or_its_children_on() -> (
    None
):
    desk, issuer = Desk(), public_key_of(ISSUER)
    desk.node.joined(issuer, desk.now_s)
    for number in range(20):
        x = desk.write(f"eve {number}", [desk.ledger.id], 1 + number)
        desk.serve([x], BOB)
        found = incidents(desk.node.refused(only(desk.fetch(x), Admit).id, desk.now_s, reason="a value is NaN"))
        assert (issuer, Incident.INVALID) in found
        child = desk.write("cat", [x], number)
        assert incidents(desk.serve([child], BOB)) == [(BOB, Incident.DROPPED)]
        assert incidents(desk.serve([desk.write("dan", [child], number)], BOB)) == [(BOB, Incident.DROPPED)]
    assert desk.node.is_banned(issuer)
    assert not desk.node.is_banned(BOB)


def test_a_step_beyond_what_its_parents_allow_is_not_held_against_who_sent_it() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.serve([x])
    admit = only(desk.fetch(x), Admit)
    assert incidents(desk.node.refused(admit.id, desk.now_s, reason="its norm", is_to_blame=False)) == []
    desk.announce(x)
    assert desk.asks(GetTransactions) == [], "it never comes in, even so"


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
