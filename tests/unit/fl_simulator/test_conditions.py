"""Who is how fast and when, in virtual time."""

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.types import JsonScalar
from fl_simulator.engine.conditions import DISTRIBUTIONS, Conditions, ConditionsParams, Window
from fl_simulator.errors import ScenarioError
from fl_simulator.seeds import Seeds


def conditions(params: Mapping[str, JsonScalar] | None = None, *, seed: int = 0, clients: int = 4) -> Conditions:
    return Conditions(ConditionsParams.read(params or {}, owner="[asynchronous]"), Seeds(seed), clients)


def windows(of: Conditions, client: int, *, until: float) -> list[Window]:
    found: list[Window] = []
    at = 0.0
    while at < until and (window := of.window(client, at)) is not None:
        found.append(window)
        at = window.end
    return found


def test_unless_told_everybody_is_alike_and_always_there() -> None:
    made = conditions()
    assert made.compute_s(2, 500, round_index=0) == 0.5
    assert made.upload_s(2, 1_250_000) == 1.05
    assert made.download_s(2, 1_250_000) == 0.55
    assert made.window(2, 1e9) == Window(0.0, math.inf)
    assert made.failure(2, round_index=7) is None


def test_uniform_speeds_lie_between_two_of_which_one_is_ratio_times_the_other() -> None:
    speeds = conditions({"speed": "uniform", "speed.typical": 550.0, "speed.ratio": 10}, clients=2000).speeds
    assert 100 <= speeds.min() < 102
    assert 998 < speeds.max() <= 1000
    assert abs(speeds.mean() - 550) < 20  # the mean's standard deviation is 260 / √2000 = 6


def test_lognormal_speeds_have_the_typical_one_as_median() -> None:
    speeds = conditions({"speed": "lognormal", "speed.typical": 300.0, "speed.sigma": 0.5}, clients=2000).speeds
    assert abs(np.log(speeds / 300).mean()) < 0.05  # 0.5 / √2000 = 0.011
    assert abs(np.log(speeds / 300).std() - 0.5) < 0.05


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_what_is_drawn_of_one_figure_changes_nothing_of_another(name: str) -> None:
    plain, other = conditions({"speed": "uniform"}), conditions({"speed": "uniform", "up": name})
    assert np.array_equal(plain.speeds, other.speeds)
    assert plain.speeds.min() > 0


def test_jitter_differs_from_training_to_training_and_is_the_same_when_asked_again() -> None:
    made = conditions({"work.jitter": 0.3})
    times = [made.compute_s(1, 1000, round_index=number) for number in range(5)]
    assert len(set(times)) == 5
    assert times == [conditions({"work.jitter": 0.3}).compute_s(1, 1000, round_index=number) for number in range(5)]


def test_trainings_fail_as_often_as_said() -> None:
    made = conditions({"work.failures": 0.25})
    failures = [made.failure(client, round_index=number) for client in range(4) for number in range(500)]
    failed = [share for share in failures if share is not None]
    assert abs(len(failed) / 2000 - 0.25) < 0.04  # four standard deviations of √(.25 × .75 / 2000) = 0.0097
    assert all(0 <= share < 1 for share in failed)
    assert failures[7] == made.failure(0, round_index=7)


def test_clients_come_and_go_in_turn_for_exponential_times() -> None:
    made = conditions({"availability": "alternating", "availability.on_s": 30.0, "availability.off_s": 10.0})
    mine = windows(made, 3, until=40_000.0)
    assert all(first.end <= second.start for first, second in pairwise(mine))
    reachable = sum(window.end - window.start for window in mine) / mine[-1].end
    assert abs(reachable - 0.75) < 0.04
    assert abs(np.mean([window.end - window.start for window in mine]) - 30) < 4  # 30 / √1000 = 0.95


@given(st.lists(st.floats(0, 5000), max_size=20), st.integers(0, 3))
def test_the_order_of_asking_changes_no_window(times: list[float], client: int) -> None:
    params: dict[str, JsonScalar] = {
        "availability": "alternating",
        "membership.joining": 0.5,
        "membership.leaving": 0.5,
    }
    often = conditions(params)
    for at in times:
        window = often.window(client, at)
        assert window == conditions(params).window(client, at)
        assert window is None or window.end > at


def test_some_join_late_and_some_leave_for_good() -> None:
    made = conditions(
        {
            "membership.joining": 0.5, "membership.join_from_s": 10.0, "membership.join_until_s": 20.0,
            "membership.leaving": 0.25, "membership.leave_from_s": 100.0, "membership.leave_until_s": 200.0,
        },
        clients=8,
    )  # fmt: skip
    lives = [made.window(client, 0.0) for client in range(8)]
    assert sum(life is not None and 10 <= life.start < 20 for life in lives) == 4
    assert sum(life is not None and life.start == 0 for life in lives) == 4
    leaving = [client for client, life in enumerate(lives) if life is not None and 100 <= life.end < 200]
    assert len(leaving) == 2
    assert made.window(leaving[0], 200.0) is None


def test_who_would_leave_before_joining_never_comes() -> None:
    made = conditions(
        {
            "membership.joining": 1.0, "membership.join_from_s": 50.0, "membership.join_until_s": 50.0,
            "membership.leaving": 1.0, "membership.leave_from_s": 40.0, "membership.leave_until_s": 40.0,
        }
    )  # fmt: skip
    assert made.window(0, 0.0) is None


def trace(folder: Path, *lines: str) -> dict[str, JsonScalar]:
    file = folder / "trace.csv"
    file.write_text("\n".join(["client,from_s,to_s", *lines, ""]), encoding="utf-8")
    return {"availability": "trace", "availability.path": str(file)}


def test_a_trace_says_who_is_there(tmp_path: Path) -> None:
    made = conditions(trace(tmp_path, "1,50,60", "0,0,10", "0,20,30.5", "0,10,12", "1,0,5"))
    assert windows(made, 0, until=1000) == [(0, 12), (20, 30.5)]
    assert windows(made, 1, until=1000) == [(0, 5), (50, 60)]
    assert made.window(2, 0.0) is None
    assert made.window(0, 15.0) == (20, 30.5)
    assert made.window(0, 30.5) is None


@pytest.mark.parametrize("line", ["4,0,1", "-1,0,1", "0,5,5", "0,-1,5", "0,1", "0,1,2,3", "x,1,2", "0,nan,2", ""])
def test_a_trace_that_cannot_be_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"trace\.csv, line 3"):
        conditions(trace(tmp_path, "0,0,1", line))


def test_a_trace_without_its_header_or_without_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text("0,1,2\n", encoding="utf-8")
    for name, words in (("bare.csv", "line 1: the header is"), ("none.csv", "cannot be read")):
        with pytest.raises(ScenarioError, match=words):
            conditions({"availability": "trace", "availability.path": str(tmp_path / name)})
