"""FeSEM on a line: clients at 0, 2, 10 and 12 draw a model half the way to where they are."""

from dataclasses import replace

import numpy as np
import pytest

from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import Strategy
from tests.simulations import make_point_world, make_world

EVERYBODY = np.arange(4)


def line(*, samples: list[int] | None = None, spread: float = 0.0) -> World:
    return make_point_world([[0], [2], [10], [12]], samples=samples, spread=spread)


def centres(strategy: Strategy) -> list[float]:
    return strategy.state()["models"].ravel().tolist()


def test_k_means_of_first_trainings_begins_where_clients_differ_and_means_follow() -> None:
    strategy = STRATEGIES.build("fesem", {"clusters": 2, "init": "kmeans"}, line())
    strategy.round(0, EVERYBODY)
    # First trainings from 0 end at 0, 1, 5 and 6, so centres are at 0.5 and 5.5. From there to
    # 0.25, 1.25, 7.75 and 8.75, each nearest to where it came from.
    assert strategy.groups().tolist() == [0, 0, 1, 1]
    assert centres(strategy) == [0.75, 8.25]


def test_a_trained_model_moves_to_the_centre_that_is_nearest_to_it_now() -> None:
    strategy = STRATEGIES.build("fesem", {"clusters": 2}, line())
    models = np.array([[4], [7]], np.float32)
    strategy.restore({**strategy.state(), "models": models, "assigned": np.array([0, 0, 0, 1])})
    strategy.round(5, EVERYBODY)
    # From 4: to 2, 3 and 7, and the last is where the other centre stands; from 7: to 9.5.
    assert strategy.groups().tolist() == [0, 0, 1, 1]
    assert centres(strategy) == [2.5, 8.25]


def test_a_centre_that_nobody_came_to_stays_and_so_does_the_assignment_of_the_absent() -> None:
    strategy = STRATEGIES.build("fesem", {"clusters": 2, "init": "kmeans"}, line())
    strategy.round(0, EVERYBODY)
    strategy.round(1, np.array([0]))  # from 0.75 to 0.375
    assert centres(strategy) == [0.375, 8.25]
    assert strategy.groups().tolist() == [0, 0, 1, 1]


def test_one_first_model_for_all_is_fedavg_by_another_name() -> None:
    world = make_point_world([[5], [6], [10], [12]])
    shared, fedavg = STRATEGIES.build("fesem", {"init": "shared"}, world), STRATEGIES.build("fedavg", {}, world)
    for number in range(3):
        shared.round(number, EVERYBODY)
        fedavg.round(number, EVERYBODY)
    assert shared.groups().tolist() == [0, 0, 0, 0]
    assert centres(shared) == [fedavg.personal([0]).models.item(), 0, 0]


def test_from_one_first_model_only_those_come_apart_who_are_drawn_back_to_it() -> None:
    opposed = STRATEGIES.build("fesem", {"init": "shared"}, make_point_world([[-4], [6]]))
    opposed.round(0, np.arange(2))  # to -2 and 3: the first centre is at 0.5
    opposed.round(1, np.arange(2))  # to -1.75 and 3.25
    assert opposed.groups().tolist() == [1, 0]


def test_from_one_first_model_who_begins_later_begins_at_an_untrained_centre() -> None:
    strategy = STRATEGIES.build("fesem", {"init": "shared"}, line())
    strategy.round(0, np.array([0, 3]))  # to 0 and 6: the first centre is at 3
    strategy.round(1, np.array([1, 2]))  # from the second, untrained, to 1 and 5; 1 is nearer to 0, and 5 to 3
    assert strategy.groups().tolist() == [0, 1, 0, 0]
    near = STRATEGIES.build("fesem", {"init": "shared"}, make_point_world([[20], [2], [3]]))
    near.round(0, np.array([0]))  # to 10
    near.round(1, np.array([1, 2]))  # to 1 and 1.5, far from 10
    assert near.groups().tolist() == [0, 1, 1]


def test_independent_first_models_are_assigned_to_the_nearest_centre_before_any_training() -> None:
    world = line(spread=3.0)
    begins = [world.initial_model(2 + client).item() for client in range(4)]
    first, second = (world.initial_model(centre).item() for centre in range(2))
    strategy = STRATEGIES.build("fesem", {"clusters": 2}, world)
    expected = [int(abs(each - second) < abs(each - first)) for each in begins]
    assert sorted(set(expected)) == [0, 1]
    assert strategy.personal(EVERYBODY).rows.tolist() == expected
    assert strategy.groups().tolist() == [-1] * 4


def test_who_joins_later_begins_at_the_centre_whose_first_position_is_nearest() -> None:
    world = line()
    strategy = STRATEGIES.build("fesem", {"clusters": 2, "init": "kmeans"}, world)
    strategy.round(0, np.array([0, 3]))  # centres begin at 0 and 6, and go to 0 and 9
    assert centres(strategy) == [0.0, 9.0]
    assert strategy.groups().tolist() == [0, -1, -1, 1]
    # Who has no centre yet is given the run's first model, which is none of the centres.
    personal = strategy.personal([2])
    assert personal.models[personal.rows].tolist() == [[0.0]]
    # 10's first training ends at 5, nearer to 6 than to 0 (and to 9, where the centre is now, it does not compare).
    traffic = strategy.round(1, np.array([2]))
    assert strategy.groups().tolist() == [0, -1, 1, 1]
    assert centres(strategy) == [0.0, 9.5]
    assert traffic.up == traffic.down == 2 * world.model_bytes


def test_a_round_without_newcomers_moves_one_model_each_way() -> None:
    world = line(spread=1.0)
    traffic = STRATEGIES.build("fesem", {}, world).round(0, EVERYBODY)
    assert traffic.up == traffic.down == 4 * world.model_bytes


def test_means_count_samples_only_when_asked() -> None:
    ends = []
    for weighted in (False, True):
        params = {"clusters": 1, "init": "shared", "weighted": weighted}
        strategy = STRATEGIES.build("fesem", params, line(samples=[1, 1, 1, 5]))
        strategy.round(0, EVERYBODY)  # to 0, 1, 5 and 6
        ends += centres(strategy)
    assert ends == [3.0, 4.5]


def test_fewer_first_participants_than_centres_make_fewer_centres() -> None:
    strategy = STRATEGIES.build("fesem", {"clusters": 3, "init": "kmeans"}, line())
    strategy.round(0, np.array([1, 2]))
    assert len(centres(strategy)) == 2


@pytest.mark.parametrize(("layers", "nearest"), [("all", 0), ("similarity", 1)])
def test_distances_are_taken_of_the_layers_that_are_asked_for(layers: str, nearest: int) -> None:
    world = replace(make_world(epochs=0), similarity_layers=("fc1.bias",))  # a round changes no model
    strategy = STRATEGIES.build("fesem", {"clusters": 2, "layers": layers}, world)
    # Bias, then weight. The client's first model lies within 0.1 of the origin: near the first centre by all
    # tensors (about 2 of 10), near the second by its bias.
    models = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 5, 5, 5, 5]], np.float32)
    strategy.restore({**strategy.state(), "models": models})
    assert strategy.personal([4]).rows.tolist() == [nearest]


def test_a_run_of_k_means_can_be_stopped_and_restored_when_somebody_has_yet_to_join() -> None:
    rounds = [np.array([0, 3]), np.array([0, 2]), EVERYBODY]
    params = {"clusters": 2, "init": "kmeans"}
    whole, stopped, resumed = (STRATEGIES.build("fesem", params, line()) for _ in range(3))
    for number, participants in enumerate(rounds):
        whole.round(number, participants)
    stopped.round(0, rounds[0])
    resumed.restore(stopped.state())
    for number, participants in enumerate(rounds[1:], start=1):
        resumed.round(number, participants)
    assert centres(resumed) == centres(whole)
    assert resumed.groups().tolist() == whole.groups().tolist() == [0, 0, 1, 1]
