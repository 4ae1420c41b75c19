"""What the demo compares DAG-ACFL with, on the same data, model, optimiser and number of epochs.

* ``local_only``: every client trains from the genesis model on its own data, and nobody talks.
* ``fedavg``: all clients train from one global model and the mean of their models, weighted by their numbers
  of samples, is the next one (McMahan et al. 2017), synchronously, everybody in every round.

Both work through the ``Trainer`` protocol: whatever the clients of the demo train, these train too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dag_acfl.demo.figures import MethodFigure
from fl_client.training import Arrays, Trainer
from fl_core.errors import ParameterError

Progress: TypeAlias = Callable[[str, int, int], None]
"""Name of the baseline, steps done, steps in all."""


def local_only(
    trainers: Sequence[Trainer], genesis: Arrays, *, epochs: int, progress: Progress | None = None
) -> MethodFigure:
    """Each client alone for ``epochs`` ≥ 1 passes over its data.

    Raises:
        ParameterError: No client, or ``epochs`` < 1.
    """
    _check(trainers, epochs)
    accuracies = []
    for done, trainer in enumerate(trainers, start=1):
        accuracies.append(_accuracy(trainer, trainer.train(genesis, epochs=epochs).arrays))
        if progress is not None:
            progress("local-only", done, len(trainers))
    return MethodFigure("local-only", tuple(accuracies))


def fedavg(
    trainers: Sequence[Trainer],
    genesis: Arrays,
    *,
    epochs: int,
    epochs_per_round: int,
    progress: Progress | None = None,
) -> MethodFigure:
    """Synchronous FedAvg for at least ``epochs`` passes: a last round that does not come out even is made in
    full.

    Raises:
        ParameterError: No client, or ``epochs`` or ``epochs_per_round`` < 1.
    """
    _check(trainers, epochs, epochs_per_round)
    rounds = -(-epochs // epochs_per_round)
    model: Arrays = genesis
    for number in range(1, rounds + 1):
        results = [trainer.train(model, epochs=epochs_per_round) for trainer in trainers]
        models, counts = [result.arrays for result in results], [result.num_examples for result in results]
        model = weighted_mean(models, counts)
        if progress is not None:
            progress("FedAvg", number, rounds)
    return MethodFigure("FedAvg", tuple(_accuracy(trainer, model) for trainer in trainers))


def weighted_mean(models: Sequence[Arrays], num_examples: Sequence[int]) -> dict[str, NDArray[np.float32]]:
    """Σ n_k/n ω_k of each tensor, accumulated in float64, returned as float32."""
    total = sum(num_examples)
    mean: dict[str, NDArray[np.float32]] = {}
    for name, first in models[0].items():
        value = np.zeros(first.shape, np.float64)
        for model, count in zip(models, num_examples, strict=True):
            value += (count / total) * model[name].astype(np.float64)
        mean[name] = value.astype(np.float32)
    return mean


def _accuracy(trainer: Trainer, model: Mapping[str, NDArray[np.float32]]) -> float:
    metrics = trainer.evaluate(model)
    if "accuracy" not in metrics:
        raise ParameterError("a baseline needs trainers with labelled test data")
    return metrics["accuracy"]


def _check(trainers: Sequence[Trainer], *epochs: int) -> None:
    if not trainers or min(epochs) < 1:
        raise ParameterError("a baseline needs at least one client and one epoch")
