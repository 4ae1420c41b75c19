"""What two servers compare, and what they ask each other where they differ: transactions and acts."""

from dataclasses import replace

import pytest

from fl_core.dag.acts import Act, ActKind, SignedAct, sign_act
from fl_core.sync.act_set import ActSet
from fl_core.sync.effects import (
    Announce,
    Failure,
    Incident,
    KeepActs,
    SendRequest,
)
from fl_core.sync.items import ItemSet
from fl_core.sync.journal_pull import HURRIED_INTERVAL_S
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Acts,
    Announcement,
    Changes,
    GetActs,
    GetChanges,
    GetSummary,
    GetTransactions,
    ReconcileAnswer,
    ReconcileFrame,
    SummaryAnswer,
)
from fl_core.sync.reconcile import answer
from fl_core.types import TxId, digest_of
from tests.builders import CREATED_AT_MS, key_from_seed
from tests.gossip_desk import ANN, Desk, incidents, only


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
