"""The trimmed mean: numbers by hand, bytes by the twin, and how far liars move it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.aggregation import ArraySource
from fl_core.aggregation.trimmed_mean import TrimmedMean, TrimmedMeanParams
from fl_core.errors import ParameterError
from fl_core.parameters import read_parameters
from fl_core.types import Vector32
from tests.reference.robust_aggregation import trimmed_mean

VALUES = st.floats(-(2.0**126), 2.0**126, width=32)


def of(*rows: list[float] | Vector32, share: float, weights: list[float] | None = None) -> Vector32:
    sources = [ArraySource(np.asarray(row, dtype=np.float32)) for row in rows]
    return TrimmedMean(TrimmedMeanParams(share)).aggregate(sources, weights or [1.0] * len(rows))


def test_the_smallest_and_the_largest_of_each_coordinate_are_dropped() -> None:
    assert of([0, 7], [1, -100], [3, 5], [5, 9], [100, 6], share=0.2).tolist() == [3, 6]


def test_a_share_that_makes_no_whole_model_drops_none() -> None:
    assert of([0], [1], [2], [9], share=0.24).tolist() == [3]
    assert of([0], [1], [2], [9], share=0.25).tolist() == [1.5]
    assert of([0], [8], share=0.49).tolist() == [4]


def test_examples_are_no_weights_but_a_model_without_any_is_left_out() -> None:
    assert of([0], [4], [8], share=0.0, weights=[1, 1, 1000]).tolist() == [4]
    assert of([0], [4], [8], share=0.0, weights=[1, 1, 0]).tolist() == [2]


@given(st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=2, max_size=9), st.floats(0, 0.499))
def test_bytes_are_the_naive_twins(rows: list[list[float]], share: float) -> None:
    models = [np.array(row, dtype=np.float32) for row in rows]
    with np.errstate(under="ignore"):
        assert of(*models, share=share).tobytes() == trimmed_mean(models, share).tobytes()


@pytest.mark.parametrize(("count", "share", "liars"), [(5, 0.2, 1), (9, 0.2, 1), (10, 0.2, 2), (30, 0.4, 12)])
def test_as_many_liars_as_are_dropped_cannot_move_it_beyond_the_honest_values(
    count: int, share: float, liars: int
) -> None:
    models = np.random.default_rng(count).standard_normal((count, 100), dtype=np.float32)
    honest = models[liars:]
    for lie in (1e38, -1e38):
        models[:liars] = lie
        result = of(*models, share=share)
        assert (result >= honest.min(axis=0) - 1e-6).all()
        assert (result <= honest.max(axis=0) + 1e-6).all()


def test_one_liar_more_can() -> None:
    assert of([1], [2], [3], [1e38], [1e38], share=0.2).item() > 1e37


@pytest.mark.parametrize("share", [-0.1, 0.5, 1])
def test_half_and_more_cannot_be_dropped(share: float) -> None:
    with pytest.raises(ParameterError, match="trim_share"):
        read_parameters(TrimmedMeanParams, {"trim_share": share}, owner="aggregator 'trimmed-mean'")
