"""DecDiff: a step from the own model towards the average, shorter in proportion the further away the average is.

    w ← w + (w̄ - w) / (‖w̄ - w‖₂ + s)

The step's length is d / (d + s) for a distance d: never 1 or more, and never beyond the average. Models that started
differently are far apart and are not torn to a mean that none of them resembles; models that agree come together.

[DecDiff Eq. 5] has one distance for the whole model, its text says that aggregation "is done layerwise".
``distance`` chooses: ``model`` is the formula, ``tensor`` the text, one distance for each tensor.

Deviation: in [DecDiff Eq. 6] the average is of the neighbours without the own model. A ledger's average contains
the client's own tip while that is one; that shortens w̄ - w and leaves its direction as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fl_core.errors import ParameterError, ShapeMismatchError
from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.strategies.merging.protocol import check_models

NAME: Final = "decdiff"


@dataclass(frozen=True, slots=True)
class DecDiffParams:
    """Parameters of DecDiff."""

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


def decdiff(own: Vector32, average: Vector32, *, s: float = 1.0, tensors: Sequence[slice] = ()) -> Vector32:
    """The own model moved towards the average.

    Args:
        own: Shape ``(p,)``.
        average: Shape ``(p,)``.
        s: Added to the distance, 1 ≤ s < ∞.
        tensors: Empty: one distance for all values. Else one for each piece; they follow one another from 0 to p.

    Returns:
        A new array, shape ``(p,)``. Distances and steps are computed in float64 and rounded once, so that values
        within ``MAX_ABS_VALUE`` cannot overflow.

    Raises:
        ParameterError: s below 1, or not finite.
        ShapeMismatchError: The models differ in size, or the pieces do not cover them.

    Source: [DecDiff Eq. 5].
    """
    check_models(own, average)
    if not 1 <= s < np.inf:
        raise ParameterError(f"decdiff: s must be at least 1 and finite, not {s}")
    _check_pieces(tensors, own.size)
    step = np.subtract(average, own, dtype=np.float64)  # (p,)
    for piece in tensors or [slice(0, own.size)]:
        part = step[piece]
        part /= np.sqrt(np.dot(part, part)) + s
    step += own
    return step.astype(np.float32)


def _check_pieces(tensors: Sequence[slice], size: int) -> None:
    at = 0
    for piece in tensors:
        if piece.start != at or piece.stop < at or piece.step not in (None, 1):
            raise ShapeMismatchError(f"tensors must follow one another: {piece} does not begin at {at}")
        at = piece.stop
    if tensors and at != size:
        raise ShapeMismatchError(f"tensors of {at} values in all, in a model of {size}")


@dataclass(frozen=True, slots=True)
class DecDiff:
    """Merge by [DecDiff Eq. 5]; see this module for the step's length."""

    params: DecDiffParams = field(default_factory=DecDiffParams)
    name: str = NAME

    def merge(self, own: Vector32, average: Vector32, *, tensors: Sequence[slice]) -> Vector32:
        """See ``Merge.merge``."""
        return decdiff(own, average, s=self.params.s, tensors=tensors if self.params.distance == "tensor" else ())
