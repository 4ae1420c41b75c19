"""Sketches by the book (docs/protocol.md, Similarities): value by value, in Python floats."""

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence


def sketch(values: Sequence[float], *, dimensions: int, seed: int) -> list[float]:
    """Of float32 values; what comes out are float32 values, too."""
    count = dimensions + -(-len(values) // dimensions)
    stream = hashlib.shake_256(b"dag-acfl/sketch/v1" + seed.to_bytes(8, "big")).digest(4 * count)
    words = struct.unpack(f">{count}I", stream)
    sums = [0.0] * (2 * dimensions)
    for index, value in enumerate(values):
        chunk, place = divmod(index, dimensions)
        word = words[dimensions + chunk]
        is_negative = (words[place] ^ word) & 1
        sums[place + (word >> 1) % dimensions] += -value if is_negative else value
    folded = [first + second for first, second in zip(sums[:dimensions], sums[dimensions:], strict=True)]
    return [struct.unpack("<f", struct.pack("<f", min(max(value, -1e38), 1e38)))[0] for value in folded]


def small_sketch(update: Sequence[float], *, seed: int) -> list[int]:
    """An update's sketch of 512 values, as whole numbers of which the largest is 127."""
    folded = sketch(update, dimensions=512, seed=seed)
    largest = max(map(abs, folded)) or 1.0
    return [round(127.0 * value / largest) for value in folded]


def nearest(update: Sequence[float], others: Mapping[str, Sequence[float]], *, seed: int) -> list[str]:
    """The names of updates by falling cosine of their small sketches with that of an update, of equal ones by name."""
    own = small_sketch(update, seed=seed)
    scores: dict[str, float] = {}
    for name, other in others.items():
        theirs = small_sketch(other, seed=seed)
        length = math.sqrt(sum(value * value for value in theirs))
        scores[name] = sum(a * b for a, b in zip(own, theirs, strict=True)) * (1.0 / length) if length else 0.0
    return sorted(scores, key=lambda name: (-scores[name], name))
