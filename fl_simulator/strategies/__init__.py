"""Strategies: the methods that a simulation compares.

A new method is one file and one line in ``STRATEGIES``; the contract tests in ``tests/contract/test_strategies.py``
then hold it to what every strategy promises.
"""

from typing import Final

from fl_core.registry import PartRegistry
from fl_simulator.strategies.protocol import Strategy

STRATEGIES: Final = PartRegistry[Strategy](
    "strategy",
    {
        "centralised": "fl_simulator.strategies.centralised:Centralised",
        "cfa": "fl_simulator.strategies.decentralised.cfa:Cfa",
        "cfa-ge": "fl_simulator.strategies.decentralised.cfa_ge:CfaGe",
        "cfl": "fl_simulator.strategies.clustered.cfl:Cfl",
        "d-sgd": "fl_simulator.strategies.decentralised.d_sgd:DSgd",
        "dag-acfl": "fl_simulator.strategies.ledger.dag_acfl:DagAcfl",
        "decavg": "fl_simulator.strategies.decentralised.decavg:DecAvg",
        "decdiff": "fl_simulator.strategies.decentralised.decdiff:DecDiff",
        "ditto": "fl_simulator.strategies.ditto:Ditto",
        "fedavg": "fl_simulator.strategies.fedavg:FedAvg",
        "fedper": "fl_simulator.strategies.fedper:FedPer",
        "fedprox": "fl_simulator.strategies.fedprox:FedProx",
        "fesem": "fl_simulator.strategies.clustered.fesem:Fesem",
        "flexcfl": "fl_simulator.strategies.clustered.flexcfl:FlexCfl",
        "ifca": "fl_simulator.strategies.clustered.ifca:Ifca",
        "local-only": "fl_simulator.strategies.local_only:LocalOnly",
        "oracle": "fl_simulator.strategies.clustered.oracle:Oracle",
        "sdagfl": "fl_simulator.strategies.ledger.sdagfl:Sdagfl",
    },
    group="dag_acfl.strategies",
)
"""Each takes its parameters and the run's ``World``."""


def needs_graph(name: str) -> bool:
    """Whether the strategy of that name asks for a section ``[topology]``; one that is not in rounds does not."""
    return name in STRATEGIES and getattr(STRATEGIES[name], "needs_graph", False)


def decentralised_names() -> list[str]:
    """The strategies whose nodes hear their neighbours on a graph, and no server."""
    return sorted(name for name in STRATEGIES if needs_graph(name))
