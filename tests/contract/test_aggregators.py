"""What every registered aggregator promises, whatever its rule."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fl_core.aggregation import AGGREGATORS, Aggregator, ArraySource
from fl_core.aggregation.fedavg import BLOCK, FedAvg
from fl_core.aggregation.median import Median
from fl_core.aggregation.span_pool import SpanPool
from fl_core.aggregation.trimmed_mean import TrimmedMean
from fl_core.errors import ParameterError, ShapeMismatchError, UnknownNameError
from fl_core.types import Vector32
from tests.reference.aggregates_digest import digest

SIZES = [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]


@pytest.fixture(params=sorted(AGGREGATORS))
def aggregator(request: pytest.FixtureRequest) -> Aggregator:
    return AGGREGATORS.build(request.param, {})


def models(count: int, size: int, *, seed: int = 3) -> list[Vector32]:
    return list(np.random.default_rng(seed).standard_normal((count, size), dtype=np.float32))


def sources(vectors: list[Vector32]) -> list[ArraySource]:
    return [ArraySource(vector) for vector in vectors]


def test_aggregator_is_called_what_the_registry_calls_it(aggregator: Aggregator) -> None:
    assert aggregator.name in AGGREGATORS
    assert isinstance(aggregator, Aggregator)


@pytest.mark.parametrize("size", SIZES)
def test_one_model_comes_back_byte_for_byte(aggregator: Aggregator, size: int) -> None:
    (model,) = models(1, size)
    model[0] = -0.0
    for weight in (1.0, 37.0, 1e-300):
        result = aggregator.aggregate(sources([model]), [weight])
        assert result.tobytes() == model.tobytes()
        assert result is not model


@pytest.mark.parametrize("size", SIZES)
def test_result_lies_between_the_models(aggregator: Aggregator, size: int) -> None:
    vectors = models(5, size)
    result = aggregator.aggregate(sources(vectors), [3, 1, 4, 1, 5])
    slack = 1e-6  # five float32 products and sums of values around 1
    assert result.shape == (size,)
    assert result.dtype == np.float32
    assert (result >= np.min(vectors, axis=0) - slack).all()
    assert (result <= np.max(vectors, axis=0) + slack).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_byte(aggregator: Aggregator, size: int, threads: int) -> None:
    vectors, weights = models(4, size), [2.0, 7.0, 1.0, 8.0]
    shared = AGGREGATORS.build(aggregator.name, {}, pool=SpanPool(threads))
    expected = aggregator.aggregate(sources(vectors), weights)
    assert shared.aggregate(sources(vectors), weights).tobytes() == expected.tobytes()


def test_sorted_order_makes_the_arrival_order_irrelevant(aggregator: Aggregator) -> None:
    by_id = dict(zip("abcdef", models(6, 1000), strict=True))
    examples = dict(zip("abcdef", [60.0, 13, 7, 60, 2, 31], strict=True))
    results = set()
    for arrival in ("abcdef", "fedcba", "cafebd"):
        seen = {name: by_id[name] for name in arrival}
        ordered = sorted(seen)
        result = aggregator.aggregate(sources([seen[name] for name in ordered]), [examples[name] for name in ordered])
        results.add(result.tobytes())
    assert len(results) == 1


def test_models_are_left_as_they_were(aggregator: Aggregator) -> None:
    vectors = models(3, 100)
    before = [vector.copy() for vector in vectors]
    for vector in vectors:
        vector.flags.writeable = False
    aggregator.aggregate(sources(vectors), [1, 2, 3])
    assert all((vector == old).all() for vector, old in zip(vectors, before, strict=True))


def test_scale_of_the_weights_does_not_matter(aggregator: Aggregator) -> None:
    vectors = models(3, 100)
    small = aggregator.aggregate(sources(vectors), [0.25, 0.5, 0.25])
    large = aggregator.aggregate(sources(vectors), [1 << 40, 1 << 41, 1 << 40])
    assert small.tobytes() == large.tobytes()


def test_largest_admitted_values_do_not_overflow(aggregator: Aggregator) -> None:
    vectors = [np.full(10, 1e38, dtype=np.float32) for _ in range(30)]
    with np.errstate(all="raise"):
        assert np.isfinite(aggregator.aggregate(sources(vectors), [1.0] * 30)).all()


@pytest.mark.parametrize("weights", [[], [1.0], [1.0, 2.0, 3.0]])
def test_weights_are_as_many_as_models(aggregator: Aggregator, weights: list[float]) -> None:
    with pytest.raises(ShapeMismatchError):
        aggregator.aggregate(sources(models(2, 4)), weights)


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [float("inf"), 1.0]])
def test_weights_are_finite_not_negative_and_not_all_zero(aggregator: Aggregator, weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        aggregator.aggregate(sources(models(2, 4)), weights)


def test_models_are_of_one_size_and_there_is_one(aggregator: Aggregator) -> None:
    with pytest.raises(ShapeMismatchError):
        aggregator.aggregate(sources([*models(1, 4), *models(1, 5)]), [1.0, 1.0])
    with pytest.raises(ValueError, match="no models"):
        aggregator.aggregate([], [])


def test_less_of_the_cpu_changes_no_byte() -> None:
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    spared = " ".join(name for name in __cpu_dispatch__ if __cpu_features__[name])
    command = [sys.executable, "-m", "tests.reference.aggregates_digest"]
    slow = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": spared, "OPENBLAS_CORETYPE": "Prescott"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert slow.stdout == digest()


def test_unknown_aggregator_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        AGGREGATORS.build("mode", {})
    assert caught.value.known == tuple(sorted(AGGREGATORS))


@pytest.mark.parametrize("name", AGGREGATORS)
def test_unknown_parameter_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="no parameter 'trim'"):
        AGGREGATORS.build(name, {"trim": 0.1})


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7])
def test_no_value_follows_a_model_by_more_than_its_share(aggregator: Aggregator, count: int) -> None:
    vectors, weights = models(count, 400), [float(1 + place % 3) for place in range(count)]
    before, shares = aggregator.aggregate(sources(vectors), weights), aggregator.shares(weights)
    for place, share in enumerate(shares):
        moved = [vector + np.float32(2**-12) if at == place else vector for at, vector in enumerate(vectors)]
        change = np.abs(aggregator.aggregate(sources(moved), weights) - before).max() * 2**12
        assert change <= share + 0.002, "float32 rounds values of 3 to 2^-22"
        if isinstance(aggregator, FedAvg | Median | TrimmedMean):  # of others' rules a share is only a bound
            assert change >= share - 0.002


def test_what_weighs_nothing_has_no_share_and_all_together_have_all(aggregator: Aggregator) -> None:
    shares = aggregator.shares([2.0, 0.0, 1.0, 1.0])
    assert shares[1] == 0
    assert all(0 < share <= 1 for share in (shares[0], *shares[2:]))
    assert sum(shares) >= 1
    assert aggregator.shares([3.0]) == [1.0]
