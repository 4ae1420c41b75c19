"""IFCA on a line: clients at 0, 2, 10 and 12 draw a model half the way to where they are."""

import numpy as np
import pytest

from fl_core.errors import ParameterError
from fl_core.types import JsonScalar
from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import Strategy
from tests.simulations import make_point_world

EVERYBODY = np.arange(4)


def line(*, samples: list[int] | None = None, spread: float = 0.0, seed: int = 0) -> World:
    return make_point_world([[0], [2], [10], [12]], samples=samples, spread=spread, seed=seed)


def ifca(world: World, *models: float, **params: JsonScalar) -> Strategy:
    """Two models, which begin where the test says, if it does."""
    strategy = STRATEGIES.build("ifca", {"clusters": 2, **params}, world)
    if models:
        strategy.restore({**strategy.state(), "models": np.array(models, np.float32)[:, None]})
    return strategy


def shares_of_the_first_round(world: World, models: np.ndarray) -> list[int]:
    nearest = np.abs(models.ravel() - np.array([[0], [2], [10], [12]])).argmin(axis=1)
    return sorted(np.bincount(nearest, minlength=len(models)).tolist())


def test_each_takes_the_model_of_least_training_loss_and_the_model_becomes_their_mean() -> None:
    strategy = ifca(line(), 1, 9)
    assert str(strategy.groups()) == "[-1 -1 -1 -1]"
    strategy.round(0, EVERYBODY)
    # From 1: to 0.5 and 1.5; from 9: to 9.5 and 10.5.
    assert str(strategy.groups()) == "[0 0 1 1]"
    assert strategy.personal(EVERYBODY).models.ravel().tolist() == [1.0, 10.0]


def test_who_does_not_take_part_keeps_its_group_and_is_given_what_fits_it_now() -> None:
    strategy = ifca(line(), 1, 9)
    strategy.round(0, np.array([0, 3]))  # models 0.5 and 10.5
    assert str(strategy.groups()) == "[ 0 -1 -1  1]"
    assert strategy.personal([2, 1]).rows.tolist() == [1, 0]


def test_a_client_with_more_samples_counts_more_only_when_asked() -> None:
    alike, weighted = (ifca(line(samples=[1, 3, 1, 1]), 1, 9, weighted=choice) for choice in (False, True))
    for strategy in (alike, weighted):
        strategy.round(0, EVERYBODY)
    assert alike.personal([0]).models[0].item() == 1.0  # (0.5 + 1.5) / 2
    assert weighted.personal([0]).models[0].item() == 1.25  # (0.5 + 3 * 1.5) / 4


def test_each_participant_is_sent_every_model_and_sends_one() -> None:
    world = line()
    traffic = STRATEGIES.build("ifca", {"clusters": 3}, world).round(0, np.array([0, 2]))
    assert (traffic.up, traffic.down) == (2 * world.model_bytes, 2 * 3 * world.model_bytes)


def test_identical_models_stay_fedavg_where_clients_share_anything() -> None:
    world = make_point_world([[5], [6], [10], [12]])
    shared, fedavg = ifca(world, init="shared"), STRATEGIES.build("fedavg", {}, world)
    for number in range(3):
        shared.round(number, EVERYBODY)
        fedavg.round(number, EVERYBODY)
    assert str(shared.groups()) == "[0 0 0 0]"
    assert shared.personal([0]).models.ravel().tolist() == [fedavg.personal([0]).models.item(), 0.0]


def test_identical_models_come_apart_when_the_untrained_one_suits_a_client_better() -> None:
    strategy = ifca(line(), init="shared")
    strategy.round(0, EVERYBODY)  # the first becomes (0 + 1 + 5 + 6) / 4 = 3, the other stays at 0
    strategy.round(1, EVERYBODY)
    assert str(strategy.groups()) == "[1 0 0 0]"


def test_a_model_without_a_finite_loss_is_nobodys() -> None:
    strategy = ifca(line(), float("nan"), 9)
    assert strategy.personal(EVERYBODY).rows.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_models_are_drawn_anew_until_each_has_its_share(seed: int) -> None:
    world = line(spread=15.0, seed=seed)
    draws = [np.stack([world.initial_model(2 * draw + each) for each in range(2)]) for draw in range(50)]
    expected = next(draw for draw, models in enumerate(draws) if shares_of_the_first_round(world, models) == [2, 2])
    strategy = ifca(world, restart=True, min_share=0.5)
    traffic = strategy.round(0, EVERYBODY)
    assert np.bincount(strategy.groups()).tolist() == [2, 2]
    assert traffic.down == (expected + 1) * 2 * 4 * world.model_bytes
    later = strategy.round(1, EVERYBODY)
    assert later.down == 2 * 4 * world.model_bytes


def test_when_no_draw_gives_each_its_share_the_most_even_one_is_taken() -> None:
    world = line(spread=15.0, seed=1)
    draws = [np.stack([world.initial_model(3 * draw + each) for each in range(3)]) for draw in range(20)]
    smallest = [shares_of_the_first_round(world, models)[0] for models in draws]
    assert max(smallest) == 1  # four clients, three models: 1, 1, 2 at best, which is less than 0.3 of each
    strategy = ifca(world, clusters=3, restart=True, min_share=0.3, max_draws=20)
    traffic = strategy.round(0, EVERYBODY)
    assert traffic.down == 20 * 3 * 4 * world.model_bytes
    assert sorted(np.bincount(strategy.groups())) == [1, 1, 2]


@pytest.mark.parametrize("params", [{"init": "shared", "restart": True}, {"restart": True, "min_share": 0.6}])
def test_a_restart_that_cannot_succeed_is_refused(params: dict[str, JsonScalar]) -> None:
    with pytest.raises(ParameterError, match="ifca"):
        ifca(line(), **params)


def test_trying_models_counts_as_the_methods_work_and_not_as_tests() -> None:
    world = line()
    ifca(world, 1, 9).round(0, EVERYBODY)
    assert set(world.stopwatch.take()) == {"training", "aggregation", "candidates"}
