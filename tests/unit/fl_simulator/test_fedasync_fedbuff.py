"""FedAsync and FedBuff against updates worked out by hand."""

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
import pytest

from fl_core.types import JsonScalar
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from fl_simulator.strategies.asynchronous.protocol import AsynchronousStrategy
from fl_simulator.strategies.protocol import Traffic
from tests.simulations import make_point_world


def begun(name: str, params: Mapping[str, JsonScalar]) -> AsynchronousStrategy:
    """Four clients, a model of two values, at the origin."""
    return ASYNCHRONOUS_STRATEGIES.build(name, params, make_point_world([(0.0, 0.0)] * 4))


def model_of(strategy: AsynchronousStrategy) -> list[float]:
    personal = strategy.personal([1], now=0.0)
    return personal.models[personal.rows][0].tolist()


def finish(strategy: AsynchronousStrategy, client: int, values: Sequence[float]) -> None:
    strategy.finish(client, np.array(values, np.float32), now=0.0)


def test_fedasync_moves_by_alpha_towards_a_fresh_result() -> None:
    strategy = begun("fedasync", {"mixing": 0.25})
    assert strategy.start(0, now=0.0).model.tolist() == [0, 0]
    finish(strategy, 0, [4, 8])
    assert model_of(strategy) == [1, 2]
    assert strategy.start(0, now=0.0).model.tolist() == [1, 2]
    finish(strategy, 0, [5, 2])
    assert model_of(strategy) == [2, 2]


def test_fedasync_moves_less_towards_an_older_result() -> None:
    """Four start from the origin; when the last has finished, three came in between: α s(3) = 1/2 · (1 + 3)^-½ = 1/4."""
    strategy = begun("fedasync", {"mixing": 0.5})
    for client in range(4):
        strategy.start(client, now=0.0)
    for client in range(3):
        finish(strategy, client, [0, 0])
    finish(strategy, 3, [8, 4])
    assert model_of(strategy) == pytest.approx([2, 1])


def test_fedasync_hands_its_regularisation_to_the_client() -> None:
    assert begun("fedasync", {"proximal": 0.25}).start(0, now=0.0).proximal == 0.25


def test_fedbuff_waits_for_k_results_and_moves_by_the_mean_of_their_updates() -> None:
    strategy = begun("fedbuff", {"buffer": 2})
    strategy.start(0, now=0.0)
    strategy.start(1, now=0.0)
    finish(strategy, 0, [4, 0])
    assert model_of(strategy) == [0, 0]
    finish(strategy, 1, [0, 8])
    assert model_of(strategy) == [2, 4]  # ([4, 0] + [0, 8]) / 2


def test_fedbuff_counts_an_update_from_an_old_model_less() -> None:
    strategy = begun("fedbuff", {"buffer": 1})
    strategy.start(0, now=0.0)
    strategy.start(1, now=0.0)
    finish(strategy, 0, [2, 2])
    assert model_of(strategy) == [2, 2]
    finish(strategy, 1, [4, 0])  # from the origin, with one change in between
    assert model_of(strategy) == pytest.approx([2 + 4 / sqrt(2), 2])
    old = strategy.start(2, now=0.0).model.tolist()
    finish(strategy, 2, [old[0] + 1, old[1] - 1])  # an update is what was done to the model that was given
    assert model_of(strategy) == pytest.approx([3 + 4 / sqrt(2), 1])


def test_staleness_counts_changes_of_the_model_and_not_results() -> None:
    strategy = begun("fedbuff", {"buffer": 2})
    for client in range(3):
        strategy.start(client, now=0.0)
    finish(strategy, 0, [2, 0])
    strategy.start(0, now=0.0)
    finish(strategy, 1, [2, 0])  # the model changes: [2, 0]
    finish(strategy, 2, [2, 0])  # one change old
    finish(strategy, 0, [2, 0])  # one change old, too: it started before
    assert model_of(strategy) == pytest.approx([2 + 2 / sqrt(2), 0])


@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
def test_a_result_is_a_model_down_and_a_model_up(name: str) -> None:
    strategy = begun(name, {})
    size = strategy.start(0, now=0.0).down_bytes
    assert strategy.traffic == Traffic(down=size)
    finish(strategy, 0, [1, 1])
    assert strategy.traffic == Traffic(up=size, down=size)
    strategy.begin_interval()
    assert strategy.traffic == Traffic()
