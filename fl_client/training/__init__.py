"""Training on a site's own data. Importing this package does not import torch; asking for ``TorchTrainer``
or ``LoopTrainer`` does.
"""

from importlib import import_module
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
    from fl_client.training.loop import LoopTrainer
    from fl_client.training.trainer import PlainSgd, TorchTrainer

__all__ = [
    "Arrays",
    "Hints",
    "LoopTrainer",
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

_NEEDS_TORCH = {"LoopTrainer": "loop", "PlainSgd": "trainer", "TorchTrainer": "trainer"}
"""What needs torch, and its module."""


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_NEEDS_TORCH[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TorchMissingError("training needs PyTorch; run: pip install torch") from error
    return getattr(module, name)
