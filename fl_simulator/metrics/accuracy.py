"""How well clients do, from how many of their own samples a model had right.

DAG-ACFL judges each client by the global model that it would train on next, on its own test samples, and averages the
results over clients (Sec. IV-A): every client counts once, however many samples it has. The average hides whoever is
left behind, so the worst decile and the worst client stand beside it.

What is evaluated, and when, is the engine's to decide.
"""

from math import ceil

import numpy as np

from fl_simulator.errors import SimulationError
from fl_simulator.strategies.protocol import Figures
from fl_simulator.training.protocol import Evaluation


def summarise_accuracy(evaluation: Evaluation) -> Figures:
    """Accuracies and the loss of one evaluation with an entry for each client; one without samples is left out.

    Returns:
        Columns of ``RoundRecord``. The loss is infinite or NaN where a model has diverged.
    """
    judged = evaluation.count > 0
    if not judged.any():
        raise SimulationError("no client has a test sample; give clients more samples, or lower the training share")
    accuracy = evaluation.accuracy[judged]
    tenth = ceil(len(accuracy) / 10)  # whole clients
    return {
        "accuracy": float(accuracy.mean()),
        "worst_decile": float(np.sort(accuracy)[:tenth].mean()),
        "worst_client": float(accuracy.min()),
        "best_client": float(accuracy.max()),
        "loss": float(evaluation.loss[judged].mean()),
    }
