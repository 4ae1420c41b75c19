"""Merging: where a client goes on from, given its own model and the average that it received."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_core.parameters import NoParams, parameter
from fl_core.registry import PartRegistry
from fl_core.types import Vector32


def decdiff(own: Vector32, average: Vector32, *, s: float, tensors: Sequence[slice] = ()) -> Vector32:
    """DecDiff: a step from the own model towards the average, shorter the further away the average is.

        w ← w + (w̄ - w) / (‖w̄ - w‖₂ + s)

    The step's length is d / (d + s) for a distance d: never 1 or more, and never beyond the average. Models that
    started differently are far apart and are not torn to a mean that none of them resembles; models that agree come
    together. [DecDiff Eq. 5] has one distance for the whole model, its text says that aggregation "is done layerwise".

    Args:
        own: Shape ``(p,)``.
        average: Shape ``(p,)``.
        s: Added to the distance, 1 ≤ s < ∞.
        tensors: Empty: one distance for all values. Else one for each piece; they follow one another from 0 to p.

    Returns:
        A new array, shape ``(p,)``. Distances and steps are computed in float64 and rounded once, so that values
        within ``MAX_ABS_VALUE`` cannot overflow.

    Source: [DecDiff Eq. 5].
    """
    step = np.subtract(average, own, dtype=np.float64)  # (p,)
    for piece in tensors or [slice(0, own.size)]:
        part = step[piece]
        part /= np.sqrt(np.dot(part, part)) + s
    step += own
    return step.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Replace:
    """The average takes the own model's place: federated averaging, and [DAG-ACFL Alg. 1], lines 17 and 22."""

    params: NoParams

    def merge(self, own: Vector32, average: Vector32, *, tensors: Sequence[slice]) -> Vector32:  # noqa: ARG002
        """The average itself."""
        return average


@dataclass(frozen=True, slots=True)
class DecDiffParams:
    s: float = parameter(
        1.0,
        at_least=1.0,
        doc="Added to the distance: the larger, the shorter the step. 1 follows [DecDiff Sec. IV-B1].",
    )
    distance: str = parameter(
        "model",
        choices=("model", "tensor"),
        doc="One distance for the whole model ([DecDiff Eq. 5]), or one for each tensor (its text).",
    )


@dataclass(frozen=True, slots=True)
class DecDiff:
    """A step of ``decdiff``.

    Deviation: in [DecDiff Eq. 6] the average is of the neighbours without the own model. A ledger's average contains
    the client's own tip while that is one; that shortens w̄ - w and leaves its direction as it is.
    """

    params: DecDiffParams

    def merge(self, own: Vector32, average: Vector32, *, tensors: Sequence[slice]) -> Vector32:
        """The own model moved; ``tensors`` says where the model's tensors lie, one after another."""
        return decdiff(own, average, s=self.params.s, tensors=tensors if self.params.distance == "tensor" else ())


MERGES: Final = PartRegistry[Replace | DecDiff]("merge", {"replace": Replace, "decdiff": DecDiff})
