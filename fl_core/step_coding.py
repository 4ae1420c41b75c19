"""A model as what it differs by from another one of the same layout, its base: the same bytes again, fewer on the way.

    coded = encode_step(layout, model, base, base_digest=digest_of(base))
    decode_step(layout, coded, base) == model

The base is any model that both sides have: the average that the training began from, or the author's next update.
Nothing is lost: who decodes gets the very bytes, and hashes them to know it. Of float32 values as training leaves them
most bits are noise, and stay; a model that its client has rounded (``round_step``) takes a sixth of its bytes.

    coded    = 16 bytes tag, 32 bytes SHA-256 of the base (zeros: none), i16 grid of each tensor, plane * 4
    plane    = u8 kind, u64 length, that many bytes: of kind 1 as they are, of kind 2 deflated (zlib), of kind 0 those
               that are not zero: their u32 places, ascending, then the bytes themselves
    grid     = e: float32 values are whole multiples of 2^e, and stand for n = value / 2^e; -100 to 100
               0x7fff: values stand for their bits in order of size, n = bits ^ (0x7fffffff where they are negative);
               16-bit values likewise, with 0x7fff
    plane k  = byte k, from the lowest, of each value's difference n - m, modulo 2^32 and zigzag (0, -1, 1, -2, …)

m is the base's value by the same rule, on a grid rounded to the nearest, ties to even, and at most 2^24 either way;
without a base 0. All little-endian, values in the layout's order. Multiplying by a power of two and rounding are exact,
so that every machine finds the same bytes; what ``zlib`` makes of a plane may differ, what comes out of it not.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ModelMalformedError
from fl_core.models import Buffer, ModelLayout, TensorSpec, model_norm
from fl_core.types import Digest, Vector32

LEAST_BYTES: Final = 1 << 18
"""Smaller models travel whole: coding one costs both sides more than the bytes that it saves."""
STEP_BITS: Final = 4
"""``round_step`` keeps a tensor's values to 1/16 of how far they have moved in the root mean square, or half that."""
_TAG: Final = b"dag-acfl step 1\n"
CODED_HEAD_BYTES: Final = len(_TAG)
"""What ``is_coded`` looks at."""
_BITS: Final = 0x7FFF
_MOST_EXPONENT: Final = 100
"""Well inside float32: neither a grid nor what it divides is ever subnormal, which some processes take for zero."""
_MOST_COUNT: Final = 1 << 24
_PLANES: Final = 4
_PLANE: Final = struct.Struct("<BQ")
_SPARSE, _PLAIN, _DEFLATED = 0, 1, 2
_SPARSE_SHARE: Final = 1024
"""A plane is sparse that has no more bytes other than zero than one in so many: deflate is slow to say nothing."""
_PLACE_BYTES: Final = 5
_MOST_PLACES: Final = 1 << 32
_BLOCK: Final = 1 << 16
_SAMPLED: Final = 1 << 14
_WORTH_DEFLATING: Final = 7.8
"""Bits per byte, by how often each occurs: of more, deflate saves nothing and takes longest."""
_MAGNITUDE: Final = np.int32(0x7FFFFFFF)

Counts = NDArray[np.int32]


def encode_step(layout: ModelLayout, model: Buffer, base: Buffer | None, *, base_digest: Digest) -> bytes:
    """A model's canonical bytes, coded.

    Args:
        layout: Of both.
        model: Has passed the gate.
        base: Likewise; None for none.
        base_digest: SHA-256 of it; without one ``ZERO_ID``.
    """
    grids = [
        _grid(np.frombuffer(part, "<f4")) if spec.dtype == "F32" else _BITS for spec, part in _tensors(layout, model)
    ]
    planes = np.empty((_PLANES, layout.num_parameters), np.uint8)
    at = 0
    for block, other, spec, grid in _blocks(layout, grids, model, base):
        change = _counts(block, spec, grid)
        if other is not None:
            change -= _counts(other, spec, grid)
        zigzag = (change << 1) ^ (change >> 31)
        planes[:, at : at + len(change)] = zigzag.astype("<i4", copy=False).view(np.uint8).reshape(-1, _PLANES).T
        at += len(change)
    head = [_TAG, bytes.fromhex(base_digest), np.array(grids, "<i2").tobytes()]
    return b"".join((*head, *(_packed(plane) for plane in planes)))


def is_coded(data: Buffer) -> bool:
    """Whether these are a coded model's bytes, or begin as they do; a model's own never do."""
    return bytes(data[: len(_TAG)]) == _TAG


def base_of(coded: Buffer) -> Digest:
    """SHA-256 of the base that a coded model needs; ``ZERO_ID`` for none.

    Raises:
        ModelMalformedError: These bytes are no coded model.
    """
    if not is_coded(coded) or len(coded) < len(_TAG) + 32:
        raise ModelMalformedError("the bytes are no coded model: their first 48 are not its tag and its base")
    return Digest(bytes(coded[len(_TAG) : len(_TAG) + 32]).hex())


def decode_step(layout: ModelLayout, coded: Buffer, base: Buffer | None) -> memoryview:
    """The model's canonical bytes, read-only; nothing is known of them until they are hashed, and checked as any.

    Takes memory for twice a model's size, whatever the bytes say.

    Args:
        layout: Of the model and its base.
        coded: What ``encode_step`` made; its size is the caller's to bound.
        base: The bytes that hash to ``base_of``, None where that is ``ZERO_ID``.

    Raises:
        ModelMalformedError: These bytes are no coded model of this layout, or its base is none.
    """
    view = memoryview(coded)
    grids, at = _read_head(layout, view)
    if base is not None and len(base) != layout.nbytes:
        raise ModelMalformedError("the model that it is coded by is none of this layout")
    planes: list[NDArray[np.uint8] | None] = []
    for _ in range(_PLANES):
        plane, at = _unpacked(view, at, size=layout.num_parameters)
        planes.append(plane)
    if at != len(view):
        raise ModelMalformedError(f"{len(view) - at} bytes stand behind the coded model")
    model = bytearray(layout.nbytes)
    model[: len(layout.prefix)] = layout.prefix
    at = 0
    for block, other, spec, grid in _blocks(layout, grids, model, base):
        size = len(block) // _width(spec)
        zigzag = np.zeros((size, _PLANES), np.uint8)
        for number, plane in enumerate(planes):
            if plane is not None:
                zigzag[:, number] = plane[at : at + size]
        coded_as = zigzag.view("<u4").reshape(-1).astype(np.uint32, copy=False)
        change = (coded_as >> 1).view(np.int32) ^ -(coded_as & 1).view(np.int32)
        if other is not None:
            change += _counts(other, spec, grid)
        _put(block, change, spec, grid)
        at += size
    return memoryview(model).toreadonly()


def _read_head(layout: ModelLayout, view: memoryview) -> tuple[list[int], int]:
    """Each tensor's grid, and where the planes begin."""
    base_of(view)
    start = CODED_HEAD_BYTES + 32
    end = start + 2 * len(layout.tensors)
    if len(view) < end:
        raise ModelMalformedError("the coded model ends within its grids")
    grids = [int(each) for each in np.frombuffer(view[start:end], "<i2")]
    for spec, grid in zip(layout.tensors, grids, strict=True):
        if grid != _BITS and (spec.dtype != "F32" or abs(grid) > _MOST_EXPONENT):
            raise ModelMalformedError(f"tensor {spec.name!r} cannot lie on a grid of 2^{grid}")
    return grids, end


def round_step(layout: ModelLayout, model: Vector32, start: Vector32) -> Vector32:
    """A trained model whose values lie on a grid in each tensor, fine beside how far the training has moved them.

    What of a value no average would notice takes most of the bytes on the way. Every reader sees the rounded model, and
    its author goes on from it.

    Args:
        layout: Of both; 16-bit tensors stay as they are.
        model: Shape ``(P,)``.
        start: What the training began from, shape ``(P,)``.
    """
    rounded = model.copy()
    for spec, piece in zip(layout.tensors, layout.tensor_slices, strict=True):
        values = model[piece]
        moved = model_norm(values - start[piece]) / math.sqrt(spec.size)
        if spec.dtype != "F32" or not moved:
            continue
        largest = math.frexp(float(np.abs(values).max()))[1]
        grid = max(math.frexp(moved)[1] - 1 - STEP_BITS, largest - 23, -_MOST_EXPONENT)
        if grid <= _MOST_EXPONENT:
            counts = np.rint(values * np.float32(2.0**-grid))
            rounded[piece] = counts * np.float32(2.0**grid) + np.float32(0.0)  # + 0: a zero has one sign
    return rounded


def _width(spec: TensorSpec) -> int:
    return spec.nbytes // spec.size


def _tensors(layout: ModelLayout, data: Buffer) -> Iterator[tuple[TensorSpec, memoryview]]:
    view, at = memoryview(data), len(layout.prefix)
    for spec in layout.tensors:
        yield spec, view[at : at + spec.nbytes]
        at += spec.nbytes


def _blocks(
    layout: ModelLayout, grids: list[int], model: Buffer, base: Buffer | None
) -> Iterator[tuple[memoryview, memoryview | None, TensorSpec, int]]:
    """Both models' values, some thousand of one tensor at a time, which stay in a core's cache."""
    bases = iter(()) if base is None else _tensors(layout, base)
    for (spec, part), grid in zip(_tensors(layout, model), grids, strict=True):
        _, other = next(bases, (spec, None))
        step = _BLOCK * _width(spec)
        for start in range(0, spec.nbytes, step):
            yield part[start : start + step], None if other is None else other[start : start + step], spec, grid


def _grid(values: Vector32) -> int:
    """The exponent of the coarsest grid that all values lie on, by a sample of them; ``_BITS`` where there is none."""
    sample = values[:: max(1, len(values) // _SAMPLED)]
    bits = sample[sample != 0].view(np.uint32)
    if not len(bits):
        exponent = 0
    else:
        power = np.maximum((bits >> 23) & 0xFF, 1).astype(np.int32) - 150  # of the last bit
        mantissa = (bits & 0x7FFFFF) | np.where(bits & 0x7F800000, 0x800000, 0).astype(np.uint32)
        lowest = (mantissa & (~mantissa + 1)).astype(np.float32).view(np.uint32) >> 23
        exponent = int((power + lowest.astype(np.int32) - 127).min())
    if abs(exponent) > _MOST_EXPONENT:
        return _BITS
    scale, inverse = np.float32(2.0**exponent), np.float32(2.0**-exponent)
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        with np.errstate(over="ignore"):
            counts = np.rint(block * inverse)
        if float(np.abs(counts).max()) >= _MOST_COUNT:
            return _BITS
        # Bit by bit: a grid knows no negative zero.
        again = counts.astype(np.int32).astype(np.float32) * scale
        if not np.array_equal(again.view(np.uint32), block.view(np.uint32)):
            return _BITS
    return exponent


def _counts(block: memoryview, spec: TensorSpec, grid: int) -> Counts:
    """What values stand for."""
    if grid != _BITS:
        with np.errstate(over="ignore", invalid="ignore"):  # of a base that is far larger than the model, or damaged
            scaled = np.rint(np.frombuffer(block, "<f4") * np.float32(2.0**-grid))
            return np.clip(scaled, -_MOST_COUNT, _MOST_COUNT).astype(np.int32)
    if spec.dtype == "F32":
        bits: Counts = np.frombuffer(block, "<i4")
        return bits ^ ((bits >> 31) & _MAGNITUDE)
    short: NDArray[np.int16] = np.frombuffer(block, "<i2")
    return (short ^ ((short >> 15) & np.int16(0x7FFF))).astype(np.int32)


def _put(block: memoryview, counts: Counts, spec: TensorSpec, grid: int) -> None:
    """Write the values that these stand for."""
    if grid != _BITS:
        with np.errstate(over="ignore"):  # the gate refuses what is infinite
            np.frombuffer(block, "<f4")[:] = counts.astype(np.float32) * np.float32(2.0**grid)
    elif spec.dtype == "F32":
        np.frombuffer(block, "<i4")[:] = counts ^ ((counts >> 31) & _MAGNITUDE)
    else:
        short = counts.astype(np.int16)
        np.frombuffer(block, "<i2")[:] = short ^ ((short >> 15) & np.int16(0x7FFF))


def _packed(plane: NDArray[np.uint8]) -> bytes:
    if np.count_nonzero(plane) <= len(plane) // _SPARSE_SHARE and len(plane) <= _MOST_PLACES:
        places = np.flatnonzero(plane)
        data = places.astype("<u4").tobytes() + plane[places].tobytes()
        return _PLANE.pack(_SPARSE, len(data)) + data
    sample = plane[:: max(1, len(plane) // _SAMPLED)]
    shares = np.bincount(sample, minlength=256) / len(sample)
    shares = shares[shares > 0]
    if float(-(shares * np.log2(shares)).sum()) <= _WORTH_DEFLATING:
        # Differences hold no repeated words, only runs of zeros and some bytes that are more frequent than others.
        deflate = zlib.compressobj(1, strategy=zlib.Z_RLE)
        data = deflate.compress(plane.data) + deflate.flush()
        if len(data) < len(plane):
            return _PLANE.pack(_DEFLATED, len(data)) + data
    return _PLANE.pack(_PLAIN, len(plane)) + plane.tobytes()


def _unpacked(view: memoryview, at: int, *, size: int) -> tuple[NDArray[np.uint8] | None, int]:
    """A plane of ``size`` bytes, None where all are zero, and where it ends."""
    if len(view) < at + _PLANE.size:
        raise ModelMalformedError("the coded model ends within a plane")
    kind, length = _PLANE.unpack_from(view, at)
    data = view[at + _PLANE.size : at + _PLANE.size + length]
    end = at + _PLANE.size + length
    if len(data) != length:
        raise ModelMalformedError("the coded model ends within a plane")
    if kind == _SPARSE and length % _PLACE_BYTES == 0 and length // _PLACE_BYTES <= size // _SPARSE_SHARE:
        return _spread(data, size=size), end
    if kind == _PLAIN and length == size:
        return np.frombuffer(data, np.uint8), end
    if kind != _DEFLATED:
        raise ModelMalformedError(f"a plane of {size} bytes cannot be of kind {kind} and {length} bytes long")
    return _inflated(data, size=size), end


def _spread(data: memoryview, *, size: int) -> NDArray[np.uint8] | None:
    count = len(data) // _PLACE_BYTES
    if not count:
        return None
    places = np.frombuffer(data[: 4 * count], "<u4")
    if places[-1] >= size or (places[1:] <= places[:-1]).any():
        raise ModelMalformedError("a plane's places do not ascend within it")
    plane = np.zeros(size, np.uint8)
    plane[places] = np.frombuffer(data[4 * count :], np.uint8)
    return plane


def _inflated(data: memoryview, *, size: int) -> NDArray[np.uint8]:
    inflate = zlib.decompressobj()
    try:
        plain = inflate.decompress(data, size)
    except zlib.error as error:
        raise ModelMalformedError(f"a plane cannot be inflated: {error}") from None
    if len(plain) == size and not inflate.eof:  # it may end with nothing but its checksum
        try:
            excess = inflate.decompress(inflate.unconsumed_tail, 1)
        except zlib.error as error:
            raise ModelMalformedError(f"a plane cannot be inflated: {error}") from None
    else:
        excess = b""
    if len(plain) != size or excess or not inflate.eof or inflate.unused_data:
        raise ModelMalformedError(f"a plane does not inflate to {size} bytes")
    return np.frombuffer(plain, np.uint8)
