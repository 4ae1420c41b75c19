"""The judge of histories: what is lost, unexpected, recovered and partial, by hand."""

from pathlib import Path

import pytest

from tests.faults import check
from tests.faults.harness.history import History


def history_of(*events: tuple[str, str, str]) -> History:
    """Events as (what, server, transactions): ``("shown", "a", "g x y")``."""
    history = History()
    history.note("ledger", transaction="g")
    for what, server, transactions in events:
        if what == "shown":
            history.show(server, transactions.split())
        elif what == "power off":
            history.note(what, server=server)
        elif what == "attempt":
            history.attempt(transactions)
        else:
            history.acknowledge(transactions, server=server)
    return history


def test_all_that_was_acknowledged_and_is_shown_is_well() -> None:
    verdict = history_of(("attempt", "", "x"), ("ack", "a", "x"), ("shown", "a", "g x")).verdict()
    assert verdict.faults == ()
    assert (verdict.attempted, verdict.acknowledged, verdict.recovered) == (1, 1, 0)


def test_acknowledged_and_not_shown_is_lost() -> None:
    verdict = history_of(("attempt", "", "x"), ("ack", "a", "x"), ("shown", "a", "g")).verdict()
    assert verdict.lost == ("x",)


def test_shown_and_never_attempted_is_unexpected() -> None:
    assert history_of(("shown", "a", "g x")).verdict().unexpected == ("x",)


def test_shown_and_not_acknowledged_is_recovered() -> None:
    verdict = history_of(("attempt", "", "x"), ("shown", "a", "g x")).verdict()
    assert (verdict.recovered, verdict.faults) == (1, ())


def test_what_a_server_has_shown_it_must_show_again() -> None:
    verdict = history_of(("attempt", "", "x"), ("shown", "a", "g x"), ("shown", "a", "g")).verdict()
    assert verdict.lost == ("x",)


def test_what_another_server_acknowledged_may_come_later_but_must_come() -> None:
    early = (("attempt", "", "x"), ("ack", "a", "x"), ("shown", "b", "g"))
    late = (*early, ("shown", "a", "g x"), ("shown", "b", "g x"))
    assert history_of(*early).verdict().lost == ("x",)
    assert history_of(*early).verdict(everywhere=False).lost == ()
    assert history_of(*late).verdict().faults == ()


def test_an_acknowledgement_after_the_last_look_is_no_loss_for_that_server_alone() -> None:
    events = (("shown", "a", "g"), ("attempt", "", "x"), ("ack", "a", "x"))
    assert history_of(*events).verdict(everywhere=False).lost == ()


def test_an_acknowledgement_after_the_power_went_off_does_not_count_until_the_server_is_back() -> None:
    cut = (("attempt", "", "x"), ("attempt", "", "y"), ("ack", "a", "x"), ("power off", "a", ""), ("ack", "a", "y"))
    assert history_of(*cut, ("shown", "a", "g x")).verdict().faults == ()
    assert history_of(*cut, ("shown", "a", "g x")).verdict().acknowledged == 1
    assert history_of(*cut, ("shown", "a", "g y")).verdict().lost == ("x",)
    back = (*cut, ("shown", "a", "g x"), ("ack", "a", "y"), ("shown", "a", "g x"))
    assert history_of(*back).verdict().lost == ("y",)
    assert history_of(*cut[:3], ("power off", "b", ""), *cut[4:], ("shown", "a", "g x")).verdict().lost == ("y",)


@pytest.mark.parametrize(("shown", "status"), [("g x", 0), ("g", 1)])
def test_a_written_history_is_judged_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shown: str, status: int
) -> None:
    file = history_of(("attempt", "", "x"), ("ack", "a", "x"), ("shown", "a", shown)).write(tmp_path / "h.jsonl")
    monkeypatch.setattr("sys.argv", ["check", str(file)])
    assert check.main() == status
    assert '"attempted": 1' in capsys.readouterr().out
