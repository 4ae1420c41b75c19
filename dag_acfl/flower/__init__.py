"""DAG-ACFL as a Flower strategy, for those who have a Flower app and want to see what sharing by similarity is worth.

``from dag_acfl.flower import DagAcfl as FedAvg`` is all that such an app changes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from dag_acfl.flower.strategy import DagAcfl

__all__ = ["DagAcfl"]


def __getattr__(name: str) -> Any:
    if name != "DagAcfl":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f"{__name__}.strategy").DagAcfl
    except ImportError as error:
        raise ParameterError(
            f"a Flower strategy needs flwr 1.36 or newer ({error}); pip install 'flwr>=1.36'"
        ) from error
