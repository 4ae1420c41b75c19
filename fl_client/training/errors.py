"""What training can refuse."""

from fl_core.errors import DagAcflError


class TrainingError(DagAcflError):
    """A local training cannot go on."""

    code = "training"


class TrainingDivergedError(TrainingError):
    """A loss or a parameter became NaN or infinite; nothing of it is returned, so nothing is published."""

    code = "training-diverged"

    def __init__(self, message: str, *, learning_rate: float) -> None:
        super().__init__(message)
        self.learning_rate = learning_rate


class TrainingDataError(TrainingError):
    """The training or test data are empty or not batches of (inputs, labels)."""

    code = "training-data"


class TorchMissingError(TrainingError):
    """torch is not installed; the message names the extra that brings it."""

    code = "torch-missing"
