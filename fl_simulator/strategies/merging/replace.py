"""The average takes the own model's place: federated averaging, and [DAG-ACFL Alg. 1]."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fl_core.types import Vector32
from fl_simulator.strategies.merging.protocol import check_models

NAME: Final = "replace"


@dataclass(frozen=True, slots=True)
class ReplaceParams:
    """Replacing has no parameters."""


def replace(own: Vector32, average: Vector32) -> Vector32:
    """The average, as a new array.

    Raises:
        ShapeMismatchError: The models differ in size.

    Source: [DAG-ACFL Alg. 1], lines 17 and 22.
    """
    check_models(own, average)
    return average.copy()


@dataclass(frozen=True, slots=True)
class Replace:
    """Go on from the average; the own model counts only as far as the average contains it."""

    params: ReplaceParams = field(default_factory=ReplaceParams)
    name: str = NAME

    def merge(self, own: Vector32, average: Vector32, *, tensors: Sequence[slice]) -> Vector32:  # noqa: ARG002
        """See ``Merge.merge``."""
        return replace(own, average)
