"""Models as bytes: the layout that genesis fixes, and the gate through which every model comes in.

A model travels as a safetensors file. For one layout there is exactly one canonical file prefix
(length word and JSON header), so admission compares bytes instead of parsing what a stranger sent:

* ``ModelLayout.prefix`` is that prefix; tensors lie after it without gaps, widest dtype first, then by name
  (the order that the safetensors library writes), no ``__metadata__``.
* ``check_model`` accepts a file when it starts with the prefix, has the right size, and every value is
  finite and within the bound. Only a file that fails is parsed, under hard limits, to say *what* is wrong.
* ``flat`` gives the parameters as one float32 vector, the form that similarity and aggregation use;
  for a float32 layout it is a view of the bytes, not a copy.

Never pickle; never another format.
"""

import json
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import (
    ModelLayoutError,
    ModelMalformedError,
    ModelNotCanonicalError,
    ModelNotFiniteError,
    ModelTooLargeError,
)
from fl_core.types import Vector32

Buffer = bytes | bytearray | memoryview

MAX_HEADER_BYTES: Final = 1 << 20
MAX_TENSORS: Final = 4096
MAX_RANK: Final = 8
MAX_PARAMETERS: Final = 1 << 40
MAX_ABS_VALUE: Final = 1e38
"""Values stay a factor of 3 below float32's largest, so that no weighted mean can overflow."""

DTYPE_BYTES: Final[Mapping[str, int]] = {"F32": 4, "F16": 2, "BF16": 2}
_DTYPE_RANK: Final[Mapping[str, int]] = {"F32": 0, "BF16": 1, "F16": 2}
_TENSOR_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]{0,255}")
_LENGTH: Final = struct.Struct("<Q")
_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named tensor: dtype ``F32``, ``F16`` or ``BF16``, and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if _TENSOR_NAME.fullmatch(self.name) is None or ".." in self.name:
            raise ModelLayoutError(f"tensor name {self.name!r} must match {_TENSOR_NAME.pattern} without '..'")
        if self.dtype not in DTYPE_BYTES:
            raise ModelLayoutError(f"tensor {self.name!r}: dtype {self.dtype!r} is not one of F32, F16, BF16")
        if len(self.shape) > MAX_RANK or any(side < 1 for side in self.shape):
            raise ModelLayoutError(f"tensor {self.name!r}: shape {list(self.shape)} needs ≤ {MAX_RANK} sides ≥ 1")

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class ModelLayout:
    """The tensors of a model, in the canonical order; build it with ``ModelLayout.of``.

    Raises:
        ModelLayoutError: No tensor, too many, a name twice, or not in canonical order.
    """

    tensors: tuple[TensorSpec, ...]

    @classmethod
    def of(cls, tensors: Iterable[TensorSpec]) -> "ModelLayout":
        """The layout of these tensors, whatever order they come in."""
        return cls(tuple(sorted(tensors, key=_canonical_order)))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], *, dtype: str = "F32") -> "ModelLayout":
        """The layout of named arrays, all stored as ``dtype``."""
        return cls.of(TensorSpec(name, dtype, tuple(array.shape)) for name, array in arrays.items())

    def __post_init__(self) -> None:
        if not self.tensors:
            raise ModelLayoutError("a model has at least one tensor")
        if len(self.tensors) > MAX_TENSORS:
            raise ModelLayoutError(f"{len(self.tensors)} tensors; at most {MAX_TENSORS}")
        if len(self._by_name) != len(self.tensors):
            raise ModelLayoutError("a tensor's name stands twice in the layout")
        if list(self.tensors) != sorted(self.tensors, key=_canonical_order):
            raise ModelLayoutError("tensors must stand widest dtype first, then by name")
        if self.num_parameters > MAX_PARAMETERS:
            raise ModelLayoutError(f"{self.num_parameters} parameters; at most {MAX_PARAMETERS}")

    @cached_property
    def _by_name(self) -> dict[str, TensorSpec]:
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def num_parameters(self) -> int:
        """Number of values of all tensors: the length of ``flat``."""
        return sum(tensor.size for tensor in self.tensors)

    @cached_property
    def prefix(self) -> bytes:
        """The canonical bytes before the first value: length word and padded JSON header."""
        header: dict[str, object] = {}
        at = 0
        for tensor in self.tensors:
            end = at + tensor.nbytes
            header[tensor.name] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": [at, end],
            }
            at = end
        text = json.dumps(header, separators=(",", ":")).encode("ascii")
        text += b" " * (-len(text) % 8)
        return _LENGTH.pack(len(text)) + text

    @cached_property
    def nbytes(self) -> int:
        """Size of a model file in bytes."""
        return len(self.prefix) + sum(tensor.nbytes for tensor in self.tensors)

    @cached_property
    def is_float32(self) -> bool:
        """Whether every tensor is stored as float32, so that ``flat`` needs no conversion."""
        return all(tensor.dtype == "F32" for tensor in self.tensors)

    @cached_property
    def tensor_slices(self) -> tuple[slice, ...]:
        """Where each tensor lies in the flat vector, in the layout's order."""
        ends = list(accumulate(tensor.size for tensor in self.tensors))
        return tuple(slice(end - tensor.size, end) for tensor, end in zip(self.tensors, ends, strict=True))

    def slices(self, names: Sequence[str]) -> tuple[slice, ...]:
        """Where the named tensors lie in the flat vector, in the layout's order, joined where they touch.

        Raises:
            ModelLayoutError: A name is not in the layout, or stands twice.
        """
        wanted = set(names)
        if missing := wanted - self._by_name.keys():
            raise ModelLayoutError(f"no tensor named {', '.join(sorted(missing))} in the layout")
        if len(wanted) != len(names):
            raise ModelLayoutError("a tensor is named twice")
        pieces: list[slice] = []
        for tensor, piece in zip(self.tensors, self.tensor_slices, strict=True):
            if tensor.name not in wanted:
                continue
            if pieces and pieces[-1].stop == piece.start:
                pieces[-1] = slice(pieces[-1].start, piece.stop)
            else:
                pieces.append(piece)
        return tuple(pieces)


def _canonical_order(tensor: TensorSpec) -> tuple[int, str]:
    return _DTYPE_RANK[tensor.dtype], tensor.name


def encode_model(layout: ModelLayout, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Named arrays to canonical bytes.

    Args:
        layout: The layout to write; values are converted to its dtypes (BF16: nearest, ties to even).
        arrays: One array for each tensor of the layout, of its shape.

    Raises:
        ModelLayoutError: A tensor is missing, superfluous, or of another shape.
    """
    missing = [t.name for t in layout.tensors if t.name not in arrays]
    extra = [name for name in arrays if name not in layout._by_name]  # noqa: SLF001 (same module)
    if missing or extra:
        raise ModelLayoutError(_names_differ(missing, extra))
    parts = [layout.prefix]
    for tensor in layout.tensors:
        array = np.asarray(arrays[tensor.name])
        if tuple(array.shape) != tensor.shape:
            raise ModelLayoutError(
                f"tensor {tensor.name!r} has shape {list(array.shape)}, the layout says {list(tensor.shape)}"
            )
        parts.append(_to_bytes(array, tensor.dtype))
    return b"".join(parts)


def encode_flat(layout: ModelLayout, vector: Vector32) -> bytes:
    """The flat vector, shape ``(num_parameters,)``, to canonical bytes; the inverse of ``flat``.

    Raises:
        ModelLayoutError: The vector has another length.
    """
    if vector.shape != (layout.num_parameters,):
        raise ModelLayoutError(f"flat vector of shape {vector.shape}, the layout has {layout.num_parameters} values")
    if layout.is_float32:
        return b"".join((layout.prefix, np.ascontiguousarray(vector, "<f4").data.cast("B")))
    pieces = zip(layout.tensors, layout.tensor_slices, strict=True)
    return b"".join((layout.prefix, *(_to_bytes(vector[piece], tensor.dtype) for tensor, piece in pieces)))


def decode_model(layout: ModelLayout, data: Buffer) -> dict[str, NDArray[np.float32]]:
    """Canonical bytes to named float32 arrays (read-only views where the file is float32).

    Raises:
        ModelError: As ``check_model``, except that values are not looked at.
    """
    check_encoding(layout, data)
    vector = flat(layout, data)
    pieces = zip(layout.tensors, layout.tensor_slices, strict=True)
    return {tensor.name: vector[piece].reshape(tensor.shape) for tensor, piece in pieces}


def flat(layout: ModelLayout, data: Buffer) -> Vector32:
    """All parameters of checked bytes as one float32 vector, shape ``(num_parameters,)``."""
    body = memoryview(data)[len(layout.prefix) :]
    if layout.is_float32:
        return np.frombuffer(body, "<f4")
    pieces, at = [], 0
    for tensor in layout.tensors:
        pieces.append(values_of(body[at : at + tensor.nbytes], tensor.dtype))
        at += tensor.nbytes
    return np.concatenate(pieces)


def similarity_vector(layout: ModelLayout, vector: Vector32, names: Sequence[str]) -> Vector32:
    """The part of the flat vector that is compared: the tensors ``names``, joined.

    Source: DAG-ACFL, Sec. III-D (the last layer), IV-A (for CNNs the last two).
    """
    pieces = [vector[piece] for piece in layout.slices(names)]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def model_norm(vector: Vector32) -> float:
    """Euclidean norm, the same to the bit on every processor.

    Squares of float32 values are exact in float64. They are added in one fixed order by nothing but element-wise
    steps (no BLAS, whose order is the processor's): in blocks, one half to the other until one is left.
    """
    total = 0.0
    for start in range(0, len(vector), _BLOCK):
        squares = vector[start : start + _BLOCK].astype(np.float64)
        np.square(squares, out=squares)
        while len(squares) > 1:
            half = len(squares) // 2
            rest = squares[half:]  # as long, or longer by one
            rest[:half] += squares[:half]
            squares = rest
        total += float(squares[0])
    return math.sqrt(total)


def check_encoding(layout: ModelLayout, data: Buffer) -> None:
    """Check that the bytes are a canonical file of this layout; values are not looked at.

    Raises:
        ModelTooLargeError: The header has more than 1 MiB or 4,096 tensors.
        ModelMalformedError: Not a safetensors file.
        ModelLayoutError: Other tensors than the layout's.
        ModelNotCanonicalError: The right tensors in another encoding.
    """
    if len(data) == layout.nbytes and memoryview(data)[: len(layout.prefix)] == layout.prefix:
        return
    got = {entry.spec.name: entry.spec for entry in _parse_header(data)}
    want = {tensor.name: tensor for tensor in layout.tensors}
    if got.keys() != want.keys():
        raise ModelLayoutError(_names_differ(sorted(want.keys() - got.keys()), sorted(got.keys() - want.keys())))
    for name, spec in got.items():
        if spec != want[name]:
            expected = f"{want[name].dtype}{list(want[name].shape)}"
            raise ModelLayoutError(f"tensor {name!r} is {spec.dtype}{list(spec.shape)}, genesis says {expected}")
    raise ModelNotCanonicalError(
        "the tensors are right but not in canonical encoding: no __metadata__, widest dtype first, then by "
        "name, compact JSON padded with spaces to 8 bytes (the genesis model shows the exact header)"
    )


def check_model(layout: ModelLayout, data: Buffer, *, max_abs: float = MAX_ABS_VALUE) -> Vector32:
    """Check encoding and values of a model that came from outside; return its flat vector.

    Args:
        layout: The layout that genesis fixes.
        data: The whole file.
        max_abs: Largest magnitude allowed for a value, at most ``MAX_ABS_VALUE``.

    Raises:
        ModelError: As ``check_encoding``.
        ModelNotFiniteError: A value is NaN, infinite or beyond ``max_abs``.
    """
    check_encoding(layout, data)
    vector = flat(layout, data)
    for start in range(0, len(vector), _BLOCK):
        block = vector[start : start + _BLOCK]
        # min and max propagate NaN, and a comparison with NaN is false: one test for all three faults.
        if not (float(block.max()) <= max_abs and float(block.min()) >= -max_abs):
            place = start + int(np.argmin(np.abs(block) <= max_abs))
            raise ModelNotFiniteError(_beyond(layout, vector, place, max_abs))
    return vector


def _beyond(layout: ModelLayout, vector: Vector32, place: int, max_abs: float) -> str:
    """What to say of a value that is NaN, infinite or too large."""
    pieces = zip(layout.tensors, layout.tensor_slices, strict=True)
    name = next(tensor.name for tensor, piece in pieces if place < piece.stop)
    return f"tensor {name!r} holds {vector[place]:g}; values must be finite and within ±{max_abs:g}"


def read_layout(data: Buffer) -> ModelLayout:
    """The layout of a safetensors file from a person's own disk (``ledger init``), under the same limits.

    Raises:
        ModelError: As ``check_encoding``; the file need not be in canonical order, and may have ``__metadata__``.
    """
    return ModelLayout.of(entry.spec for entry in _parse_header(data, has_metadata=True))


def decode_any_order(data: Buffer) -> dict[str, NDArray[np.float32]]:
    """Named float32 arrays of a person's own safetensors file, in any tensor order; ``__metadata__`` is left out."""
    entries = _parse_header(data, has_metadata=True)
    body = memoryview(data)[_body_start(data) :]
    return {
        entry.spec.name: values_of(body[entry.start : entry.end], entry.spec.dtype).reshape(entry.spec.shape)
        for entry in entries
    }


@dataclass(frozen=True, slots=True)
class _Entry:
    spec: TensorSpec
    start: int
    end: int


def _parse_header(data: Buffer, *, has_metadata: bool = False) -> list[_Entry]:
    """Parse a safetensors header under hard limits: cheap to refuse, whatever it claims.

    Args:
        data: The whole file.
        has_metadata: It may have ``__metadata__``, which is left out.
    """
    if len(data) < _LENGTH.size:
        raise ModelMalformedError(f"{len(data)} bytes are no safetensors file: the length word alone has 8")
    body = _body_start(data)
    if body - _LENGTH.size > MAX_HEADER_BYTES:
        raise ModelTooLargeError(
            f"the header claims {body - _LENGTH.size} bytes; at most {MAX_HEADER_BYTES}", limit=MAX_HEADER_BYTES
        )
    if body < _LENGTH.size + 2 or body > len(data):
        raise ModelMalformedError(
            f"the header claims {body - _LENGTH.size} bytes, the file holds {len(data) - _LENGTH.size}"
        )
    header = _parse_json_object(bytes(memoryview(data)[_LENGTH.size : body]), has_metadata=has_metadata)
    entries = sorted((_entry(name, value) for name, value in header.items()), key=lambda e: (e.start, e.end))
    if not entries:
        raise ModelLayoutError("the file holds no tensors")
    at = 0
    for entry in entries:
        if entry.start != at:
            raise ModelMalformedError(
                f"tensor {entry.spec.name!r} starts at {entry.start}, expected {at}: hole or overlap"
            )
        at = entry.end
    if at != len(data) - body:
        raise ModelMalformedError(f"the tensors end at byte {at}, the file's data at {len(data) - body}")
    return entries


def _body_start(data: Buffer) -> int:
    (length,) = _LENGTH.unpack_from(data)
    return _LENGTH.size + int(length)


def _parse_json_object(text: bytes, *, has_metadata: bool) -> dict[str, Any]:
    if text.count(b'"dtype"') > MAX_TENSORS:
        raise ModelTooLargeError(f"more than {MAX_TENSORS} tensors", limit=MAX_TENSORS)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError) as error:
        raise ModelMalformedError(f"the header is not JSON: {error}"[:200]) from error
    if not isinstance(header, dict):
        raise ModelMalformedError("the header is not a JSON object")
    if "__metadata__" in header:
        if not has_metadata:
            raise ModelNotCanonicalError(
                "__metadata__ is not allowed: a model's bytes are its values and nothing else; safetensors' "
                "save_file(load_file(FILE), FILE) writes them without it"
            )
        del header["__metadata__"]
    return header


def _entry(name: str, value: object) -> _Entry:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelMalformedError(f"tensor {name[:80]!r} needs exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise ModelMalformedError(f"tensor {name[:80]!r}: dtype, shape or offsets mistyped")
    spec = TensorSpec(name, dtype, tuple(shape))
    if offsets[1] - offsets[0] != spec.nbytes:
        raise ModelMalformedError(
            f"tensor {name!r} needs {spec.nbytes} bytes, its offsets span {offsets[1] - offsets[0]}"
        )
    return _Entry(spec, offsets[0], offsets[1])


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice")
    return result


def _names_differ(missing: Sequence[str], extra: Sequence[str]) -> str:
    said = [f"{word} {', '.join(names[:5])}" for word, names in (("missing", missing), ("unexpected", extra)) if names]
    return "the tensors are not those of genesis: " + "; ".join(said)


def _to_bytes(array: NDArray[Any], dtype: str) -> bytes:
    if dtype == "F32":
        return np.ascontiguousarray(array, "<f4").tobytes()
    if dtype == "F16":
        # Values beyond float16's range become infinite here and are refused by check_model, with its message.
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(array, "<f2").tobytes()
    bits = np.ascontiguousarray(array, "<f4").view("<u4")
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    nan = np.isnan(array)
    return np.where(nan, 0x7FC0, rounded).astype("<u2").tobytes()


def values_of(data: memoryview, dtype: str) -> Vector32:
    """The values of a tensor's bytes as float32, shape ``(n,)``; a view where they are float32 already."""
    if dtype == "F32":
        return np.frombuffer(data, "<f4")
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype("<f4")
    return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
