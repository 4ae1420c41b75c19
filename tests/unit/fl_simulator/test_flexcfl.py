"""FlexCFL on a plane: clients at (4, 0), (2, 0), (0, 3) and (0, 5) draw a model half the way to where they are."""

import numpy as np
import pytest

from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import Strategy
from tests.simulations import make_point_world

EVERYBODY = np.arange(4)


def plane(*, samples: list[int] | None = None, seed: int = 0) -> World:
    return make_point_world([[4, 0], [2, 0], [0, 3], [0, 5]], samples=samples, seed=seed)


def models(strategy: Strategy) -> list[list[float]]:
    return strategy.state()["models"].tolist()


def test_groups_are_clients_that_move_in_one_direction_however_far() -> None:
    world = make_point_world([[4, 0], [0.2, 0], [0, 0.2], [0, 5]])
    strategy = STRATEGIES.build("flexcfl", {"clusters": 2}, world)
    assert strategy.groups().tolist() == [-1] * 4
    strategy.round(0, EVERYBODY)
    # By distance the second and the third would be together: they hardly move.
    assert strategy.groups().tolist() == [0, 0, 1, 1]


def test_groups_begin_at_their_members_mean_and_average_what_they_learn() -> None:
    strategy = STRATEGIES.build("flexcfl", {"clusters": 2}, plane())
    strategy.round(0, EVERYBODY)
    # First trainings: (2, 0), (1, 0), (0, 1.5), (0, 2.5); groups begin at (1.5, 0) and (0, 2).
    # From there: (2.75, 0), (1.75, 0), (0, 2.5), (0, 3.5).
    assert models(strategy) == [[2.25, 0], [0, 3]]


def test_a_groups_direction_is_its_latest_step() -> None:
    strategy = STRATEGIES.build("flexcfl", {"clusters": 2}, plane())
    strategy.round(0, EVERYBODY)
    assert strategy.state()["directions"].tolist() == [[0.75, 0], [0, 1]]  # from (1.5, 0) and (0, 2)
    strategy.round(1, np.array([0, 2]))  # half the way from 2.25 to 4, and from 3 to 3
    assert strategy.state()["directions"].tolist() == [[0.875, 0], [0, 1]]


def test_groups_begin_at_plain_means_and_rounds_count_samples() -> None:
    strategy = STRATEGIES.build("flexcfl", {"clusters": 2}, plane(samples=[3, 1, 1, 1]))
    strategy.round(0, EVERYBODY)
    assert models(strategy)[0] == [2.5, 0]  # (3 * 2.75 + 1.75) / 4
    assert strategy.state()["directions"][0].tolist() == [1, 0]  # from (1.5, 0)


def test_who_joins_later_takes_the_direction_that_is_most_like_its_own() -> None:
    world = make_point_world([[4, 0], [0, 4], [1, 3], [3, 1], [0, 0]])
    strategy = STRATEGIES.build("flexcfl", {"clusters": 2}, world)
    directions = np.array([[1, 0], [0, 9]], np.float32)
    strategy.restore(
        {"models": np.array([[8, 0], [0, 8]], np.float32), "directions": directions, "assigned": np.full(5, -1)}
    )
    traffic = strategy.round(3, np.array([2, 3]))
    assert strategy.groups().tolist() == [-1, -1, 1, 0, -1]
    # They train twice: once from the run's first model to know where they belong, once from their group's.
    assert traffic.up == traffic.down == 4 * world.model_bytes
    assert models(strategy) == [[5.5, 0.5], [0.5, 5.5]]
    assert strategy.state()["directions"].tolist() == [[-2.5, 0.5], [0.5, -2.5]]
    # Who learns nothing resembles nothing, and has to go somewhere.
    strategy.round(4, np.array([4]))
    assert strategy.groups().tolist() == [-1, -1, 1, 0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_the_cold_start_asks_alpha_k_clients_whoever_takes_part(seed: int) -> None:
    world = plane(seed=seed)
    strategy = STRATEGIES.build("flexcfl", {"clusters": 2, "alpha": 1}, world)
    traffic = strategy.round(0, np.array([3]))
    grouped = np.flatnonzero(strategy.groups() >= 0)
    joined = len(set(grouped.tolist()) | {3}) - 2  # the participant trains first if it was not drawn
    assert 3 in grouped
    assert len(grouped) == 2 + joined
    assert traffic.up == traffic.down == (2 + joined + 1) * world.model_bytes


def test_who_has_no_group_yet_is_given_the_first_model() -> None:
    strategy = STRATEGIES.build("flexcfl", {"clusters": 2, "alpha": 1}, plane())
    strategy.round(0, np.array([3]))
    absent = int(np.flatnonzero(strategy.groups() < 0)[0])
    personal = strategy.personal([absent])
    assert personal.models[personal.rows].tolist() == [[0, 0]]
