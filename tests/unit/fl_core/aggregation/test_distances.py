"""Distances: the naive twin's to the bit, whatever the pieces, and NumPy's within rounding."""

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

from fl_core.aggregation import ArraySource
from fl_core.aggregation.distances import squared_distances, squared_distances_to
from fl_core.aggregation.span_pool import ONE_THREAD, UNIT, SpanPool, spans_of
from fl_core.types import Vector32
from tests.reference.robust_aggregation import squared_distance


def models(count: int, size: int) -> list[Vector32]:
    return list(np.random.default_rng(size).standard_normal((count, size), dtype=np.float32))


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


@pytest.mark.parametrize("size", [1, 3, 255, 1000, UNIT, UNIT + 1])
def test_bits_are_the_naive_twins(size: int) -> None:
    vectors = models(3, size)
    sources = [ArraySource(vector) for vector in vectors]
    found = squared_distances(sources, ONE_THREAD)
    for i, one in enumerate(vectors):
        for j, other in enumerate(vectors):
            assert found[i, j] == squared_distance(one, other)
    assert squared_distances_to(sources[2], sources, ONE_THREAD).tolist() == found[2].tolist()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    sources = [ArraySource(vector) for vector in models(5, 20 * UNIT + 7)]
    shared = squared_distances(sources, SpanPool(threads))
    assert (shared == squared_distances(sources, ONE_THREAD)).all()


@pytest.mark.parametrize("count", [2, 17, 40])
def test_every_pair_stands_in_its_place(count: int) -> None:
    vectors = models(count, 500)
    found = squared_distances([ArraySource(vector) for vector in vectors], ONE_THREAD)
    stacked = np.array(vectors, dtype=np.float64)
    expected = ((stacked[:, None] - stacked) ** 2).sum(axis=2)
    assert found == pytest.approx(expected, rel=1e-5)
    assert (found == found.T).all()


def test_models_are_read_once_front_to_back_and_more_models_in_shorter_pieces() -> None:
    recorders = [Recorder(vector) for vector in models(3, 13 * UNIT + 5)]
    squared_distances(recorders, ONE_THREAD)
    spans = list(spans_of(13 * UNIT + 5, 3))
    assert all(each.reads == spans for each in recorders)
    assert spans[0] == (0, 6 * UNIT)
    assert spans[-1] == (12 * UNIT, 13 * UNIT + 5)
    assert next(spans_of(13 * UNIT, 1024)) == (0, UNIT)
    assert next(spans_of(13 * UNIT, 64)) == (0, 4 * UNIT)


def test_an_error_in_another_thread_is_raised_and_nobody_reads_on() -> None:
    seen: list[int] = []

    def work(start: int, stop: int) -> None:
        seen.append(start)
        if start == 6 * UNIT:
            raise OSError("blob is gone")

    with pytest.raises(OSError, match="blob is gone"):
        list(SpanPool(2).in_order(work, size=60 * UNIT, models=1))
    assert sorted(seen) == [0, 6 * UNIT]


def test_a_model_that_is_hardly_longer_than_one_piece_wakes_no_thread() -> None:
    def thread(_start: int, _stop: int) -> int:
        return threading.get_ident()

    pool = SpanPool(2)
    assert {*pool.in_order(thread, size=6 * UNIT + 5, models=3)} == {threading.get_ident()}
    assert len({*pool.in_order(thread, size=12 * UNIT, models=3)}) == 2
