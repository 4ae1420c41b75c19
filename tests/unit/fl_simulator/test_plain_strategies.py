"""The methods without a search for clusters, on a line: a client draws a model half the way to where it is."""

from dataclasses import replace

import numpy as np
import pytest

from fl_simulator.engine.world import LocalTraining, World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import Strategy, Traffic
from tests.simulations import make_point_world

BOTH = np.arange(2)


def models(strategy: Strategy, clients: np.ndarray = BOTH) -> list[float]:
    personal = strategy.personal(clients)
    return personal.models[personal.rows].ravel().tolist()


def line(*, samples: list[int] | None = None, epochs: int = 1) -> World:
    """Clients at 0 and at 8; the first model is at 0."""
    return replace(make_point_world([[0], [8]], samples=samples), training=LocalTraining(epochs=epochs))


def test_fedavg_weighs_clients_by_their_samples() -> None:
    strategy = STRATEGIES.build("fedavg", {}, line(samples=[1, 3]))
    strategy.round(0, BOTH)  # 0 and 4
    assert models(strategy) == [3.0, 3.0]
    strategy.round(1, BOTH)  # 1.5 and 5.5
    assert models(strategy) == [4.5, 4.5]


def test_fedavg_takes_those_who_took_part() -> None:
    strategy = STRATEGIES.build("fedavg", {}, line())
    assert strategy.round(0, np.array([1])) == Traffic(up=line().model_bytes, down=line().model_bytes)
    assert models(strategy) == [4.0, 4.0]


def test_fedprox_holds_a_client_near_the_model_that_it_was_given() -> None:
    # From 0 to 4, where the pull of 8 and that of the model received, 4 each, cancel out; alone it would come to 6.
    held, free = (
        STRATEGIES.build(name, params, line(epochs=2)) for name, params in (("fedprox", {"mu": 1.0}), ("fedavg", {}))
    )
    for strategy in (held, free):
        strategy.round(0, np.array([1]))
    assert (models(held)[0], models(free)[0]) == (4.0, 6.0)


def test_who_learns_alone_goes_its_own_way_and_sends_nothing() -> None:
    strategy = STRATEGIES.build("local-only", {}, line())
    for number, participants in enumerate(([0, 1], [1], [1])):
        assert strategy.round(number, np.array(participants)) == Traffic()
    assert models(strategy) == [0.0, 7.0]


def test_central_training_sees_all_samples_as_one_client_s() -> None:
    strategy = STRATEGIES.build("centralised", {}, line(samples=[1, 3]))
    strategy.round(0, BOTH)  # the mean of 0, 8, 8 and 8 is 6
    assert models(strategy) == [3.0, 3.0]


def test_where_steps_are_counted_central_training_takes_as_many_as_all_clients_together() -> None:
    """Half of the way to 6 each: two steps are three quarters, and a client alone takes one."""
    world = replace(line(samples=[1, 3]), training=LocalTraining(epochs=9, steps=1))
    strategy = STRATEGIES.build("centralised", {}, world)
    strategy.round(0, BOTH)
    assert models(strategy) == [4.5, 4.5]
    local = STRATEGIES.build("local-only", {}, world)
    local.round(0, BOTH)
    assert models(local) == [0.0, 4.0]


def test_a_world_asks_for_gradients_without_moving_a_model_and_scales_first_weights() -> None:
    """The loss is half the squared distance, so its gradient is model - point."""
    world = line(samples=[1, 3])
    at = np.array([[2], [2], [5]], np.float32)
    assert world.gradients(at, [0, 1, 1], round_index=3).tolist() == [[2], [-6], [-3]]
    assert at.tolist() == [[2], [2], [5]]
    spread = make_point_world([[0, 0]], spread=1.0)
    np.testing.assert_allclose(spread.initial_model(4, gain=3.0), 3 * spread.initial_model(4))


def test_the_oracle_averages_within_true_clusters() -> None:
    world = make_point_world([[0], [4], [8], [12]])
    world = replace(world, population=replace(world.population, clusters=np.array([0, 0, 1, 1])))
    strategy = STRATEGIES.build("oracle", {}, world)
    strategy.round(0, np.arange(4))  # 0, 2, 4 and 6
    assert models(strategy, np.arange(4)) == [1.0, 1.0, 5.0, 5.0]
    assert strategy.groups().tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "local-only", "centralised"])
def test_what_knows_no_clusters_names_none(name: str) -> None:
    assert STRATEGIES.build(name, {}, line()).groups() is None
