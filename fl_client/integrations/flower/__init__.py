"""Flower apps take part as they are: the ServerApp founds a ledger, the ClientApp trains and evaluates.

    app = FlowerApp("quickstart", node_config="partition-id=0 num-partitions=8")
    Participant(client, FlowerTrainer(app, Opening.of_hints(client.genesis().genesis.training)), state).run()

Beside ``dag_acfl.flower`` the only folder that knows flwr. That is an extra, and loaded when one of these names is
asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_client.integrations.flower.app import FlowerApp
    from fl_client.integrations.flower.founding import opening_of
    from fl_client.integrations.flower.opening import Opening
    from fl_client.integrations.flower.trainer import FlowerTrainer

__all__ = ["FlowerApp", "FlowerTrainer", "Opening", "opening_of"]

_MODULES: Final = {"FlowerApp": "app", "FlowerTrainer": "trainer", "Opening": "opening", "opening_of": "founding"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ImportError as error:
        raise ParameterError(f"a Flower app needs flwr 1.36 or newer ({error}); pip install 'flwr>=1.36'") from error
    return getattr(module, name)
