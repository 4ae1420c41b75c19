"""The median: numbers by hand, bytes by the twin, and how far liars move it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.aggregation import ArraySource
from fl_core.aggregation.median import Median
from fl_core.aggregation.span_pool import UNIT
from fl_core.types import Vector32
from tests.reference.robust_aggregation import median

VALUES = st.floats(-(2.0**126), 2.0**126, width=32)


def of(*rows: list[float] | Vector32, weights: list[float] | None = None) -> Vector32:
    sources = [ArraySource(np.asarray(row, dtype=np.float32)) for row in rows]
    return Median().aggregate(sources, weights or [1.0] * len(rows))


def test_of_an_odd_number_the_middle_value_is_taken_in_each_coordinate() -> None:
    assert of([1, 9, 5], [2, 8, -5], [3, 7, 0]).tolist() == [2, 8, 0]


def test_of_an_even_number_the_two_middle_values_are_averaged() -> None:
    assert of([1, -4], [2, 4], [4, 0], [100, 1]).tolist() == [3, 0.5]


def test_examples_are_no_weights_but_a_model_without_any_is_left_out() -> None:
    assert of([1], [2], [6], weights=[1000, 1, 1]).tolist() == [2]
    assert of([1], [2], [6], weights=[0, 1, 1]).tolist() == [4]
    assert of([-0.0], [2], weights=[1, 0]).tobytes() == np.float32(-0.0).tobytes()


def test_minus_zero_counts_as_zero_so_that_no_cpu_decides_its_sign() -> None:
    assert of([-0.0], [0.0], [-0.0]).tobytes() == np.float32(0).tobytes()


@given(st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=2, max_size=9))
def test_bytes_are_the_naive_twins(rows: list[list[float]]) -> None:
    models = [np.array(row, dtype=np.float32) for row in rows]
    with np.errstate(under="ignore"):
        assert of(*models).tobytes() == median(models).tobytes()


@pytest.mark.parametrize("count", [2, 5, 30, 64, 70])
def test_it_is_numpys_median(count: int) -> None:
    models = np.random.default_rng(count).standard_normal((count, 3 * UNIT + 1), dtype=np.float32)
    assert (of(*models) == np.median(models, axis=0)).all()


@pytest.mark.parametrize(("count", "liars"), [(3, 1), (4, 1), (5, 2), (30, 14)])
def test_fewer_than_half_cannot_move_it_beyond_the_honest_values(count: int, liars: int) -> None:
    models = np.random.default_rng(count).standard_normal((count, 100), dtype=np.float32)
    honest = models[liars:]
    for lie in (1e38, -1e38):
        models[:liars] = lie
        result = of(*models)
        assert (result >= honest.min(axis=0)).all()
        assert (result <= honest.max(axis=0)).all()


def test_half_of_them_can() -> None:
    assert of([1], [2], [1e38], [1e38]).item() > 1e37
