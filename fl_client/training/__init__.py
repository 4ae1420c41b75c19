"""Training on a site's own data. Importing this package does not import torch; asking for ``TorchTrainer``
does.
"""

from typing import TYPE_CHECKING, Any

from fl_client.training.errors import (
    TorchMissingError,
    TrainerFailedError,
    TrainingDataError,
    TrainingDivergedError,
    TrainingError,
)
from fl_client.training.protocol import Arrays, Hints, Trainer, TrainingResult, report_progress

if TYPE_CHECKING:
    from fl_client.training.trainer import PlainSgd, TorchTrainer

__all__ = [
    "Arrays",
    "Hints",
    "PlainSgd",
    "TorchMissingError",
    "TorchTrainer",
    "Trainer",
    "TrainerFailedError",
    "TrainingDataError",
    "TrainingDivergedError",
    "TrainingError",
    "TrainingResult",
    "report_progress",
]

_NEEDS_TORCH = frozenset({"PlainSgd", "TorchTrainer"})


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from fl_client.training import trainer  # noqa: PLC0415 (torch is loaded when it is asked for)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TorchMissingError("training needs PyTorch; run: pip install torch") from error
    return getattr(trainer, name)
