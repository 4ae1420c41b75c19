"""The acts that a server holds: merged by signature, compared by digest."""

import pytest

from fl_core.dag.acts import Act, ActKind, SignedAct, sign_act
from fl_core.errors import ActInvalidError
from fl_core.sync import act_set
from fl_core.sync.act_set import ActSet
from fl_core.types import TxId
from tests.builders import CREATED_AT_MS, key_from_seed

LEDGER = TxId("a" * 64)
ANN, BOB = key_from_seed(1), key_from_seed(2)


def act(letter: str, *, ledger: TxId = LEDGER) -> Act:
    return Act(
        ledger=ledger,
        number=1,
        kind=ActKind.QUARANTINE,
        subject=f"update:{letter * 64}",
        created_at_ms=CREATED_AT_MS,
    )


def holding(*acts: SignedAct) -> ActSet:
    held = ActSet(LEDGER)
    held.merge(acts)
    return held


def test_two_that_hold_the_same_have_one_digest_whatever_the_order() -> None:
    one, two = sign_act(act("1"), ANN), sign_act(act("2"), ANN)
    assert holding(one, two).digest == holding(two, one).digest != holding(one).digest


def test_signatures_are_merged() -> None:
    held = holding(sign_act(act("1"), ANN))
    assert held.merge([sign_act(act("1"), BOB)]) == 1
    assert held.merge([sign_act(act("1"), ANN)]) == 0
    assert held.digest == holding(sign_act(act("1"), ANN, BOB)).digest


def test_what_lacks_or_has_other_signers_is_answered() -> None:
    here = holding(sign_act(act("1"), ANN, BOB), sign_act(act("2"), ANN), sign_act(act("3"), ANN))
    there = holding(sign_act(act("1"), ANN), sign_act(act("2"), ANN))
    lacking = here.besides(there.digests())
    assert {each.act.subject[-1] for each in lacking} == {"1", "3"}
    there.merge(lacking)
    assert there.digest == here.digest


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(act_set, "MAX_ANSWER_BYTES", 1)
    assert len(holding(sign_act(act("1"), ANN), sign_act(act("2"), ANN)).besides(())) == 1


def test_an_act_of_another_ledger_is_refused() -> None:
    with pytest.raises(ActInvalidError, match="another ledger"):
        holding(sign_act(act("1", ledger=TxId("b" * 64)), ANN))


def test_a_refused_act_is_not_asked_for_again_until_another_is_kept() -> None:
    here, there = holding(sign_act(act("1"), ANN)), holding(sign_act(act("1"), ANN), sign_act(act("2"), BOB))
    (refused,) = there.besides(here.digests())
    here.refuse(refused)
    assert there.besides(here.digests()) == ()
    here.merge([sign_act(act("3"), ANN)])
    assert there.besides(here.digests()) == (refused,), "who may sign can be another now"
