"""Sorting networks: every rank of every number of models, proven by zeros and ones."""

import itertools

import numpy as np
import pytest

from fl_core.aggregation.order_statistics import _exchange as exchange
from fl_core.aggregation.order_statistics import selection_network
from fl_core.types import Vector32


def ranked(columns: np.ndarray, ranks: range) -> list[Vector32]:
    rows = [row.copy() for row in columns.astype(np.float32)]
    exchange(rows, np.empty_like(rows[0]), selection_network(len(rows), ranks))
    return rows[ranks.start : ranks.stop]


@pytest.mark.parametrize("count", range(1, 13))
def test_a_network_that_ranks_all_zeros_and_ones_ranks_everything(count: int) -> None:
    columns = np.array(list(itertools.product((0, 1), repeat=count))).T
    expected = np.sort(columns, axis=0)
    for low, high in itertools.combinations(range(count + 1), 2):
        assert (np.array(ranked(columns, range(low, high))) == expected[low:high]).all()


@pytest.mark.parametrize("count", [13, 30, 31, 32, 33, 64, 65, 200])
def test_larger_networks_agree_with_sorting(count: int) -> None:
    columns = np.random.default_rng(5).integers(0, 50, (count, 2000))
    expected = np.sort(columns, axis=0)
    for ranks in (range(count), range((count - 1) // 2, count // 2 + 1), range(count // 5, count - count // 5)):
        assert (np.array(ranked(columns, ranks)) == expected[ranks.start : ranks.stop]).all()


def test_steps_that_no_wanted_rank_needs_are_left_out() -> None:
    everything, middle = selection_network(30, range(30)), selection_network(30, range(14, 16))
    assert len(everything) == 178
    assert sum(step.wants_low + step.wants_high for step in everything) == 356
    assert sum(step.wants_low + step.wants_high for step in middle) == 272
    assert selection_network(1, range(1)) == ()
