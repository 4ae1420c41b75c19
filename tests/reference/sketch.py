"""A sketch by the book (docs/protocol.md, Similarities): value by value, in Python floats."""

import hashlib
import struct
from collections.abc import Sequence


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
