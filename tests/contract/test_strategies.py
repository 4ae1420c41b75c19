"""What every registered strategy promises, on two camps that contradict each other."""

from collections.abc import Mapping

import numpy as np
import pytest

from fl_core.errors import ParameterError, UnknownNameError
from fl_core.types import JsonScalar
from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES, Strategy
from fl_simulator.strategies.clustered.clustering import in_order_of_occurrence
from tests.simulations import make_world, two_camps

EVERYBODY = np.arange(6)
ROUNDS = [EVERYBODY, np.array([0, 1, 4]), np.array([2]), EVERYBODY]


def played(
    name: str,
    params: Mapping[str, JsonScalar] | None = None,
    *,
    world: World | None = None,
    rounds: list[np.ndarray] | None = None,
) -> Strategy:
    strategy = STRATEGIES.build(name, params or {}, world or make_world())
    for number, participants in enumerate(ROUNDS if rounds is None else rounds):
        strategy.round(number, participants)
    return strategy


def models_of(strategy: Strategy) -> np.ndarray:
    personal = strategy.personal(EVERYBODY)
    return personal.models[personal.rows]


def accuracy(strategy: Strategy, world: World) -> float:
    personal = strategy.personal(EVERYBODY)
    return float(world.evaluate(personal.models, personal.rows, EVERYBODY).accuracy.mean())


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_seed_gives_the_same_models_to_the_byte(name: str) -> None:
    assert np.array_equal(models_of(played(name)), models_of(played(name)))


@pytest.mark.parametrize("name", STRATEGIES)
def test_training_changes_what_clients_are_given(name: str) -> None:
    assert not np.array_equal(models_of(played(name, rounds=[])), models_of(played(name)))


@pytest.mark.parametrize("name", STRATEGIES)
def test_asking_for_models_changes_nothing(name: str) -> None:
    asked = STRATEGIES.build(name, {}, make_world())
    for number, participants in enumerate(ROUNDS):
        models_of(asked)
        asked.round(number, participants)
        models_of(asked)
    assert np.array_equal(models_of(asked), models_of(played(name)))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("after", [1, 3])
def test_a_restored_strategy_goes_on_as_if_nothing_had_been(name: str, after: int) -> None:
    stopped = played(name, rounds=ROUNDS[:after])
    kept = {key: value.copy() for key, value in stopped.state().items()}
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in kept.values())
    resumed = STRATEGIES.build(name, {}, make_world())
    resumed.restore(kept)
    for number, participants in enumerate(ROUNDS[after:], start=after):
        resumed.round(number, participants)
    whole = played(name)
    assert np.array_equal(models_of(resumed), models_of(whole))
    assert str(resumed.groups()) == str(whole.groups())


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_state_is_a_copy_that_later_rounds_leave_alone(name: str) -> None:
    strategy = played(name, rounds=ROUNDS[:2])
    kept = strategy.state()
    before = {key: value.copy() for key, value in kept.items()}
    strategy.round(2, EVERYBODY)
    assert all(np.array_equal(before[key], kept[key]) for key in before)


@pytest.mark.parametrize("name", STRATEGIES)
def test_models_are_float32_rows_and_groups_are_one_number_a_client(name: str) -> None:
    strategy = played(name)
    personal = strategy.personal([3, 0])
    assert personal.models.dtype == np.float32
    assert personal.models.ndim == 2
    assert personal.rows.shape == (2,)
    groups = strategy.groups()
    assert groups is None or (groups.shape == (6,) and groups.dtype.kind == "i" and groups.min() >= -1)


@pytest.mark.parametrize("name", STRATEGIES)
def test_traffic_is_counted_in_bytes(name: str) -> None:
    traffic = STRATEGIES.build(name, {}, make_world()).round(0, EVERYBODY)
    assert min(traffic.up, traffic.down, traffic.between_servers) >= 0


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"oracle"}))
def test_true_clusters_and_test_samples_decide_nothing(name: str) -> None:
    honest, blind = two_camps(), two_camps()
    blind.clusters[:] = 0
    for rows in blind.test:
        blind.images[rows] = 0.5
    assert np.array_equal(
        models_of(played(name, world=make_world(honest))), models_of(played(name, world=make_world(blind)))
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_it_bears_its_name_and_refuses_what_it_does_not_know(name: str) -> None:
    made = STRATEGIES.build(name, {}, make_world())
    assert isinstance(made, Strategy)
    assert made.name == name
    with pytest.raises(ParameterError, match="colour"):
        STRATEGIES.build(name, {"colour": 1}, make_world())


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"known: .*fedavg"):
        STRATEGIES.build("fedavgg", {}, make_world())


@pytest.mark.parametrize("name", ["local-only", "oracle"])
def test_where_camps_do_not_mix_everybody_learns(name: str) -> None:
    world = make_world()
    assert accuracy(played(name, world=world, rounds=[EVERYBODY] * 20), world) > 0.9


@pytest.mark.parametrize("name", ["fedavg", "centralised"])
def test_one_model_for_two_camps_that_contradict_each_other_is_no_better_than_chance(name: str) -> None:
    world = make_world()
    assert accuracy(played(name, world=world, rounds=[EVERYBODY] * 20), world) < 0.75


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
    world = make_world()
    strategy = played(name, params, world=world, rounds=[EVERYBODY] * 20)
    groups = strategy.groups()
    assert groups is not None
    assert np.array_equal(in_order_of_occurrence(groups), world.population.clusters)
    assert accuracy(strategy, world) > 0.9
