"""Step coding by the book (docs/protocol.md, Coded models): value by value, in Python's own numbers."""

import struct
import zlib
from fractions import Fraction

from fl_core.models import ModelLayout

BITS = 0x7FFF


def decode(layout: ModelLayout, coded: bytes, base: bytes | None) -> bytes:
    """The model of a sound coded body."""
    assert coded[:16] == b"dag-acfl step 1\n"
    grids = struct.unpack_from(f"<{len(layout.tensors)}h", coded, 48)
    at = 48 + 2 * len(grids)
    planes = []
    for _ in range(4):
        kind, length = struct.unpack_from("<BQ", coded, at)
        data = coded[at + 9 : at + 9 + length]
        if kind == 0:
            plane = bytearray(layout.num_parameters)
            for number, place in enumerate(struct.unpack_from(f"<{length // 5}I", data)):
                plane[place] = data[length // 5 * 4 + number]
            data = bytes(plane)
        planes.append(zlib.decompress(data) if kind == 2 else data)
        at += 9 + length
    assert at == len(coded)
    values = iter(zip(*planes, strict=True))
    model = [layout.prefix]
    offset = len(layout.prefix)
    for spec, grid in zip(layout.tensors, grids, strict=True):
        width = spec.nbytes // spec.size
        for _ in range(spec.size):
            zigzag = int.from_bytes(bytes(next(values)), "little")
            change = zigzag // 2 if zigzag % 2 == 0 else -(zigzag // 2) - 1
            of_base = 0 if base is None else _number(base[offset : offset + width], grid)
            model.append(_value((change + of_base + 2**31) % 2**32 - 2**31, width, grid))
            offset += width
    return b"".join(model)


def _number(value: bytes, grid: int) -> int:
    """What a value stands for."""
    if grid != BITS:
        exact = Fraction(struct.unpack("<f", value)[0]) / Fraction(2) ** grid
        return max(-(2**24), min(2**24, round(exact)))  # Python rounds ties to even
    signed = int.from_bytes(value, "little", signed=True)
    return signed if signed >= 0 else signed ^ (2 ** (8 * len(value) - 1) - 1)


def _value(number: int, width: int, grid: int) -> bytes:
    """The value that stands for a number."""
    if grid != BITS:
        return struct.pack("<f", float(number * Fraction(2) ** grid))
    top = 2 ** (8 * width - 1)
    number = (number + top) % (2 * top) - top
    return (number if number >= 0 else number ^ (top - 1)).to_bytes(width, "little", signed=True)
