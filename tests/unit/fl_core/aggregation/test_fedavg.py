"""Federated averaging: numbers by hand, bytes by the twin."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.aggregation import ArraySource, FedAvg, example_weights
from fl_core.aggregation.fedavg import BLOCK
from fl_core.aggregation.span_pool import SpanPool
from fl_core.types import Vector32
from tests.reference.aggregation import fedavg, naive_weights


def sources(*rows: list[float]) -> list[ArraySource]:
    return [ArraySource(np.array(row, dtype=np.float32)) for row in rows]


def test_models_count_by_their_examples() -> None:
    result = FedAvg().aggregate(sources([0.0, 8.0], [4.0, 0.0]), example_weights([30, 10], factor=100))
    assert result.tolist() == [1.0, 6.0]


def test_model_without_weight_leaves_no_trace() -> None:
    model = np.array([-0.0, 2.0], dtype=np.float32)
    for pair in (
        ([ArraySource(model), *sources([5.0, 5.0])], [1.0, 0.0]),
        (
            [*sources([5.0, 5.0]), ArraySource(model)],
            [0.0, 1.0],
        ),
    ):
        assert FedAvg().aggregate(*pair).tobytes() == model.tobytes()


@given(
    rows=st.lists(st.lists(st.floats(-(2.0**126), 2.0**126, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    counts=st.lists(st.integers(0, 1000), min_size=6, max_size=6),
)
def test_bytes_are_the_naive_twins(rows: list[list[float]], counts: list[int]) -> None:
    weights = example_weights(counts[: len(rows)], factor=3)
    models = [np.array(row, dtype=np.float32) for row in rows]
    result = FedAvg().aggregate([ArraySource(model) for model in models], weights)
    with np.errstate(under="ignore"):
        assert result.tobytes() == fedavg(models, weights).tobytes()


@dataclass
class Recorder:
    """A source that remembers what was read."""

    values: Vector32
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.values)

    def read(self, start: int, stop: int) -> Vector32:
        self.reads.append((start, stop))
        return self.values[start:stop]


@pytest.mark.parametrize("threads", [1, 3])
def test_models_are_read_once_in_pieces_of_one_block_at_most(threads: int) -> None:
    size = 4 * BLOCK + 10
    recorders = [Recorder(np.ones(size, dtype=np.float32)) for _ in range(3)]
    FedAvg(pool=SpanPool(threads)).aggregate(recorders, [1.0, 1.0, 1.0])
    for each in recorders:
        edges = sorted(each.reads)
        assert all(stop - start <= BLOCK for start, stop in edges)
        assert [start for start, _ in edges] == [0, *(stop for _, stop in edges)][:-1]
        assert edges[-1][1] == size


def test_error_of_a_source_in_another_thread_is_raised() -> None:
    @dataclass
    class Broken(Recorder):
        def read(self, start: int, stop: int) -> Vector32:
            if stop == self.size:
                raise OSError("blob is gone")
            return super().read(start, stop)

    broken = Broken(np.ones(4 * BLOCK, dtype=np.float32))
    with pytest.raises(OSError, match="blob is gone"):
        FedAvg(pool=SpanPool(2)).aggregate([broken], [1.0])


def test_a_claim_counts_within_a_factor_of_the_median_of_those_averaged() -> None:
    assert example_weights([10, 20, 30, 1_000_000, 1], factor=3) == [10.0, 20.0, 30.0, 60.0, 20 / 3]


def test_of_two_models_the_larger_claim_is_the_one_that_is_bounded() -> None:
    assert example_weights([10, 1_000_000], factor=3) == [10.0, 30.0]


def test_a_factor_as_large_as_claims_says_nothing() -> None:
    assert example_weights([1, 40, 60_000], factor=1_000_000) == [1.0, 40.0, 60_000.0]


def test_models_of_no_examples_weigh_nothing_unless_none_has_any() -> None:
    assert example_weights([0, 20], factor=3) == [0.0, 20.0]
    assert example_weights([0, 0], factor=3) == [1.0, 1.0]
    assert example_weights([], factor=3) == []


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=9), st.integers(1, 50))
def test_weights_are_those_of_the_naive_twin(counts: list[int], factor: int) -> None:
    assert example_weights(counts, factor=factor) == naive_weights(counts, factor)


@pytest.mark.parametrize(("counts", "factor"), [([-1], 10), ([1], 0)])
def test_negative_counts_and_a_factor_below_one_are_refused(counts: list[int], factor: int) -> None:
    with pytest.raises(ValueError, match="factor must be at least 1"):
        example_weights(counts, factor=factor)
