"""A scikit-learn estimator that learns by ``partial_fit``: ``dag-acfl try sklearn_client.py --sites 4``."""

import numpy as np
from sklearn import linear_model, metrics

from fl_client.training import Arrays, Hints, Trainer, TrainingResult
from fl_simulator.data.rotated import rotated_digits

LEARNT = ("coef_", "intercept_")


class Digits(Trainer):
    def __init__(self, site: int) -> None:
        data = rotated_digits(rotations=(0, 90), train_per_client=40)[site]  # yours
        self.x, self.y = data.train_x.reshape(-1, 64), data.train_y
        self.test = data.test_x.reshape(-1, 64), data.test_y
        self.model = linear_model.SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=site)
        self.model.partial_fit(self.x, self.y, classes=np.arange(10))  # tells it the shapes and all labels

    def initial_arrays(self) -> Arrays:
        return {name: np.zeros_like(getattr(self.model, name)) for name in LEARNT}

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        self.load(arrays)
        for _ in range(epochs):
            self.model.partial_fit(self.x, self.y)
        return TrainingResult({name: getattr(self.model, name) for name in LEARNT}, num_examples=len(self.x))

    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        self.load(arrays)
        loss = metrics.log_loss(self.test[1], self.model.predict_proba(self.test[0]), labels=range(10))
        return {"accuracy": self.model.score(*self.test), "loss": loss}

    def load(self, arrays: Arrays) -> None:
        for name in LEARNT:
            getattr(self.model, name)[:] = arrays[name]


def trainer(site: int = 0) -> Trainer:
    return Digits(site)
