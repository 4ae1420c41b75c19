"""What a merge is given and what it returns.

A merge joins the average that a client received with the model that it has. Which models are averaged, and who may ask,
is decided elsewhere; what is merged is where the client's next training starts.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fl_core.errors import ShapeMismatchError
from fl_core.types import Vector32


@runtime_checkable
class Merge(Protocol):
    """A rule that makes one model of a client's own and the average; instances are immutable and safe to share."""

    @property
    def name(self) -> str:
        """The registry's name for this rule."""
        ...

    @property
    def params(self) -> Any:
        """The frozen dataclass of its parameters."""
        ...

    def merge(self, own: Vector32, average: Vector32, *, tensors: Sequence[slice]) -> Vector32:
        """The model to go on from.

        Args:
            own: The client's newest model, shape ``(p,)``.
            average: What it received, shape ``(p,)``.
            tensors: Where the model's tensors lie, one after another from 0 to p; rules that do not tell tensors
                apart ignore them.

        Returns:
            A new array, shape ``(p,)``; each value lies between the two models' values.

        Raises:
            ShapeMismatchError: The models differ in size, or the tensors do not cover them.
        """
        ...


def check_models(own: Vector32, average: Vector32) -> None:
    """Refuse two models that are none, or not of one size.

    Raises:
        ShapeMismatchError: One is not a vector of float32, or they differ in size.
    """
    for model in (own, average):
        if model.ndim != 1 or model.dtype != np.float32:
            raise ShapeMismatchError(f"a model is float32 of shape (p,), not {model.dtype} {model.shape}")
    if own.shape != average.shape:
        raise ShapeMismatchError(f"models of different sizes: {own.size} and {average.size}")
