"""What an aggregator is given and what it returns.

Models come as sources that are read in pieces, so that a server can average thirty models of 13 MB
without holding thirty models of 13 MB. The order of the sources is part of the input: float addition is
not associative, so callers pass models in ascending transaction id and every server gets the same bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fl_core.errors import ShapeMismatchError
from fl_core.types import Vector32


@runtime_checkable
class VectorSource(Protocol):
    """A model's float32 values, wherever they are kept."""

    @property
    def size(self) -> int:
        """Number of values."""

    def read(self, start: int, stop: int) -> Vector32:
        """Values ``start`` to ``stop`` (exclusive), shape ``(stop - start,)``; not to be written to."""


@dataclass(frozen=True, slots=True, eq=False)
class ArraySource:
    """A model that is in memory already; ``read`` gives views, not copies."""

    values: Vector32

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.dtype != np.float32:
            raise ShapeMismatchError(f"a model is float32 of shape (p,), not {self.values.dtype} {self.values.shape}")

    @property
    def size(self) -> int:
        return int(self.values.size)

    def read(self, start: int, stop: int) -> Vector32:
        """A view of values ``start`` to ``stop``."""
        return self.values[start:stop]


@runtime_checkable
class Aggregator(Protocol):
    """A rule that makes one model of several; instances are immutable and safe to share between threads."""

    @property
    def name(self) -> str:
        """The registry's name for this rule."""

    @property
    def params(self) -> Any:
        """The frozen dataclass of its parameters."""

    @property
    def min_models(self) -> int:
        """How many models the rule needs to keep out one that is wrong; 1 where it keeps out none anyway."""

    def aggregate(self, sources: Sequence[VectorSource], weights: Sequence[float]) -> Vector32:
        """One model of ``sources``, which the caller gives in ascending transaction id.

        Args:
            sources: At least one; all of one size.
            weights: One per source, finite, not negative, not all zero; normalised here.

        Returns:
            A new array of the sources' size; the same bytes on every machine for the same input.

        Raises:
            ShapeMismatchError: sources differ in size, or weights in number.
            ValueError: no source, or weights outside their range.
        """

    def shares(self, weights: Sequence[float]) -> list[float]:
        """The largest part that each model can have of a value of the aggregate.

        Exact for a mean, whose shares sum to 1; of a rule that chooses among values or models, what one of them has
        where it is chosen. What descends from a model is measured by it (``fl_core.dag.figures``).

        Args:
            weights: As for ``aggregate``.

        Returns:
            One of 0 to 1 for each weight; 0 where the weight is 0.
        """


def check_input(sources: Sequence[VectorSource], weights: Sequence[float]) -> int:
    """The sources' common size.

    Raises:
        ShapeMismatchError: sources differ in size, or weights in number.
        ValueError: no source; a weight negative or not finite; all weights 0.
    """
    if not sources:
        raise ValueError("there is no mean of no models")
    if len(weights) != len(sources):
        raise ShapeMismatchError(f"{len(sources)} models but {len(weights)} weights")
    sizes = {source.size for source in sources}
    if len(sizes) > 1:
        raise ShapeMismatchError(f"models of different sizes: {sorted(sizes)}")
    if any(not math.isfinite(weight) or weight < 0 for weight in weights) or not any(weights):
        raise ValueError("weights must be finite, not negative, and not all 0")
    return sizes.pop()


def equal_shares(weights: Sequence[float], kept: int) -> list[float]:
    """``shares`` of a rule that averages ``kept`` values or models of those whose weight is not 0, all alike."""
    return [1 / kept if weight > 0 else 0.0 for weight in weights]


def counted(sources: Sequence[VectorSource], weights: Sequence[float]) -> list[VectorSource]:
    """The sources whose weight is not 0, for rules to which a weight says no more than that.

    Raises:
        ShapeMismatchError, ValueError: As ``check_input``.
    """
    check_input(sources, weights)
    return [source for source, weight in zip(sources, weights, strict=True) if weight > 0]
