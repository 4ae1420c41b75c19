"""Asynchronous strategies: methods that need no rounds, for a simulation in virtual time.

A new method is one file and one line in ``ASYNCHRONOUS_STRATEGIES``; the contract tests in
``tests/contract/test_strategies.py`` then hold it to what every one promises. A method of
``strategies.STRATEGIES`` runs in virtual time, too: in rounds that last as long as the slowest participant
(``engine.timed_rounds``).
"""

from typing import Final

from fl_core.registry import PartRegistry
from fl_simulator.strategies.asynchronous.protocol import AsynchronousStrategy

ASYNCHRONOUS_STRATEGIES: Final = PartRegistry[AsynchronousStrategy](
    "asynchronous strategy",
    {
        "dag-acfl": "fl_simulator.strategies.asynchronous.dag_acfl:AsynchronousDagAcfl",
        "fedasync": "fl_simulator.strategies.asynchronous.fedasync:FedAsync",
        "fedbuff": "fl_simulator.strategies.asynchronous.fedbuff:FedBuff",
        "oracle-fedasync": "fl_simulator.strategies.asynchronous.oracle:OracleFedAsync",
        "oracle-fedbuff": "fl_simulator.strategies.asynchronous.oracle:OracleFedBuff",
    },
    group="dag_acfl.asynchronous_strategies",
)
"""Each takes its parameters and the run's ``World``."""
