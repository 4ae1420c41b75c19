"""Training that fits in a head: a model is a point, and a client draws it towards the mean of its samples.

The loss of model w on sample x is |w - x|² / 2 and an epoch is one step of full-batch gradient descent,
w <- w + rate (mean of the client's samples - w): with rate 1/2, half the way. A sample counts as right within 1.
"""

from collections.abc import Sequence

import numpy as np

from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import Matrix32, Vector32
from fl_simulator.engine.population import Population
from fl_simulator.training.protocol import Evaluation, Rows, Task


class PointTrainer:
    """The model is ``point``, as many values as an image has."""

    def __init__(self, population: Population, *, rate: float = 0.5, spread: float = 0.0) -> None:
        self.points = population.images.reshape(len(population.labels), -1).astype(np.float64)
        self.rate, self.spread = rate, spread

    @property
    def layout(self) -> ModelLayout:
        return ModelLayout.of([TensorSpec("point", "F32", (self.points.shape[1],))])

    def initial(self, rng: np.random.Generator, *, gain: float = 1.0) -> Vector32:
        return gain * rng.uniform(-self.spread, self.spread, self.points.shape[1]).astype(np.float32)

    def train(
        self, models: Matrix32, tasks: Sequence[Task], *, proximal: float = 0.0, towards: Matrix32 | None = None
    ) -> None:
        for number, task in enumerate(tasks):
            received = (models if towards is None else towards)[number].copy()
            for _ in range(task.steps or task.epochs):
                pull = self.points[task.samples].mean(axis=0) - models[number]
                models[number] += self.rate * (pull - proximal * (models[number] - received))

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:
        means = np.stack([self.points[task.samples].mean(axis=0) for task in tasks])
        return (models - means).astype(np.float32)

    def evaluate(self, models: Matrix32, rows: Sequence[int] | Rows, samples: Sequence[Rows]) -> Evaluation:
        squares = [
            np.square(models[row].astype(np.float64) - self.points[mine]).sum(axis=1)
            for row, mine in zip(rows, samples, strict=True)
        ]
        return Evaluation(
            np.array([int((each < 1).sum()) for each in squares]),
            np.array([each.sum() / 2 for each in squares]),
            np.array([len(each) for each in squares]),
        )

    def close(self) -> None:
        pass
