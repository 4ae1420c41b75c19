"""The asynchronous mode: schedules of a few clients that can be worked out by hand, and what must not change them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.types import JsonScalar, Vector32
from fl_simulator.engine.asynchronous import AsynchronousRun
from fl_simulator.engine.conditions import Conditions, ConditionsParams, Window
from fl_simulator.engine.evaluation import Interval, Schedule
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from fl_simulator.strategies.asynchronous.protocol import Assignment, AsynchronousStrategy
from fl_simulator.strategies.protocol import PersonalizedModels, State, Traffic
from tests.simulations import availability_trace, make_point_world, make_world, shown, two_camps

SLOW_LINKS: dict[str, JsonScalar] = {"latency.typical": 0.0, "up.typical": 10.0, "down.typical": 10.0}
"""Ten bytes a second: a message of ``Diary`` takes 1 s down and 2 s up."""


class Diary:
    """A strategy that gives everybody the origin and writes down who came when."""

    name = "diary"

    def __init__(self, world: World) -> None:
        self.traffic = Traffic()
        self.origin = np.zeros(world.trainer.layout.num_parameters, np.float32)
        self.lines: list[tuple[float, str, int]] = []
        self.results: list[list[float]] = []

    def begin_interval(self) -> None:
        self.traffic = Traffic()

    def question_bytes(self, client: int) -> int:
        return 0

    def start(self, client: int, *, now: float) -> Assignment:
        self.lines.append((now, "start", client))
        self.traffic += Traffic(down=10)
        return Assignment(self.origin, down_bytes=10, up_bytes=20)

    def finish(self, client: int, model: Vector32, *, now: float) -> None:
        self.lines.append((now, "finish", client))
        self.traffic += Traffic(up=20)
        self.results.append(model.tolist())

    def personal(self, clients: Sequence[int] | Clients, *, now: float) -> PersonalizedModels:
        return PersonalizedModels(self.origin[None], np.zeros(len(clients), np.int64))

    def groups(self) -> None:
        return None

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


def finishes(diary: Diary, client: int) -> list[float]:
    return [when for when, what, who in diary.lines if what == "finish" and who == client]


def diary_of(
    speeds: Sequence[float],
    *,
    duration_s: float = 12.0,
    params: dict[str, JsonScalar] | None = None,
    concurrency: int = 0,
    every_s: float | None = None,
    evaluated: str = "seen",
) -> tuple[Diary, list[Interval]]:
    """What happened among clients with two samples each and these speeds."""
    world = make_point_world([(1.0,)] * len(speeds), samples=[2] * len(speeds))
    conditions = Conditions(
        ConditionsParams.read({**SLOW_LINKS, **(params or {})}, owner="test"), world.seeds, len(speeds)
    )
    conditions.speeds = np.array(speeds)
    diary = Diary(world)
    schedule = Schedule(
        duration_s=duration_s, evaluate_every_s=every_s or duration_s, concurrency=concurrency, evaluated=evaluated
    )
    return diary, list(AsynchronousRun(world, diary, conditions, schedule).play())


def test_nobody_waits_for_a_slower_one() -> None:
    """1 s down, 2 samples at 1 or 2 a second, 2 s up: 5 s and 4 s for a training, one after the other."""
    diary, (interval,) = diary_of([1.0, 2.0])
    assert diary.lines == [
        (0.0, "start", 0), (0.0, "start", 1),
        (4.0, "finish", 1), (4.0, "start", 1),
        (5.0, "finish", 0), (5.0, "start", 0),
        (8.0, "finish", 1), (8.0, "start", 1),
        (10.0, "finish", 0), (10.0, "start", 0),
        (12.0, "finish", 1), (12.0, "start", 1),
    ]  # fmt: skip
    assert diary.results == [[0.5]] * 5  # half the way to 1
    assert interval.participants.tolist() == [0, 1]
    assert (interval.number, interval.virtual_time_s, interval.results, interval.lost) == (0, 12.0, 5, 0)
    assert interval.traffic == Traffic(up=5 * 20, down=7 * 10)


def test_latency_is_paid_by_the_question_the_answer_and_the_result() -> None:
    diary, _ = diary_of([1.0], params={"latency.typical": 0.5})
    assert diary.lines == [(0.5, "start", 0), (6.5, "finish", 0), (7.0, "start", 0)]


def test_each_moment_counts_what_came_since_the_one_before() -> None:
    _, intervals = diary_of([1.0, 2.0], every_s=5.0)
    assert [interval.virtual_time_s for interval in intervals] == [5.0, 10.0, 12.0]
    assert [interval.results for interval in intervals] == [2, 2, 1]
    assert [interval.participants.tolist() for interval in intervals] == [[0, 1], [0, 1], [1]]
    assert [interval.traffic.up for interval in intervals] == [40, 40, 20]
    assert [interval.evaluated.tolist() for interval in intervals] == [[0, 1]] * 3


def test_before_anybody_is_done_there_is_nobody_to_judge() -> None:
    _, (first, second) = diary_of([1.0, 2.0], every_s=3.0, duration_s=4.0)
    assert (first.evaluated.tolist(), first.evaluation) == ([], None)
    assert second.evaluated.tolist() == [1]


def test_everybody_may_be_judged_from_the_beginning() -> None:
    _, (first, _) = diary_of([1.0, 2.0], every_s=3.0, duration_s=4.0, evaluated="all")
    assert first.evaluated.tolist() == [0, 1]


def test_who_goes_before_its_result_has_arrived_has_lost_its_work(tmp_path: Path) -> None:
    """Client 0 needs 5 s: it goes at 5, comes at 7, is done at 12, is gone again at 13 and never comes back."""
    diary, (interval,) = diary_of(
        [1.0, 2.0], params=availability_trace(tmp_path, "0,0,5\n0,7,13\n1,2,100\n"), duration_s=14.0
    )
    assert [line for line in diary.lines if line[2] == 0] == [
        (0.0, "start", 0), (7.0, "start", 0), (12.0, "finish", 0), (12.0, "start", 0)
    ]  # fmt: skip
    assert finishes(diary, 1) == [6.0, 10.0, 14.0]
    assert interval.lost == 2


def test_a_question_of_one_who_goes_is_not_answered(tmp_path: Path) -> None:
    params = {**availability_trace(tmp_path, "0,0,0.4\n0,1,50\n"), "latency.typical": 0.5}
    diary, (interval,) = diary_of([1.0], params=params, duration_s=4.0)
    assert diary.lines == [(1.5, "start", 0)]
    assert interval.lost == 0


def test_what_fails_is_lost_and_begun_anew() -> None:
    diary, (interval,) = diary_of([1.0], params={"work.failures": 0.5}, duration_s=2000.0)
    starts = [when for when, what, _ in diary.lines if what == "start"]
    assert interval.lost + len(finishes(diary, 0)) == len(starts) - 1  # the last is under way
    assert abs(interval.lost / len(starts) - 0.5) < 0.1
    times = np.diff(starts).round(6)  # times add up with float64's rounding
    assert set(times[times >= 5]) == {5.0}  # what succeeds takes 5 s, what fails takes less
    assert (times < 5).sum() == interval.lost


def test_so_many_are_at_work_at_once_and_all_have_the_same_chance() -> None:
    diary, _ = diary_of([1.0] * 5, concurrency=2, duration_s=1000.0)
    at_work = 0
    for _, what, _ in diary.lines:
        at_work += 1 if what == "start" else -1
        assert 0 <= at_work <= 2
    counts = [len(finishes(diary, client)) for client in range(5)]
    assert sum(counts) == 400  # two at a time, 5 s each
    assert min(counts) > 60  # 80 in the mean


def test_whoever_is_idle_and_goes_is_asked_when_it_is_back(tmp_path: Path) -> None:
    lines = "0,0,100\n1,0,3\n1,6,100\n"
    diary, _ = diary_of([1.0, 1.0], params=availability_trace(tmp_path, lines), concurrency=1, duration_s=60.0)
    starts = [when for when, what, client in diary.lines if what == "start" and client == 1]
    assert all(not 3 <= when < 6 for when in starts)
    assert starts


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.25, 0.5, 1.0, 2.0]),  # with these all times are exact
            st.lists(st.tuples(st.integers(1, 9), st.integers(1, 15)), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 3),
)
def test_whatever_comes_and_goes_work_is_done_where_there_is_time_for_it(
    clients: list[tuple[float, list[tuple[int, int]]]], concurrency: int
) -> None:
    """Each client has a speed, and windows: a gap and a length, one after the other."""
    world = make_point_world([(1.0,)] * len(clients), samples=[2] * len(clients))
    conditions = Conditions(ConditionsParams.read(SLOW_LINKS, owner="test"), world.seeds, len(clients))
    conditions.speeds = np.array([speed for speed, _ in clients])
    windows: list[list[Window]] = []
    for _, gaps in clients:
        ends = np.cumsum([gap + length for gap, length in gaps]).tolist()
        windows.append([Window(end - length, end) for end, (_, length) in zip(ends, gaps, strict=True)])
    conditions._coming = [iter(each) for each in windows]
    diary = Diary(world)
    schedule = Schedule(duration_s=150.0, evaluate_every_s=150.0, concurrency=concurrency)
    (interval,) = AsynchronousRun(world, diary, conditions, schedule).play()
    done = lost = 0
    for client, (speed, _) in enumerate(clients):
        mine = [(when, what) for when, what, who in diary.lines if who == client]
        for place, (when, what) in enumerate(mine):
            if what == "finish":
                continue
            (window,) = [each for each in windows[client] if each.start <= when < each.end]
            following = mine[place + 1] if place + 1 < len(mine) else None
            end = when + 1 + 2 / speed + 2
            if end < window.end:
                assert following == (end, "finish")
                done += 1
            else:
                assert following is None or (following[1] == "start" and following[0] >= window.end)
                lost += 1
        if not concurrency:  # nobody who could begin waits
            assert {window.start for window in windows[client]} <= {when for when, what in mine if what == "start"}
    assert (interval.results, interval.lost) == (done, lost)


METHODS = ["fedasync", "fedbuff"]
CHURN: dict[str, JsonScalar] = {
    "speed": "uniform", "speed.typical": 30.0, "availability": "alternating", "availability.on_s": 20.0,
    "availability.off_s": 10.0, "membership.joining": 0.3, "membership.join_until_s": 20.0, "membership.leaving": 0.3,
    "membership.leave_from_s": 20.0, "membership.leave_until_s": 40.0, "work.jitter": 0.2, "work.failures": 0.1,
}  # fmt: skip


def churning(name: str, *, largest_batch: int = 0, concurrency: int = 0) -> AsynchronousRun:
    world = make_world(two_camps())
    conditions = Conditions(ConditionsParams.read(CHURN, owner="test"), world.seeds, world.num_clients)
    schedule = Schedule(
        duration_s=60.0,
        evaluate_every_s=7.0,
        largest_batch=largest_batch,
        concurrency=concurrency,
        evaluated="available",
    )
    return AsynchronousRun(world, ASYNCHRONOUS_STRATEGIES.build(name, {}, world), conditions, schedule)


def models_of(run: AsynchronousRun) -> np.ndarray:
    strategy = run.strategy
    assert isinstance(strategy, AsynchronousStrategy)
    personal = strategy.personal(range(6), now=60.0)
    return personal.models[personal.rows]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("concurrency", [0, 2])
def test_how_many_are_computed_together_changes_nothing(name: str, concurrency: int) -> None:
    whole = churning(name, concurrency=concurrency)
    expected = shown(list(whole.play()))
    for size in (1, 2):
        run = churning(name, largest_batch=size, concurrency=concurrency)
        assert shown(list(run.play())) == expected
        assert np.array_equal(models_of(run), models_of(whole))


def test_what_overlaps_is_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    train = World.train

    def counting(self: World, models: np.ndarray, clients: Sequence[int], **how: object) -> None:
        sizes.append(len(clients))
        train(self, models, clients, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(World, "train", counting)
    for interval in churning("fedasync").play():
        assert interval.number >= 0
    assert max(sizes) > 1
    together = sum(sizes)
    sizes.clear()
    run = churning("fedasync", largest_batch=1)
    results = sum(interval.results for interval in run.play())
    assert set(sizes) == {1}
    assert len(sizes) == results <= together  # nothing is computed that is lost


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("concurrency", [0, 2])
def test_a_resumed_run_goes_on_as_if_nothing_had_been(name: str, after: int, concurrency: int) -> None:
    whole = churning(name, concurrency=concurrency)
    intervals = shown(list(whole.play()))
    stopped = churning(name, concurrency=concurrency)
    going = stopped.play()
    before = [next(going) for _ in range(after)]
    kept = {key: value.copy() for key, value in stopped.state().items()}
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in kept.values())
    next(going)  # what happens later is none of the state's business
    resumed = churning(name, concurrency=concurrency)
    resumed.restore(kept)
    assert shown(before) + shown(list(resumed.play())) == intervals
    assert np.array_equal(models_of(resumed), models_of(whole))


def test_the_churn_of_these_tests_has_something_of_everything() -> None:
    intervals = list(churning("fedasync").play())
    assert sum(interval.lost for interval in intervals) > 3
    assert sum(interval.results for interval in intervals) > 30
    assert len({len(interval.evaluated) for interval in intervals}) > 2
