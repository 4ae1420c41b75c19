"""CFL on a line: a client draws a model half the way to where it is, so its update is half of what it lacks."""

import numpy as np
import pytest

from fl_core.errors import ParameterError
from fl_core.types import JsonScalar
from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import Strategy
from tests.simulations import make_point_world

EVERYBODY = np.arange(4)


def opposed(*, samples: list[int] | None = None) -> World:
    """Two who pull one way and two who pull the other; from the origin, by 1, 2, -1 and -3."""
    return make_point_world([[2], [4], [-2], [-6]], samples=samples)


def cfl(world: World, **params: JsonScalar) -> Strategy:
    return STRATEGIES.build("cfl", params, world)


def models(strategy: Strategy) -> list[float]:
    return strategy.state()["models"].ravel().tolist()


def given(strategy: Strategy, client: int) -> list[float]:
    personal = strategy.personal([client])
    return personal.models[personal.rows[0]].tolist()


def test_a_cluster_of_one_mind_is_fedavg() -> None:
    strategy = cfl(make_point_world([[18], [22]]))
    strategy.round(0, np.arange(2))
    assert strategy.groups().tolist() == [0, 0]
    assert models(strategy) == [10]  # updates 9 and 11: a mean of 10 is no short one


def test_a_cluster_at_rest_that_pulls_two_ways_is_split_and_each_part_goes_its_own() -> None:
    strategy = cfl(opposed())
    assert strategy.groups().tolist() == [-1] * 4
    traffic = strategy.round(0, EVERYBODY)
    # The mean of 1, 2, -1 and -3 is -0.25; the longest is 3 long.
    assert strategy.groups().tolist() == [1, 1, 2, 2]
    assert models(strategy) == [0, 1.5, -2]
    assert traffic.up == traffic.down == 4 * opposed().model_bytes
    strategy.round(1, EVERYBODY)  # to 1.75, 2.75, -2 and -4
    assert models(strategy) == [0, 2.25, -3]


@pytest.mark.parametrize(
    ("params", "groups"),
    [
        ({"eps1": 0.08}, [0, 0, 0, 0]),  # 0.25 of 3 is 0.083
        ({"eps1": 0.09}, [1, 1, 2, 2]),
        ({"relative": False, "eps1": 0.2, "eps2": 1.6}, [0, 0, 0, 0]),
        ({"relative": False, "eps1": 0.3, "eps2": 1.6}, [1, 1, 2, 2]),
        ({"relative": False, "eps1": 0.3, "eps2": 3.5}, [0, 0, 0, 0]),
        ({"gamma": 0.99}, [1, 1, 2, 2]),  # the cosine across is -1, so the measure is 1
    ],
)
def test_a_split_waits_for_every_condition(params: dict[str, JsonScalar], groups: list[int]) -> None:
    strategy = cfl(opposed(), **params)
    strategy.round(0, EVERYBODY)
    assert strategy.groups().tolist() == groups
    assert models(strategy)[0] == (-0.25 if groups == [0] * 4 else 0)


def test_relative_to_the_first_round_updates_that_have_become_short_split_nothing() -> None:
    # From the origin: by 8 and 10; the model goes to 9, 12.5, 14.875 … and rests at 18, where both pull by 1.
    strategy = cfl(make_point_world([[16], [20]]), eps2=0.15)
    for number in range(10):
        strategy.round(number, np.arange(2))
    assert strategy.groups().tolist() == [0, 0]
    strategy = cfl(make_point_world([[16], [20]]), eps2=0.05)
    for number in range(10):
        strategy.round(number, np.arange(2))
    assert strategy.groups().tolist() == [1, 2]


def test_updates_too_alike_for_the_noise_split_nothing() -> None:
    # Three at right angles or less: the greatest cosine across the best split is 0, and sqrt(1 / 2) = 0.707.
    points = [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
    ends = []
    for gamma in (0.70, 0.71):
        strategy = cfl(make_point_world(points), eps1=0.9, gamma=gamma)
        strategy.round(0, np.arange(3))
        ends.append(int(strategy.groups().max()))
    assert ends == [2, 0]


def test_samples_weigh_in_the_mean_that_must_be_short() -> None:
    strategy = cfl(opposed(samples=[1, 1, 1, 5]))
    strategy.round(0, EVERYBODY)
    # (1 + 2 - 1 - 5 * 3) / 8 = -1.625, over half of 3.
    assert strategy.groups().tolist() == [0] * 4
    assert models(strategy) == [-1.625]


def test_who_missed_the_split_walks_down_to_where_its_next_update_points() -> None:
    world = opposed()
    strategy = cfl(world)
    strategy.round(0, np.array([0, 2]))  # by 1 and -1
    assert strategy.groups().tolist() == [1, -1, 2, -1]
    assert models(strategy) == [0, 1, -1]
    assert given(strategy, 3) == [0]  # what it will train from, the split cluster's model
    traffic = strategy.round(1, np.array([0, 3]))
    # 3's update from the origin is -3, along the second part; from there, -1, it goes to -3.5. 0 goes to 1.5.
    assert strategy.groups().tolist() == [1, -1, 2, 2]
    assert models(strategy) == [0, 1.5, -3.5]
    assert traffic.up == traffic.down == 3 * world.model_bytes


def test_a_client_that_was_there_before_but_not_in_the_round_of_the_split_is_split_by_its_last_update() -> None:
    strategy = cfl(opposed())
    strategy.round(0, np.array([1]))  # by 2: to 2
    strategy.round(1, np.array([0, 2, 3]))  # from 2: by 0, -2 and -4
    assert strategy.groups().tolist() == [0, 0, 0, 0]
    assert models(strategy) == [0]
    strategy.round(2, np.array([0, 2]))  # from 0: by 1 and -1; 1's last update was 2, and 3's -4
    assert strategy.groups().tolist() == [1, 1, 2, 2]
    assert models(strategy) == [0, 1, -1]


def test_clusters_split_again_and_who_comes_late_walks_down_every_split() -> None:
    world = make_point_world([[8, 2], [8, -2], [-8, 0], [6, 2]])
    strategy = cfl(world, eps2=0.05)
    for number in range(12):
        strategy.round(number, np.arange(3))
    # First left from right, then the right's upper from its lower.
    assert strategy.groups().tolist() == [3, 4, 2, -1]
    traffic = strategy.round(12, np.array([3]))
    assert strategy.groups().tolist() == [3, 4, 2, 3]
    assert traffic.up == 3 * world.model_bytes


def test_a_run_can_be_stopped_and_restored_between_splits() -> None:
    world = make_point_world([[8, 2], [8, -2], [-8, 0], [6, 2]])
    rounds = [np.arange(3)] * 12 + [np.array([3]), EVERYBODY]
    whole = cfl(world, eps2=0.05)
    for number, participants in enumerate(rounds):
        whole.round(number, participants)
    for stop in (1, 5, 12):
        stopped, resumed = cfl(world, eps2=0.05), cfl(world, eps2=0.05)
        for number, participants in enumerate(rounds[:stop]):
            stopped.round(number, participants)
        resumed.restore(stopped.state())
        for number, participants in enumerate(rounds[stop:], start=stop):
            resumed.round(number, participants)
        assert models(resumed) == models(whole)
        assert resumed.groups().tolist() == whole.groups().tolist()


@pytest.mark.parametrize("params", [{"eps1": 1.1}, {"eps2": 1.6}])
def test_norms_given_for_shares_are_refused(params: dict[str, JsonScalar]) -> None:
    with pytest.raises(ParameterError, match="shares"):
        cfl(opposed(), **params)
