"""Strategies: the methods that a simulation compares.

A new method is one file with a frozen params dataclass and one line in ``STRATEGIES``; the contract tests in
``tests/contract/test_strategies.py`` then hold it to what every strategy promises.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from fl_core.types import JsonScalar
from fl_simulator.engine.world import World
from fl_simulator.strategies import centralised, fedavg, fedprox, local_only
from fl_simulator.strategies.clustered import cfl, fesem, flexcfl, ifca, oracle
from fl_simulator.strategies.decentralised import cfa, cfa_ge, d_sgd, decavg, decdiff
from fl_simulator.strategies.decentralised.base import GraphStrategy
from fl_simulator.strategies.ledger import dag_acfl, sdagfl
from fl_simulator.strategies.ledger.base import Choice, OnLedger
from fl_simulator.strategies.parameters import read_for, written_out
from fl_simulator.strategies.protocol import Personal, State, Strategy, Traffic

StrategyFactory: TypeAlias = tuple[type[Any], Callable[[Any, World], Strategy]]
"""The dataclass of a strategy's parameters, and what makes the strategy of them."""

STRATEGIES: Final[Mapping[str, StrategyFactory]] = MappingProxyType(
    {
        centralised.NAME: (centralised.CentralisedParams, centralised.Centralised),
        cfa.NAME: (cfa.CfaParams, cfa.Cfa),
        cfa_ge.NAME: (cfa_ge.CfaGeParams, cfa_ge.CfaGe),
        cfl.NAME: (cfl.CflParams, cfl.Cfl),
        d_sgd.NAME: (d_sgd.DSgdParams, d_sgd.DSgd),
        dag_acfl.NAME: (dag_acfl.DagAcflParams, dag_acfl.DagAcfl),
        decavg.NAME: (decavg.DecAvgParams, decavg.DecAvg),
        decdiff.NAME: (decdiff.DecDiffParams, decdiff.DecDiff),
        fedavg.NAME: (fedavg.FedAvgParams, fedavg.FedAvg),
        fedprox.NAME: (fedprox.FedProxParams, fedprox.FedProx),
        fesem.NAME: (fesem.FesemParams, fesem.Fesem),
        flexcfl.NAME: (flexcfl.FlexCflParams, flexcfl.FlexCfl),
        ifca.NAME: (ifca.IfcaParams, ifca.Ifca),
        local_only.NAME: (local_only.LocalOnlyParams, local_only.LocalOnly),
        oracle.NAME: (oracle.OracleParams, oracle.Oracle),
        sdagfl.NAME: (sdagfl.SdagflParams, sdagfl.Sdagfl),
    }
)

ON_GRAPH: Final = frozenset({cfa.NAME, cfa_ge.NAME, d_sgd.NAME, decavg.NAME, decdiff.NAME})
"""Strategies whose nodes hear their neighbours on a graph, and no server."""

D_SGD: Final = d_sgd.NAME
"""The one that takes its own steps, and momentum as a parameter of its own."""


def needs_graph(name: str) -> bool:
    """Whether the strategy of that name asks for a section ``[topology]``."""
    return name in ON_GRAPH


def strategy_parameters(name: str, params: Mapping[str, JsonScalar]) -> Any:
    """The parameters of the strategy of that name, checked.

    Raises:
        UnknownNameError: no such strategy.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    return read_for("strategy", name, params, STRATEGIES)


def build_strategy(name: str, params: Mapping[str, JsonScalar], world: World) -> Strategy:
    """The strategy that a scenario names, at its beginning.

    Raises:
        UnknownNameError: no such strategy.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    checked = strategy_parameters(name, params)
    return STRATEGIES[name][1](checked, world)


__all__ = [
    "D_SGD",
    "ON_GRAPH",
    "STRATEGIES",
    "Choice",
    "GraphStrategy",
    "OnLedger",
    "Personal",
    "State",
    "Strategy",
    "StrategyFactory",
    "Traffic",
    "build_strategy",
    "needs_graph",
    "strategy_parameters",
    "written_out",
]
