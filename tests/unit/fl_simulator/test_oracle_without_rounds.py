"""FedAsync and FedBuff within true clusters: of six clients the even ones are one cluster, the odd ones another."""

import numpy as np
import pytest

from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from fl_simulator.strategies.asynchronous.protocol import AsynchronousStrategy
from tests.simulations import make_world


def moved(strategy: AsynchronousStrategy, client: int, by: float) -> None:
    """Have a client add so much to each value of the model that it is given."""
    given = strategy.start(client, now=0.0)
    strategy.finish(client, given.model + np.float32(by), now=0.0)


def models(strategy: AsynchronousStrategy) -> list[float]:
    """The first value of each client's model."""
    personal = strategy.personal(range(6), now=0.0)
    return [float(value) for value in personal.models[personal.rows][:, 0]]


@pytest.mark.parametrize(("name", "params"), [("oracle-fedasync", {"mixing": 1.0}), ("oracle-fedbuff", {"buffer": 1})])
def test_a_result_moves_the_model_of_its_own_cluster_alone(name: str, params: dict[str, float]) -> None:
    strategy = ASYNCHRONOUS_STRATEGIES.build(name, params, make_world())
    first = models(strategy)[0]
    moved(strategy, 2, by=1.0)
    assert models(strategy) == pytest.approx([first + 1, first] * 3)
    moved(strategy, 5, by=4.0)
    assert models(strategy) == pytest.approx([first + 1, first + 4] * 3)


def test_another_clusters_results_make_nobody_stale() -> None:
    strategy = ASYNCHRONOUS_STRATEGIES.build("oracle-fedasync", {"mixing": 1.0}, make_world())
    first = models(strategy)[0]
    given = strategy.start(0, now=0.0)
    for _ in range(3):
        moved(strategy, 1, by=1.0)
    strategy.finish(0, given.model + np.float32(1), now=0.0)  # s(0) = 1
    assert models(strategy)[0] == pytest.approx(first + 1)


def test_the_buffer_is_each_clusters_own() -> None:
    strategy = ASYNCHRONOUS_STRATEGIES.build("oracle-fedbuff", {"buffer": 2}, make_world())
    first = models(strategy)[0]
    moved(strategy, 0, by=2.0)
    moved(strategy, 1, by=2.0)
    assert models(strategy) == [first] * 6
    moved(strategy, 4, by=4.0)
    assert models(strategy) == pytest.approx([first + 3, first] * 3)


def test_traffic_is_that_of_all_clusters() -> None:
    world = make_world()
    strategy = ASYNCHRONOUS_STRATEGIES.build("oracle-fedasync", {}, world)
    for client in range(6):
        moved(strategy, client, by=1.0)
    assert strategy.traffic.up == strategy.traffic.down == 6 * world.model_bytes
