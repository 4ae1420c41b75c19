"""A trainer without torch: each epoch moves every weight half of the way to the site's own target."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fl_client.training import Arrays, Hints, TrainingResult
from fl_core.models import ModelLayout
from tests.builders import LAYOUT


class TinyTrainer:
    """Loss is the distance to the target, accuracy falls with it.

    Args:
        target: Where this site's weights want to be.
        during: Called in the middle of each training.
    """

    def __init__(
        self, target: float, *, layout: ModelLayout = LAYOUT, during: Callable[[], None] = lambda: None
    ) -> None:
        self.target, self.during, self._layout = target, during, layout
        self.epochs: list[int] = []
        self.trained_from: list[float] = []

    def layout(self) -> ModelLayout:
        return self._layout

    def initial_arrays(self) -> dict[str, NDArray[np.float32]]:
        return {tensor.name: np.ones(tensor.shape, np.float32) for tensor in self._layout.tensors}

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        self.epochs.append(epochs)
        self.trained_from.append(float(arrays["fc.bias"][0]))
        self.during()
        keep = np.float32(0.5**epochs)
        trained = {name: keep * array + (1 - keep) * np.float32(self.target) for name, array in arrays.items()}
        return TrainingResult(trained, 10, {"train_loss": self._distance(trained)})

    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        distance = self._distance(arrays)
        return {"accuracy": 1 / (1 + distance), "loss": distance, "num_examples": 4.0}

    def _distance(self, arrays: Arrays) -> float:
        return float(np.mean([np.abs(array - self.target).mean() for array in arrays.values()]))
