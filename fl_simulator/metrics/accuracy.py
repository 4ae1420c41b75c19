"""How well clients do, from how many of their own samples a model had right.

DAG-ACFL judges each client by the global model that it would train on next, on its own test samples, and averages the
results over clients (Sec. IV-A): every client counts once, however many samples it has. The average hides whoever is
left behind, so the worst decile and the worst client stand beside it.

What is evaluated, and when, is the engine's to decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from fl_simulator.engine.world import Clients
from fl_simulator.errors import SimulationError
from fl_simulator.training.protocol import Evaluation


@dataclass(frozen=True, slots=True)
class AccuracySummary:
    """A round's accuracies and losses over clients.

    Attributes:
        mean: Mean accuracy over clients, each counted once, in [0, 1].
        worst_decile: Mean accuracy of the least accurate tenth of the clients, rounded up to whole clients.
        std: Standard deviation of accuracy over clients (of these clients, not an estimate for others).
        best: The highest accuracy.
        best_client: Whose it is; of several, the first.
        worst: The lowest accuracy.
        worst_client: Whose it is; of several, the first.
        loss: Mean over clients of their mean cross-entropy. Infinite or NaN where a model has diverged.
        clients: How many were counted.
    """

    mean: float
    worst_decile: float
    std: float
    best: float
    best_client: int
    worst: float
    worst_client: int
    loss: float
    clients: int


def summarise_accuracy(evaluation: Evaluation, clients: Sequence[int] | Clients) -> AccuracySummary:
    """Figures of one evaluation in which entry k is ``clients[k]``'s.

    A client without samples has no accuracy and is left out.

    Raises:
        SimulationError: No client has a sample to be judged by.
        ValueError: ``clients`` and ``evaluation`` disagree in length.
    """
    numbers = np.asarray(clients, dtype=np.int64)
    if numbers.shape != evaluation.count.shape:
        raise ValueError(f"{len(numbers)} clients and {len(evaluation.count)} evaluations")
    judged = evaluation.count > 0
    if not judged.any():
        raise SimulationError("no client has a test sample; give clients more samples, or lower the training share")
    numbers, accuracy = numbers[judged], evaluation.accuracy[judged]
    best, worst = int(accuracy.argmax()), int(accuracy.argmin())
    tenth = ceil(len(accuracy) / 10)
    return AccuracySummary(
        mean=float(accuracy.mean()),
        worst_decile=float(np.sort(accuracy)[:tenth].mean()),
        std=float(accuracy.std()),
        best=float(accuracy[best]),
        best_client=int(numbers[best]),
        worst=float(accuracy[worst]),
        worst_client=int(numbers[worst]),
        loss=float(evaluation.loss[judged].mean()),
        clients=len(accuracy),
    )


def reached_at(accuracies: Sequence[float | None], times: Sequence[float], *, target: float) -> float | None:
    """When accuracy was ``target`` or more for the first time, in the units of ``times``; None if it never was.

    Args:
        accuracies: Of each round; None for one without an evaluation.
        times: Of each round, ascending: its number, or the virtual clock at its end.
        target: Such as 0.95 of the final accuracy.
    """
    for accuracy, time in zip(accuracies, times, strict=True):
        if accuracy is not None and accuracy >= target:
            return time
    return None
