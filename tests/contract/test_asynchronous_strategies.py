"""What every registered asynchronous strategy promises, on two camps that contradict each other."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from fl_core.errors import ParameterError, UnknownNameError
from fl_core.types import JsonScalar, Vector32
from fl_simulator.engine.world import World
from fl_simulator.strategies.asynchronous import (
    ASYNCHRONOUS_STRATEGIES,
    Assignment,
    AsynchronousStrategy,
)
from fl_simulator.strategies.protocol import Traffic
from tests.simulations import make_world, two_camps

EVERYBODY = range(6)
Steps = Sequence[tuple[str, int]]


def in_turn(*, times: int) -> Steps:
    """Everybody starts; then each finishes and starts again, the even clients twice as often."""
    steps = [("start", client) for client in EVERYBODY]
    for number in range(times):
        for client in EVERYBODY:
            if client % 2 == 0 or number % 2:
                steps += [("finish", client), ("start", client)]
    return steps


STEPS: Steps = [*in_turn(times=8), ("start", 3), ("start", 3), ("finish", 3)]
"""Client 3's work is lost twice in the end."""

DEFAULTS: Mapping[str, Mapping[str, JsonScalar]] = {"fedbuff": {"buffer": 3}, "dag-acfl": {"selector": "least-squares"}}
"""A buffer that six clients fill, and a selector that is fast."""


class Played:
    """A strategy and the clients at work for it, a second from step to step."""

    def __init__(
        self, name: str, params: Mapping[str, JsonScalar] | None = None, *, world: World | None = None
    ) -> None:
        self.world = world or make_world()
        self.strategy = ASYNCHRONOUS_STRATEGIES.build(name, params or DEFAULTS.get(name, {}), self.world)
        self.given: dict[int, Assignment] = {}
        self.round_indices = [0] * len(EVERYBODY)
        self.now = 0.0

    def play(self, steps: Steps) -> "Played":
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
        self.world.train(
            models, [client], round_index=self.round_indices[client], epochs=given.epochs, proximal=given.proximal
        )
        self.round_indices[client] += 1
        return models[0]

    def models(self) -> np.ndarray:
        personal = self.strategy.personal(EVERYBODY, now=self.now)
        return personal.models[personal.rows]


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_the_same_seed_gives_the_same_models_to_the_byte(name: str) -> None:
    assert np.array_equal(Played(name).play(STEPS).models(), Played(name).play(STEPS).models())


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_work_changes_what_clients_are_given(name: str) -> None:
    assert not np.array_equal(Played(name).models(), Played(name).play(STEPS).models())


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_asking_for_models_changes_nothing(name: str) -> None:
    asked = Played(name)
    for step in STEPS:
        asked.models()
        asked.play([step])
    assert np.array_equal(asked.models(), asked.models())
    assert np.array_equal(asked.models(), Played(name).play(STEPS).models())


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
@pytest.mark.parametrize("after", [0, 9, 31])
def test_a_restored_strategy_goes_on_as_if_nothing_had_been(name: str, after: int) -> None:
    stopped = Played(name).play(STEPS[:after])
    kept = {key: value.copy() for key, value in stopped.strategy.state().items()}
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in kept.values())
    resumed = Played(name)
    resumed.strategy.restore(kept)
    resumed.given, resumed.round_indices, resumed.now = dict(stopped.given), list(stopped.round_indices), stopped.now
    whole = Played(name).play(STEPS[:after])
    for each in (whole, resumed):
        each.strategy.begin_interval()
        each.play(STEPS[after:])
    assert np.array_equal(resumed.models(), whole.models())
    assert resumed.strategy.traffic == whole.strategy.traffic
    assert str(resumed.strategy.groups()) == str(whole.strategy.groups())


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_a_state_is_a_copy_that_later_work_leaves_alone(name: str) -> None:
    played = Played(name).play(STEPS[:20])
    kept = played.strategy.state()
    before = {key: value.copy() for key, value in kept.items()}
    played.play(STEPS[20:])
    assert all(np.array_equal(before[key], kept[key]) for key in before)


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_a_model_that_was_given_stays_as_it_is(name: str) -> None:
    played = Played(name)
    given: list[tuple[Vector32, Vector32]] = []
    for step in STEPS:
        played.play([step])
        given += [(each.model, each.model.copy()) for each in played.given.values()]
    assert all(np.array_equal(model, copy) for model, copy in given)


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_models_are_float32_rows_and_groups_are_one_number_a_client(name: str) -> None:
    strategy = Played(name).play(STEPS).strategy
    personal = strategy.personal([3, 0], now=1000.0)
    assert personal.models.dtype == np.float32
    assert personal.models.ndim == 2
    assert personal.rows.shape == (2,)
    groups = strategy.groups()
    assert groups is None or (groups.shape == (6,) and groups.dtype.kind == "i" and groups.min() >= -1)


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_traffic_is_counted_from_the_interval_on(name: str) -> None:
    played = Played(name)
    question = played.strategy.question_bytes(0)
    played.play([("start", 0)])
    assignment = played.given[0]
    assert played.strategy.traffic == Traffic(up=question, down=assignment.down_bytes)
    played.play([("finish", 0)])
    assert played.strategy.traffic.up == question + assignment.up_bytes
    played.strategy.begin_interval()
    assert played.strategy.traffic == Traffic()
    played.play(STEPS)
    traffic = played.strategy.traffic
    assert min(traffic.up, traffic.down) > 0


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_true_clusters_and_test_samples_decide_nothing(name: str) -> None:
    honest, blind = two_camps(), two_camps()
    blind.clusters[:] = 0
    for rows in blind.test:
        blind.images[rows] = 0.5
    one, other = (Played(name, world=make_world(people)).play(STEPS) for people in (honest, blind))
    assert np.array_equal(one.models(), other.models())


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_it_bears_its_name_and_refuses_what_it_does_not_know(name: str) -> None:
    made = ASYNCHRONOUS_STRATEGIES.build(name, {}, make_world())
    assert isinstance(made, AsynchronousStrategy)
    assert made.name == name
    with pytest.raises(ParameterError, match="colour"):
        ASYNCHRONOUS_STRATEGIES.build(name, {"colour": 1}, make_world())


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"known: .*fedbuff"):
        ASYNCHRONOUS_STRATEGIES.build("fedbuf", {}, make_world())
