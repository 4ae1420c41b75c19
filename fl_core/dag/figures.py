"""Figures of an update that are computed once, at admission, and kept when models are pruned.

    offset  size  field
    0       1     flags: 1, the step's figures follow
    1       8     Euclidean norm of the model, a double
    [9      8     Euclidean norm of the step: model minus ``start``
    17      2     number of tensors n, then 8 bytes each: norm of the step in that tensor, in the layout's order]
    …       2     number of parents m (0: not known), then 4 bytes each: float32 weight of the parent's model in the
                  average, in the parents' order

Doubles and float32 are big-endian IEEE 754, finite, at least 0, and not -0.0.
"""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_core.dag.encoding import Reader, is_canonical_double
from fl_core.errors import CheckpointMalformedError

MAX_TENSORS: Final = 4096
MAX_WEIGHTS: Final = 1024
_LARGEST: Final = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Step:
    """An author's change of the model: its norm, whole and by tensor."""

    norm: float
    by_tensor: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """See the module docstring; ``step`` is None where the model that training began from is not known.

    Raises:
        CheckpointMalformedError: A number is out of range.
    """

    norm: float
    step: Step | None = None
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        lengths = () if self.step is None else (self.step.norm, *self.step.by_tensor)
        numbers = (self.norm, *lengths, *self.weights)
        if not all(is_canonical_double(value) and value >= 0 for value in numbers):
            raise CheckpointMalformedError("an update's figures are finite, at least 0, and not -0.0")
        if any(weight > _LARGEST or float(np.float32(weight)) != weight for weight in self.weights):
            raise CheckpointMalformedError("weights are float32 values")
        if len(self.weights) > MAX_WEIGHTS or len(lengths) > 1 + MAX_TENSORS:
            raise CheckpointMalformedError(f"at most {MAX_WEIGHTS} weights and {MAX_TENSORS} tensors")

    def encode(self) -> bytes:
        parts = [struct.pack(">Bd", self.step is not None, self.norm)]
        if self.step is not None:
            count = len(self.step.by_tensor)
            parts.append(struct.pack(f">dH{count}d", self.step.norm, count, *self.step.by_tensor))
        parts.append(struct.pack(f">H{len(self.weights)}f", len(self.weights), *self.weights))
        return b"".join(parts)


def read_figures(reader: Reader) -> Figures:
    """Take figures from the front of a longer value.

    Raises:
        The reader's error, CheckpointMalformedError: The bytes are not their encoding.
    """
    flags = reader.take(1)[0]
    if flags > 1:
        raise reader.error(f"unknown flags {flags} of an update's figures")
    norm = reader.double()
    step = Step(reader.double(), tuple(reader.double() for _ in range(reader.count(MAX_TENSORS)))) if flags else None
    count = reader.count(MAX_WEIGHTS)
    weights: tuple[float, ...] = struct.unpack(f">{count}f", reader.take(4 * count))
    return Figures(norm, step, weights)


def norm_in(data: bytes) -> float:
    """The model's norm out of canonical bytes: a server that starts asks for it of every transaction."""
    norm: float = struct.unpack_from(">d", data, 1)[0]
    return norm
