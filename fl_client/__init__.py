"""A participant of a DAG-ACFL ledger: the SDK, Algorithm 1, and training.

    from fl_client import LedgerClient, Participant, ParticipantState

Names are loaded when they are asked for: importing this package loads neither torch nor an HTTP library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fl_client.client import LedgerClient, Published
    from fl_client.errors import (
        AnswerInvalidError,
        ApiError,
        CertificateRefusedError,
        ClientError,
        ConnectionFailedError,
        ServerUnavailableError,
        StateCorruptError,
        StateError,
        StateLockedError,
        TransportError,
        UserModuleError,
    )
    from fl_client.events import Event
    from fl_client.participant import Participant
    from fl_client.reader import GenesisInfo, LedgerReader
    from fl_client.scaffold import client_source, load_trainer
    from fl_client.state import ParticipantState
    from fl_client.step_report import StepReport
    from fl_client.training import TorchTrainer, Trainer, TrainingResult

__all__ = [
    "AnswerInvalidError",
    "ApiError",
    "CertificateRefusedError",
    "ClientError",
    "ConnectionFailedError",
    "Event",
    "GenesisInfo",
    "LedgerClient",
    "LedgerReader",
    "Participant",
    "ParticipantState",
    "Published",
    "ServerUnavailableError",
    "StateCorruptError",
    "StateError",
    "StateLockedError",
    "StepReport",
    "TorchTrainer",
    "Trainer",
    "TrainingResult",
    "TransportError",
    "UserModuleError",
    "client_source",
    "load_trainer",
]

_HOMES = {
    "fl_client.client": ("LedgerClient", "Published"),
    "fl_client.events": ("Event",),
    "fl_client.participant": ("Participant",),
    "fl_client.reader": ("GenesisInfo", "LedgerReader"),
    "fl_client.scaffold": ("client_source", "load_trainer"),
    "fl_client.state": ("ParticipantState",),
    "fl_client.step_report": ("StepReport",),
    "fl_client.training": ("TorchTrainer", "Trainer", "TrainingResult"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF.get(name, "fl_client.errors")), name)
