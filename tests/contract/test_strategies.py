"""What every registered strategy promises, in rounds and without, on two camps that contradict each other."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Self

import numpy as np
import pytest

from fl_core.errors import ParameterError, UnknownNameError
from fl_core.types import JsonScalar, Vector32
from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from fl_simulator.strategies.asynchronous.protocol import Assignment, AsynchronousStrategy
from fl_simulator.strategies.clustered.clustering import in_order_of_occurrence
from fl_simulator.strategies.protocol import PersonalizedModels, State, Strategy, Traffic
from tests.simulations import make_world, two_camps

EVERYBODY = np.arange(6)
QUICK: Mapping[str, Mapping[str, JsonScalar]] = {
    "fedbuff": {"buffer": 3},
    "oracle-fedbuff": {"buffer": 3},
    "dag-acfl": {"selector": "least-squares"},
}
"""A buffer that six clients fill, and a selector that is fast."""


class InRounds:
    """A strategy in rounds; a step is who takes part in one."""

    steps: Sequence[Any] = [EVERYBODY, np.array([0, 1, 4]), np.array([2]), EVERYBODY]
    strategy: Strategy

    def __init__(
        self, name: str, params: Mapping[str, JsonScalar] | None = None, *, world: World | None = None
    ) -> None:
        self.world = world or make_world()
        self.strategy = STRATEGIES.build(name, params or QUICK.get(name, {}), self.world)
        self.done = 0

    def play(self, steps: Sequence[Any]) -> Self:
        for participants in steps:
            self.strategy.round(self.done, participants)
            self.done += 1
        return self

    def personal(self, clients: Sequence[int] = range(6)) -> PersonalizedModels:
        return self.strategy.personal(clients)

    def models(self) -> np.ndarray:
        personal = self.personal()
        return personal.models[personal.rows]

    def go_on(self, other: Self, state: State) -> None:
        self.strategy.restore(state)
        self.done = other.done


class WithoutRounds(InRounds):
    """An asynchronous strategy and the clients at work for it, a second from step to step."""

    strategy: AsynchronousStrategy  # type: ignore[assignment]

    def __init__(
        self, name: str, params: Mapping[str, JsonScalar] | None = None, *, world: World | None = None
    ) -> None:
        self.world = world or make_world()
        self.strategy = ASYNCHRONOUS_STRATEGIES.build(name, params or QUICK.get(name, {}), self.world)
        self.given: dict[int, Assignment] = {}
        self.trainings = [0] * len(EVERYBODY)
        self.now = 0.0

    def play(self, steps: Sequence[Any]) -> Self:
        for what, client in steps:
            if what == "start":
                self.given[client] = self.strategy.start(client, now=self.now)
            else:
                self.strategy.finish(client, self.trained(client), now=self.now)
            self.now += 1.0
        return self

    def trained(self, client: int) -> Vector32:
        given = self.given.pop(client)
        models = given.model[None].copy()
        number = self.trainings[client]
        self.world.train(models, [client], round_index=number, epochs=given.epochs, proximal=given.proximal)
        self.trainings[client] += 1
        return models[0]

    def personal(self, clients: Sequence[int] = range(6)) -> PersonalizedModels:
        return self.strategy.personal(clients, now=self.now)

    def go_on(self, other: Self, state: State) -> None:
        self.strategy.restore(state)
        self.given, self.trainings, self.now = dict(other.given), list(other.trainings), other.now
        self.strategy.begin_interval()


def in_turn(*, times: int) -> Sequence[tuple[str, int]]:
    """Everybody starts; then each finishes and starts again, the even clients twice as often."""
    steps = [("start", client) for client in range(6)]
    for number in range(times):
        for client in range(6):
            if client % 2 == 0 or number % 2:
                steps += [("finish", client), ("start", client)]
    return steps


WithoutRounds.steps = [*in_turn(times=8), ("start", 3), ("start", 3), ("finish", 3)]
"""Client 3's work is lost twice in the end."""

Begin = Callable[..., InRounds]
ALL = [pytest.param(partial(InRounds, name), id=name) for name in STRATEGIES]
ALL += [pytest.param(partial(WithoutRounds, name), id=f"{name} without rounds") for name in ASYNCHRONOUS_STRATEGIES]
every_strategy = pytest.mark.parametrize("begin", ALL)
without_rounds = pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)


def played(begin: Begin, world: World | None = None) -> InRounds:
    begun = begin(world=world)
    return begun.play(begun.steps)


@cache
def once(begin: Begin) -> tuple[np.ndarray, str]:
    """What an undisturbed strategy comes to: everybody's models and the groups; each is played once."""
    whole = played(begin)
    return whole.models(), str(whole.strategy.groups())


@every_strategy
def test_the_same_seed_gives_the_same_models_to_the_byte(begin: Begin) -> None:
    assert np.array_equal(played(begin).models(), once(begin)[0])


@every_strategy
def test_training_changes_what_clients_are_given(begin: Begin) -> None:
    assert not np.array_equal(begin().models(), once(begin)[0])


@every_strategy
def test_asking_for_models_changes_nothing(begin: Begin) -> None:
    asked = begin()
    for step in asked.steps:
        asked.models()
        asked.play([step])
    assert np.array_equal(asked.models(), asked.models())
    assert np.array_equal(asked.models(), once(begin)[0])


@every_strategy
@pytest.mark.parametrize("after", [0.0, 0.3, 0.8])
def test_a_restored_strategy_goes_on_as_if_nothing_had_been(begin: Begin, after: float) -> None:
    stopped, resumed = begin(), begin()
    middle = round(after * len(stopped.steps))
    stopped.play(stopped.steps[:middle])
    kept = {key: value.copy() for key, value in stopped.strategy.state().items()}
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in kept.values())
    resumed.go_on(stopped, kept)
    resumed.play(resumed.steps[middle:])
    if isinstance(stopped, WithoutRounds):
        stopped.strategy.begin_interval()
        stopped.play(stopped.steps[middle:])
        assert resumed.strategy.traffic == stopped.strategy.traffic
    models, groups = once(begin)
    assert np.array_equal(resumed.models(), models)
    assert str(resumed.strategy.groups()) == groups


@every_strategy
def test_a_state_is_a_copy_that_later_work_leaves_alone(begin: Begin) -> None:
    begun = begin()
    begun.play(begun.steps[: len(begun.steps) // 2])
    kept = begun.strategy.state()
    before = {key: value.copy() for key, value in kept.items()}
    begun.play(begun.steps[len(begun.steps) // 2 :])
    assert all(np.array_equal(before[key], kept[key]) for key in before)


@every_strategy
def test_models_are_float32_rows_and_groups_are_one_number_a_client(begin: Begin) -> None:
    begun = played(begin)
    personal = begun.personal([3, 0])
    assert personal.models.dtype == np.float32
    assert personal.models.ndim == 2
    assert personal.rows.shape == (2,)
    groups = begun.strategy.groups()
    assert groups is None or (groups.shape == (6,) and groups.dtype.kind == "i" and groups.min() >= -1)


@pytest.mark.parametrize("begin", [each for each in ALL if not str(each.id).startswith("oracle")])
def test_true_clusters_and_test_samples_decide_nothing(begin: Begin) -> None:
    blind = two_camps()
    blind.clusters[:] = 0
    for rows in blind.test:
        blind.images[rows] = 0.5
    assert np.array_equal(played(begin, make_world(blind)).models(), once(begin)[0])


@every_strategy
def test_it_bears_its_name_and_refuses_what_it_does_not_know(begin: partial[InRounds]) -> None:
    made = begin().strategy
    assert isinstance(made, Strategy | AsynchronousStrategy)
    assert made.name == begin.args[0]
    with pytest.raises(ParameterError, match="colour"):
        begin({"colour": 1})


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    for registry in (STRATEGIES, ASYNCHRONOUS_STRATEGIES):
        with pytest.raises(UnknownNameError, match=r"known: .*dag-acfl"):
            registry.read_params("fedavgg", {})


# -- without rounds --------------------------------------------------------------------------------------


@without_rounds
def test_a_model_that_was_given_stays_as_it_is(name: str) -> None:
    begun = WithoutRounds(name)
    given: list[tuple[Vector32, Vector32]] = []
    for step in begun.steps:
        begun.play([step])
        given += [(each.model, each.model.copy()) for each in begun.given.values()]
    assert all(np.array_equal(model, copy) for model, copy in given)


@without_rounds
def test_traffic_is_counted_from_the_interval_on(name: str) -> None:
    begun = WithoutRounds(name)
    question = begun.strategy.question_bytes(0)
    begun.play([("start", 0)])
    assignment = begun.given[0]
    assert begun.strategy.traffic == Traffic(up=question, down=assignment.down_bytes)
    begun.play([("finish", 0)])
    assert begun.strategy.traffic.up == question + assignment.up_bytes
    begun.strategy.begin_interval()
    assert begun.strategy.traffic == Traffic()
    begun.play(begun.steps)
    assert min(begun.strategy.traffic.up, begun.strategy.traffic.down) > 0


# -- in rounds -------------------------------------------------------------------------------------------


def accuracy(begun: InRounds) -> float:
    personal = begun.personal()
    return float(begun.world.evaluate(personal.models, personal.rows, EVERYBODY).accuracy.mean())


@pytest.mark.parametrize("name", ["local-only", "oracle"])
def test_where_camps_do_not_mix_everybody_learns(name: str) -> None:
    assert accuracy(InRounds(name).play([EVERYBODY] * 20)) > 0.9


@pytest.mark.parametrize("name", ["fedavg", "centralised"])
def test_one_model_for_two_camps_that_contradict_each_other_is_no_better_than_chance(name: str) -> None:
    assert accuracy(InRounds(name).play([EVERYBODY] * 20)) < 0.75


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("cfl", {"eps2": 0.7}),  # with a learning rate of 1, updates stay long for ever
        ("fesem", {"clusters": 2, "init": "kmeans"}),
        ("flexcfl", {"clusters": 2}),
        ("ifca", {"clusters": 2}),
    ],
)
def test_who_looks_for_two_camps_finds_them(name: str, params: dict[str, JsonScalar]) -> None:
    begun = InRounds(name, params).play([EVERYBODY] * 20)
    groups = begun.strategy.groups()
    assert groups is not None
    assert np.array_equal(in_order_of_occurrence(groups), begun.world.population.clusters)
    assert accuracy(begun) > 0.9
