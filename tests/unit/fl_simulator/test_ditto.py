"""Ditto on a plane: clients at (4, 0) and (0, 4) draw a model half the way to where they are."""

import numpy as np
import pytest

from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import Strategy
from tests.simulations import make_point_world

BOTH = np.arange(2)


def begun(pull: float) -> Strategy:
    return STRATEGIES.build("ditto", {"pull": pull}, make_point_world([[4, 0], [0, 4]]))


def own(strategy: Strategy) -> list[list[float]]:
    personal = strategy.personal(BOTH)
    return personal.models[personal.rows].tolist()


def test_own_models_are_held_near_the_one_for_all() -> None:
    strategy = begun(pull=1.0)
    strategy.round(0, BOTH)
    assert own(strategy) == [[2, 0], [0, 2]]
    assert strategy.state()["models"].tolist() == [[1, 1]]
    strategy.round(1, BOTH)
    # (2, 0) + ½ ((4, 0) - (2, 0) - ((2, 0) - (1, 1))): towards its samples, and towards (1, 1)
    assert own(strategy) == [[2.5, 0.5], [0.5, 2.5]]
    assert strategy.state()["models"].tolist() == [[1.5, 1.5]]


def test_without_a_pull_everybody_learns_alone() -> None:
    strategy = begun(pull=0.0)
    for number in range(2):
        strategy.round(number, BOTH)
    assert own(strategy) == [[3, 0], [0, 3]]


def test_who_does_not_take_part_keeps_its_model() -> None:
    strategy = begun(pull=1.0)
    strategy.round(0, np.array([0]))
    assert own(strategy) == [[2, 0], [0, 0]]
    assert strategy.state()["models"].tolist() == [[2, 0]]


def test_own_models_do_not_travel() -> None:
    world = make_point_world([[4, 0], [0, 4]])
    traffic = STRATEGIES.build("ditto", {}, world).round(0, BOTH)
    assert traffic.up == traffic.down == pytest.approx(2 * world.model_bytes)
