"""Rounds in virtual time: how long they last, who is dropped, and that nothing else differs from rounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fl_core.types import JsonScalar
from fl_simulator.engine.conditions import Conditions, ConditionsParams
from fl_simulator.engine.evaluation import Interval, Schedule
from fl_simulator.engine.rounds import participants
from fl_simulator.engine.timed_rounds import TimedRounds
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import PersonalizedModels, State, Strategy, Traffic
from tests.simulations import availability_trace, make_point_world, make_world, shown, two_camps


class Diary:
    """A strategy that writes down its rounds; each participant is sent 10 bytes and sends 20."""

    name = "diary"

    def __init__(self, world: World) -> None:
        self.origin = np.zeros(world.trainer.layout.num_parameters, np.float32)
        self.rounds: list[list[int]] = []

    def round(self, number: int, participants: Clients) -> Traffic:
        assert number == len(self.rounds)
        self.rounds.append(participants.tolist())
        return Traffic(up=20 * len(participants), down=10 * len(participants))

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        return PersonalizedModels(self.origin[None], np.zeros(len(clients), np.int64))

    def groups(self) -> None:
        return None

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


def diary_of(
    speeds: Sequence[float],
    params: Mapping[str, JsonScalar] | None = None,
    *,
    duration_s: float,
    every_s: float | None = None,
    deadline_s: float = 0.0,
    participation: float = 1.0,
    evaluated: str = "seen",
) -> tuple[list[list[int]], list[Interval]]:
    """Clients with two samples each and these speeds; a message takes a second, whatever its size."""
    world = make_point_world([(1.0,)] * len(speeds), samples=[2] * len(speeds))
    plain: dict[str, JsonScalar] = {"latency.typical": 1.0, "up.typical": 1e30, "down.typical": 1e30}
    conditions = Conditions(ConditionsParams.read({**plain, **(params or {})}, owner="test"), world.seeds, len(speeds))
    conditions.speeds = np.array(speeds)
    diary = Diary(world)
    schedule = Schedule(
        duration_s=duration_s, evaluate_every_s=every_s or duration_s, deadline_s=deadline_s, evaluated=evaluated
    )
    made = TimedRounds(world, diary, conditions, schedule, participation=participation)
    return diary.rounds, list(made.play())


def test_a_round_lasts_as_long_as_its_slowest_participant() -> None:
    """1 s down, 2 samples at 1 or 2 a second, 1 s up: 4 s, however fast the other is."""
    rounds, intervals = diary_of([1.0, 2.0], duration_s=12.0, every_s=5.0)
    assert rounds == [[0, 1]] * 3
    assert [interval.virtual_time_s for interval in intervals] == [5.0, 10.0, 12.0]
    assert [interval.results for interval in intervals] == [2, 2, 2]
    assert [interval.traffic for interval in intervals] == [Traffic(up=40, down=20)] * 3


def test_between_two_rounds_nothing_changes() -> None:
    _, intervals = diary_of([1.0, 2.0], duration_s=9.0, every_s=3.0)
    assert [interval.results for interval in intervals] == [0, 2, 2]
    assert [interval.evaluated.tolist() for interval in intervals] == [[], [0, 1], [0, 1]]
    assert intervals[0].evaluation is None


def test_who_is_late_is_dropped_at_the_deadline() -> None:
    """With 3.5 s there is time for the fast one only (3 s), and every round takes 3.5 s."""
    rounds, (interval,) = diary_of([1.0, 2.0], duration_s=7.0, deadline_s=3.5)
    assert rounds == [[1], [1]]
    assert interval.lost == 2
    assert interval.traffic.up == 40


def test_a_round_in_which_all_are_late_changes_nothing() -> None:
    rounds, (interval,) = diary_of([1.0, 2.0], duration_s=7.0, deadline_s=2.0)
    assert rounds == []
    assert (interval.lost, interval.results, interval.evaluation) == (6, 0, None)
    assert interval.traffic.up == 0
    assert interval.traffic.down > 0


def test_who_goes_in_the_middle_is_not_waited_for_any_longer(tmp_path: Path) -> None:
    """The slow one is gone after 3.5 s and back at 6 s; the fast one needs 3 s."""
    rounds, (interval,) = diary_of(
        [1.0, 2.0], availability_trace(tmp_path, "0,0,3.5\n0,6,100\n1,0,100\n"), duration_s=10.5
    )
    assert rounds == [[1], [1], [0, 1]]  # until 3.5, until 6.5, until 10.5
    assert interval.lost == 1


def test_a_round_begins_when_somebody_comes(tmp_path: Path) -> None:
    rounds, intervals = diary_of([2.0, 2.0], availability_trace(tmp_path, "0,5,9\n"), duration_s=20.0, every_s=4.0)
    assert rounds == [[0]]
    assert [interval.results for interval in intervals] == [0, 1, 0, 0, 0]
    assert [interval.lost for interval in intervals] == [0, 0, 1, 0, 0]  # at 9


def test_who_is_evaluated_may_be_who_is_reachable(tmp_path: Path) -> None:
    trace = availability_trace(tmp_path, "0,0,6\n1,0,100\n")
    _, intervals = diary_of([2.0, 2.0], trace, duration_s=8.0, every_s=4.0, evaluated="available")
    assert [interval.evaluated.tolist() for interval in intervals] == [[0, 1], [1]]


def test_participants_are_drawn_of_those_who_are_there(tmp_path: Path) -> None:
    lines = "".join(f"{client},0,1000\n" for client in (0, 2, 3, 5, 6))
    rounds, _ = diary_of([2.0] * 8, availability_trace(tmp_path, lines), duration_s=120.0, participation=0.25)
    assert len(rounds) == 40
    assert all(len(each) == 2 for each in rounds)
    assert {client for each in rounds for client in each} == {0, 2, 3, 5, 6}


def test_fewer_than_wanted_are_better_than_none(tmp_path: Path) -> None:
    rounds, _ = diary_of([2.0] * 8, availability_trace(tmp_path, "3,0,100\n"), duration_s=4.0, participation=0.5)
    assert rounds == [[3]]


def test_with_everybody_there_they_are_the_rounds_without_a_clock() -> None:
    world, other = make_world(), make_world()
    params = ConditionsParams.read({"latency.typical": 0.0, "speed.typical": 30.0}, owner="test")
    timed = STRATEGIES.build("fedavg", {}, world)
    schedule = Schedule(duration_s=5.5, evaluate_every_s=5.5)
    conditions = Conditions(params, world.seeds, 6)
    made = TimedRounds(world, timed, conditions, schedule, participation=0.5)
    (interval,) = made.play()
    assert interval.results == 5 * 3
    plain = STRATEGIES.build("fedavg", {}, other)
    for number in range(5):
        plain.round(number, participants(other, number, participation=0.5))
    assert np.array_equal(timed.personal([0]).models, plain.personal([0]).models)


CHURN: dict[str, JsonScalar] = {
    "speed": "uniform", "speed.typical": 30.0, "availability": "alternating", "availability.on_s": 20.0,
    "availability.off_s": 10.0, "work.jitter": 0.2, "work.failures": 0.1,
}  # fmt: skip


def churning(name: str) -> TimedRounds:
    world = make_world(two_camps())
    conditions = Conditions(ConditionsParams.read(CHURN, owner="test"), world.seeds, world.num_clients)
    strategy: Strategy = STRATEGIES.build(name, {"selector": "least-squares"} if name == "dag-acfl" else {}, world)
    schedule = Schedule(duration_s=20.0, evaluate_every_s=3.0, deadline_s=2.0)
    return TimedRounds(world, strategy, conditions, schedule, participation=0.7)


@pytest.mark.parametrize("name", ["fedavg", "dag-acfl", "ifca"])
def test_a_resumed_run_goes_on_as_if_nothing_had_been(name: str) -> None:
    whole, stopped, resumed = (churning(name) for _ in range(3))
    intervals = shown(list(whole.play()))
    going = stopped.play()
    before = [next(going) for _ in range(3)]
    kept = {key: value.copy() for key, value in stopped.state().items()}
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in kept.values())
    next(going)
    resumed.restore(kept)
    assert shown(before) + shown(list(resumed.play())) == intervals
