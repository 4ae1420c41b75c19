"""The trainer's contract in its plainest form: softmax regression by NumPy, one sample's gradient after the other."""

from collections.abc import Sequence

import numpy as np

from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import Matrix32, Vector32
from fl_simulator.engine.population import Population
from fl_simulator.seeds import Seeds
from fl_simulator.training.protocol import Evaluation, Rows, Task


class SoftmaxTrainer:
    """Logistic regression: ``fc1.weight`` (classes, inputs) and ``fc1.bias`` (classes)."""

    def __init__(
        self, population: Population, *, batch_size: int = 4, learning_rate: float = 0.1, seeds: Seeds | None = None
    ) -> None:
        self.images = population.images.reshape(len(population.labels), -1).astype(np.float64)
        self.labels = population.labels
        self.classes, self.inputs = population.num_classes, self.images.shape[1]
        self.batch_size, self.learning_rate, self.seeds = batch_size, learning_rate, seeds or Seeds(0)

    @property
    def layout(self) -> ModelLayout:
        weight = TensorSpec("fc1.weight", "F32", (self.classes, self.inputs))
        return ModelLayout.of([weight, TensorSpec("fc1.bias", "F32", (self.classes,))])

    def initial(self, rng: np.random.Generator, *, gain: float = 1.0) -> Vector32:
        drawn = rng.uniform(-0.1, 0.1, self.layout.num_parameters).astype(np.float32)
        drawn[self.classes :] *= gain
        return drawn

    def train(
        self, models: Matrix32, tasks: Sequence[Task], *, proximal: float = 0.0, towards: Matrix32 | None = None
    ) -> None:
        anchors = (models if towards is None else towards).astype(np.float64)
        for row, task, start in zip(models, tasks, anchors, strict=True):
            model = row.astype(np.float64)
            for batch in task.batches(self.batch_size, self.seeds):
                gradient = np.mean([self._gradient(model, sample) for sample in batch], axis=0)
                model -= self.learning_rate * (gradient + proximal * (model - start))
            row[:] = model

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:
        firsts = [task.order(0, self.seeds)[: self.batch_size] for task in tasks]
        found = [
            np.mean([self._gradient(row.astype(np.float64), sample) for sample in first], axis=0)
            for row, first in zip(models, firsts, strict=True)
        ]
        return np.array(found, dtype=np.float32).reshape(models.shape)

    def _logits(self, model: np.ndarray, sample: int) -> np.ndarray:
        bias, weight = model[: self.classes], model[self.classes :].reshape(self.classes, self.inputs)
        return weight @ self.images[sample] + bias

    def _gradient(self, model: np.ndarray, sample: int) -> np.ndarray:
        logits = self._logits(model, sample)
        error = np.exp(logits - logits.max())
        error /= error.sum()
        error[self.labels[sample]] -= 1
        return np.concatenate([error, np.outer(error, self.images[sample]).ravel()])

    def evaluate(self, models: Matrix32, rows: Sequence[int] | Rows, samples: Sequence[Rows]) -> Evaluation:
        correct, losses = [], []
        for row, mine in zip(rows, samples, strict=True):
            logits = [self._logits(models[row].astype(np.float64), sample) for sample in mine]
            correct.append(sum(int(each.argmax() == self.labels[s]) for each, s in zip(logits, mine, strict=True)))
            losses.append(
                sum(
                    float(np.log(np.exp(each - each.max()).sum()) + each.max() - each[self.labels[s]])
                    for each, s in zip(logits, mine, strict=True)
                )
            )
        return Evaluation(np.array(correct), np.array(losses), np.array([len(mine) for mine in samples]))

    def close(self) -> None:
        pass
