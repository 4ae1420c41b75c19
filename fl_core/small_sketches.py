"""A few hundred bytes for each of many updates, by which those that are worth comparing are found among all.

An update is folded to 512 values (``fl_core.sketch``), which are scaled so that the largest is 127 and rounded to whole
numbers: int8. The product of two such sketches is a sum of 512 products of at most 127 x 127 each, so below 2^23, and
float32 holds it exactly, in whatever order BLAS adds. So one product looks through all updates, none is passed over by
chance, and every server finds the same ones. An index of neighbours (HNSW) would look at fewer, and find others on
each server: docs/adr/0066.

A cosine of two sketches is off by some (1 - cosine^2) / sqrt(512) = 0.044 (1 - cosine^2): what is found is a
shortlist, to be compared in full.
"""

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from fl_core.sketch import Sketch
from fl_core.types import Vector32, Vector64

Number = TypeVar("Number", np.int8, np.float32, np.float64)
VALUES: Final = 512
_TILE: Final = 1024
"""Sketches that are widened to float32 at a time: 2 MiB, which stay in a core's cache until multiplied."""


class SmallSketches:
    """The sketches of updates by row; its owner counts the rows.

    Args:
        size: Values of an update.
        seed: 0 to 2^64 - 1.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        self._sketch = Sketch(size, dimensions=VALUES, seed=seed)
        self._values = np.empty((0, VALUES), dtype=np.int8)
        self._scales = np.empty(0)

    def of(self, update: Vector32) -> NDArray[np.int8]:
        """An update's small sketch, shape ``(512,)``; all zeros of one without a direction."""
        folded = self._sketch.of(update).astype(np.float64)
        largest = np.abs(folded).max()
        sketch: NDArray[np.int8] = np.rint(127.0 * folded / (largest or 1.0)).astype(np.int8)
        return sketch

    def put(self, row: int, update: Vector32, *, lengthened: float) -> None:
        """Keep an update's sketch in a row that there is room for.

        Args:
            row: Its number.
            update: Shape ``(size,)``.
            lengthened: How many times as long it is as without its declared noise.
        """
        sketch = self.of(update)
        square = int(sketch.astype(np.int64) @ sketch.astype(np.int64))
        self._values[row] = sketch
        self._scales[row] = lengthened / np.sqrt(float(square)) if square else 0.0

    def move(self, source: int, target: int) -> None:
        """Put one row's sketch in another's place."""
        self._values[target], self._scales[target] = self._values[source], self._scales[source]

    def resize(self, capacity: int, *, used: int) -> None:
        """Make room for so many rows; the first ``used`` are kept."""
        self._values = resized(self._values, capacity, used=used)
        self._scales = resized(self._scales, capacity, used=used)

    def scores(self, update: Vector32, count: int) -> Vector64:
        """How like an update the first ``count`` rows' are, shape ``(count,)``: their cosines times one factor."""
        own = self.of(update).astype(np.float32)
        products = np.empty(count, dtype=np.float32)
        widened = np.empty((_TILE, VALUES), dtype=np.float32)
        for start in range(0, count, _TILE):
            part = self._values[start : min(start + _TILE, count)]
            np.copyto(widened[: len(part)], part)
            np.dot(widened[: len(part)], own, out=products[start : start + len(part)])
        return products * self._scales[:count]


def resized(rows: NDArray[Number], capacity: int, *, used: int) -> NDArray[Number]:
    """A copy with room for so many rows, of which the first ``used`` are these."""
    grown = np.empty((capacity, *rows.shape[1:]), dtype=rows.dtype)
    grown[:used] = rows[:used]
    return grown
