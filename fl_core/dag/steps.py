"""How long a step may be: an update's model may lie only so far from the average of its parents.

A bound follows from the parents alone, so that every server finds the same one and what an author made by itself moves
nobody else's:

    upon genesis     F = max_first_step · |genesis|
    upon others      min(F, max_step_growth · max(median of the parents' steps, 1 % of the median of their norms))
    upon the author's own newest alone    the bound that this parent had: repeating oneself is no way to longer steps

and in each tensor max_layer_growth · max(median of the parents' steps in it, a tenth of the median of their whole
steps), where the ledger bounds these. A genesis model of zeros says nothing about scale: then F bounds nothing. The
share of the norms is a floor: parents that hardly moved, because they have learnt all or lie, leave room for others.
"""

import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_core.dag.figures import Step, step_from
from fl_core.dag.genesis import NO_BOUND, Bounds
from fl_core.dag.graph import Node
from fl_core.errors import StepTooLongError
from fl_core.models import ModelLayout, encode_flat, flat
from fl_core.types import Vector32

SHORTEST: Final = 0.01
"""Of the parents' models: a step so long is never counted as longer than its parents'."""
LEAST_IN_TENSOR: Final = 0.1
"""Of the parents' whole steps: the same for a tensor in which they hardly moved."""
_ROOM: Final = 1e-3
_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class StepBound:
    """The longest step that an update may make.

    Attributes:
        norm: Whole; infinite where nothing bounds it.
        by_tensor: In each tensor, in the layout's order; empty where nothing bounds them.
        is_exact: Whether all parents' steps are known here. Where one is not, as behind a checkpoint, it counts as
            none, and the bound holds for publications here, not for what peers have admitted.
    """

    norm: float
    by_tensor: tuple[float, ...] = ()
    is_exact: bool = True


NO_STEP_BOUND: Final = StepBound(math.inf)


def step_bound(parents: Sequence[Node], *, genesis_norm: float, num_tensors: int, bounds: Bounds) -> StepBound:
    """The bound of an update that names these parents and is not upon its author's own newest alone.

    Args:
        parents: At least one.
        genesis_norm: Euclidean norm of genesis's model.
        num_tensors: Of a model.
        bounds: The ledger's.
    """
    first = bounds.max_first_step * genesis_norm
    longest = first if 0 < first < NO_BOUND else math.inf
    updates = [node.figures for node in parents if node.parents]
    if not updates:
        return StepBound(longest)
    # A step that is not known here counts as none: the bound is then never wider than where it is known.
    usual = statistics.median(0.0 if each.step is None else each.step.norm for each in updates)
    whole = max(usual, SHORTEST * statistics.median(each.norm for each in updates))
    if bounds.max_step_growth < NO_BOUND:
        longest = min(longest, bounds.max_step_growth * whole)
    tensors: tuple[float, ...] = ()
    if bounds.max_layer_growth < NO_BOUND:
        none = (0.0,) * num_tensors
        layers = [none if each.step is None else each.step.by_tensor or none for each in updates]
        medians = map(statistics.median, zip(*layers, strict=True))
        tensors = tuple(bounds.max_layer_growth * max(median, LEAST_IN_TENSOR * whole) for median in medians)
    return StepBound(longest, tensors, is_exact=all(each.step is not None for each in updates))


def check_step(step: Step, bound: StepBound, *, layout: ModelLayout, slack: float) -> None:
    """Rule 6.

    Args:
        step: Of an update.
        bound: What it may be.
        layout: Names the tensors.
        slack: Relative.

    Raises:
        StepTooLongError: It is longer.
    """
    if step.norm > bound.norm * (1 + slack):
        raise StepTooLongError(
            f"the step from the parents' average is {step.norm:.6g} long, and may be {bound.norm:.6g}; shorten it",
            norm=step.norm,
            bound=bound.norm,
        )
    for tensor, norm, most in zip(layout.tensors, step.by_tensor, bound.by_tensor, strict=False):
        if norm > most * (1 + slack):
            raise StepTooLongError(
                f"the step from the parents' average is {norm:.6g} long in {tensor.name}, and may be {most:.6g}; "
                "shorten it",
                norm=norm,
                bound=most,
                tensor=tensor.name,
            )


def shortened(model: Vector32, average: Vector32, bound: StepBound, *, layout: ModelLayout) -> Vector32:
    """The model, moved towards the average until its step is within the bound; itself where it is.

    Args:
        model: Shape ``(P,)``, such as its file holds.
        average: Shape ``(P,)``.
        bound: The longest step.
        layout: Of both; the result's values are such as its file can hold.
    """
    found = model
    for attempt in range(_ATTEMPTS):  # a float16 that is rounded may lie beyond the bound again
        step, room = step_from(average, found, layout=layout), 1 - _ROOM * (attempt + 1)
        if step.norm <= bound.norm and all(map(operator.le, step.by_tensor, bound.by_tensor)):
            return found
        mosts = bound.by_tensor or (math.inf,) * len(step.by_tensor)
        scales = [_scale(norm, most * room) for norm, most in zip(step.by_tensor, mosts, strict=True)]
        left = math.sqrt(math.fsum((norm * scale) ** 2 for norm, scale in zip(step.by_tensor, scales, strict=True)))
        change, whole = found - average, _scale(left, bound.norm * room)
        for piece, scale in zip(layout.tensor_slices, scales, strict=True):
            change[piece] *= np.float32(scale * whole)
        found = flat(layout, encode_flat(layout, average + change))
    return found


def _scale(norm: float, most: float) -> float:
    return 1.0 if norm <= most else most / norm
