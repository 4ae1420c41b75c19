"""A large model folded into a few thousand numbers that keep its angles: what is compared of it, and kept in memory.

A count sketch with structure. The values are cut into chunks as long as the sketch; each chunk is turned by its own
number of places, its values get the sign of their place in it and the sign of the chunk, and all chunks are added up.
Turns and signs come from a seed that stands in genesis, so that everybody folds alike, and anybody can check it.

The sketch is linear, and the product of two sketches is the product of the two vectors on average over seeds: values of
one chunk never meet, and those of two chunks that meet have signs that say nothing of each other. A cosine is off by
some 1 / √dimensions (0.011 for 8,192), less for vectors that are alike. It takes no table as long as the model, and no
more than a pass over it: docs/adr/0031.

The same to the bit everywhere: values are added in float64, one chunk after the other, by element-wise steps.
"""

import hashlib
from typing import Final

import numpy as np

from fl_core.errors import ShapeMismatchError
from fl_core.models import MAX_ABS_VALUE
from fl_core.types import Vector32

_TAG: Final = b"dag-acfl/sketch/v1"


class Sketch:
    """Folds vectors of one size; immutable, and safe to share between threads.

    Args:
        size: Values of a vector.
        dimensions: Values of its sketch, at least 1.
        seed: Of the signs and turns, 0 to 2^64 - 1.
    """

    def __init__(self, size: int, *, dimensions: int, seed: int) -> None:
        self._size, self._dimensions = size, dimensions
        words = np.frombuffer(
            hashlib.shake_256(_TAG + seed.to_bytes(8, "big")).digest(4 * (dimensions - (-size // dimensions))), ">u4"
        )
        signs = 1 - 2 * (words & 1).astype(np.float32)
        self._signs = signs[:dimensions]  # of the places in a chunk
        turns = ((words[dimensions:] >> 1) % dimensions).tolist()
        self._chunks = tuple(zip(range(0, size, dimensions), turns, (signs[dimensions:] > 0).tolist(), strict=True))

    def of(self, vector: Vector32) -> Vector32:
        """The sketch of a vector, shape ``(dimensions,)``.

        Args:
            vector: Finite values of at most ``MAX_ABS_VALUE``, shape ``(size,)``.

        Raises:
            ShapeMismatchError: It has another shape.
        """
        if vector.shape != (self._size,):
            raise ShapeMismatchError(f"a sketch of {self._size} values was given a vector of shape {vector.shape}")
        dimensions = self._dimensions
        sums = np.zeros(2 * dimensions)  # a chunk that was turned runs over the end
        for start, turn, is_positive in self._chunks:
            chunk = vector[start : start + dimensions]
            place = sums[turn : turn + len(chunk)]
            (np.add if is_positive else np.subtract)(place, chunk * self._signs[: len(chunk)], out=place)
        # As large as a model's values may be and no larger, so that differences and squares of sketches are finite.
        return np.clip(sums[:dimensions] + sums[dimensions:], -MAX_ABS_VALUE, MAX_ABS_VALUE).astype(np.float32)
