"""A model and its training loop in NumPy: ``dag-acfl try numpy_client.py --sites 4``."""

import numpy as np
from numpy.typing import NDArray

from fl_client.training import Arrays, Hints, Trainer, TrainingResult
from fl_simulator.data.rotated import rotated_digits


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


class Digits(Trainer):
    def __init__(self, site: int) -> None:
        data = rotated_digits(rotations=(0, 90), train_per_client=40)[site]  # yours
        self.x, self.y = data.train_x.reshape(-1, 64), np.eye(10)[data.train_y]
        self.test_x, self.test_y = data.test_x.reshape(-1, 64), data.test_y
        self.random = np.random.default_rng(site)

    def initial_arrays(self) -> dict[str, NDArray[np.float64]]:
        return {"weight": np.zeros((64, 10)), "bias": np.zeros(10)}

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        weight, bias = arrays["weight"].astype(float), arrays["bias"].astype(float)
        for _ in range(epochs):
            for batch in self.random.permutation(len(self.x)).reshape(-1, 10):
                error = softmax(self.x[batch] @ weight + bias) - self.y[batch]
                weight -= 0.2 * self.x[batch].T @ error / len(batch)
                bias -= 0.2 * error.mean(axis=0)
        return TrainingResult({"weight": weight, "bias": bias}, num_examples=len(self.x))

    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        found = (self.test_x @ arrays["weight"] + arrays["bias"]).argmax(axis=1)
        return {"accuracy": np.mean(found == self.test_y)}


def trainer(site: int = 0) -> Trainer:
    return Digits(site)
