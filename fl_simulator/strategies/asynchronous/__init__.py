"""Asynchronous strategies: methods that need no rounds, for a simulation in virtual time.

A new method is one file with a frozen params dataclass and one line in ``ASYNCHRONOUS_STRATEGIES``; the contract tests
in ``tests/contract/test_asynchronous_strategies.py`` then hold it to what every one promises. A method of
``strategies.STRATEGIES`` runs in virtual time, too: in rounds that last as long as the slowest participant
(``engine.timed_rounds``).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from fl_core.types import JsonScalar
from fl_simulator.engine.world import World
from fl_simulator.strategies.asynchronous import dag_acfl, fedasync, fedbuff
from fl_simulator.strategies.asynchronous.protocol import Assignment, AsynchronousStrategy
from fl_simulator.strategies.parameters import read_for

AsynchronousStrategyFactory: TypeAlias = tuple[type[Any], Callable[[Any, World], AsynchronousStrategy]]
"""The dataclass of a strategy's parameters, and what makes the strategy of them."""

ASYNCHRONOUS_STRATEGIES: Final[Mapping[str, AsynchronousStrategyFactory]] = MappingProxyType(
    {
        dag_acfl.NAME: (dag_acfl.DagAcflParams, dag_acfl.AsynchronousDagAcfl),
        fedasync.NAME: (fedasync.FedAsyncParams, fedasync.FedAsync),
        fedbuff.NAME: (fedbuff.FedBuffParams, fedbuff.FedBuff),
    }
)


def asynchronous_strategy_parameters(name: str, params: Mapping[str, JsonScalar]) -> Any:
    """The parameters of the asynchronous strategy of that name, checked.

    Raises:
        UnknownNameError: no such strategy.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    return read_for("asynchronous strategy", name, params, ASYNCHRONOUS_STRATEGIES)


def build_asynchronous_strategy(name: str, params: Mapping[str, JsonScalar], world: World) -> AsynchronousStrategy:
    """The asynchronous strategy that a scenario names, at its beginning.

    Raises:
        UnknownNameError: no such strategy.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    checked = asynchronous_strategy_parameters(name, params)
    return ASYNCHRONOUS_STRATEGIES[name][1](checked, world)


__all__ = [
    "ASYNCHRONOUS_STRATEGIES",
    "Assignment",
    "AsynchronousStrategy",
    "AsynchronousStrategyFactory",
    "asynchronous_strategy_parameters",
    "build_asynchronous_strategy",
]
