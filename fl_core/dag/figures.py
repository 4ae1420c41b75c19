"""Figures of an update that are computed once, at admission, and kept when models are pruned.

    offset  size  field
    0       1     flags: 1, the step's figures follow
    1       8     Euclidean norm of the model, a double
    [9      8     Euclidean norm of the step: model minus the average of the parents' models
    17      2     number of tensors n, then 8 bytes each: norm of the step in that tensor, in the layout's order]
    …       2     number of parents m (0: genesis), then 4 bytes each: float32 share of the parent's model in that
                  average, in the parents' order (``fl_core.aggregation.protocol.Aggregator.shares``)

The average is the ledger's own, by its aggregator and its weights, whatever a client began to train from.

Doubles and float32 are big-endian IEEE 754, finite, at least 0, and not -0.0.
"""

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from fl_core.dag.encoding import Reader, is_canonical_double
from fl_core.errors import CheckpointMalformedError
from fl_core.models import ModelLayout, model_norm
from fl_core.types import Vector32

MAX_TENSORS: Final = 4096
MAX_SHARES: Final = 1024
_HEAD: Final = struct.Struct(">?d")
_STEP: Final = struct.Struct(">dH")
_COUNT: Final = struct.Struct(">H")
_LARGEST: Final = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Step:
    """An author's change of the model: its norm, whole and by tensor."""

    norm: float
    by_tensor: tuple[float, ...]


def step_from(average: Vector32, model: Vector32, *, layout: ModelLayout) -> Step:
    """The step from the average of an update's parents to its model; the same to the bit on every processor.

    Args:
        average: Shape ``(P,)``.
        model: Shape ``(P,)``.
        layout: Of both.
    """
    change = model - average
    by_tensor = tuple(model_norm(change[piece]) for piece in layout.tensor_slices)
    return Step(math.sqrt(math.fsum(norm * norm for norm in by_tensor)), by_tensor)


@dataclass(frozen=True, slots=True)
class Figures:
    """See the module docstring; ``step`` is None where a parent's model is not here (any more), and of genesis."""

    norm: float
    step: Step | None = None
    shares: tuple[float, ...] = ()

    def encode(self) -> bytes:
        """Canonical bytes.

        Raises:
            CheckpointMalformedError: A number is out of range.
        """
        self.check()
        return self.pack()

    def pack(self) -> bytes:
        """The same bytes; numbers are not checked."""
        parts = [struct.pack(">Bd", self.step is not None, self.norm)]
        if self.step is not None:
            count = len(self.step.by_tensor)
            parts.append(struct.pack(f">dH{count}d", self.step.norm, count, *self.step.by_tensor))
        parts.append(struct.pack(f">H{len(self.shares)}f", len(self.shares), *self.shares))
        return b"".join(parts)

    def check(self) -> None:
        """Raise ``CheckpointMalformedError`` unless every number is in range."""
        lengths = () if self.step is None else (self.step.norm, *self.step.by_tensor)
        numbers = (self.norm, *lengths, *self.shares)
        if not all(is_canonical_double(value) and value >= 0 for value in numbers):
            raise CheckpointMalformedError("an update's figures are finite, at least 0, and not -0.0")
        if any(share > _LARGEST or float(np.float32(share)) != share for share in self.shares):
            raise CheckpointMalformedError("shares are float32 values")
        if len(self.shares) > MAX_SHARES or len(lengths) > 1 + MAX_TENSORS:
            raise CheckpointMalformedError(f"at most {MAX_SHARES} shares and {MAX_TENSORS} tensors")


def difference(recorded: Figures, computed: Figures, *, slack: float) -> str | None:
    """The first of the recorded figures that is another than was computed from models, in words.

    Args:
        recorded: What a server has noted.
        computed: Of the same model; what could not be computed is not compared.
        slack: Relative.
    """
    pairs = [("norm", recorded.norm, computed.norm)]
    if recorded.step is not None and computed.step is not None:
        pairs.append(("step", recorded.step.norm, computed.step.norm))
        tensors = zip(recorded.step.by_tensor, computed.step.by_tensor, strict=False)
        pairs += [(f"step in tensor {place}", *pair) for place, pair in enumerate(tensors)]
    if computed.shares and len(recorded.shares) != len(computed.shares):
        return "the shares recorded of its parents are not as many as these"
    shares = zip(recorded.shares, computed.shares, strict=False)
    pairs += [(f"share of parent {place}", *pair) for place, pair in enumerate(shares)]
    wrong = (each for each in pairs if abs(each[1] - each[2]) > slack * abs(each[2]))
    return next((f"{what}: {was:.9g} is recorded, it is {found:.9g}" for what, was, found in wrong), None)


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
    count = reader.count(MAX_SHARES)
    shares: tuple[float, ...] = struct.unpack(f">{count}f", reader.take(4 * count))
    figures = Figures(norm, step, shares)
    figures.check()
    return figures


@lru_cache(4096)  # of what is chosen now: the bound of a step asks for it of every parent, three times a round
def decode_figures(data: bytes) -> Figures:
    """What ``encode`` made, out of a server's own journal.

    Raises:
        CheckpointMalformedError: The bytes are not that. Numbers are not checked (``Figures.check``).
    """
    try:
        has_step, norm = _HEAD.unpack_from(data)
        at, step = _HEAD.size, None
        if has_step:
            length, count = _STEP.unpack_from(data, at)
            step = Step(length, struct.unpack_from(f">{count}d", data, at + _STEP.size))
            at += _STEP.size + 8 * count
        (count,) = _COUNT.unpack_from(data, at)
        shares: tuple[float, ...] = struct.unpack(f">{count}f", data[at + _COUNT.size :])
    except struct.error as error:
        raise CheckpointMalformedError(f"not an update's figures: {error}") from error
    return Figures(norm, step, shares)
