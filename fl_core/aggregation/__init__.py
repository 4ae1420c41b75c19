"""Aggregation: one model of several.

A new rule is one file with a frozen params dataclass and one line in ``AGGREGATORS``; the contract tests
in ``tests/contract/test_aggregators.py`` then hold it to what every aggregator promises.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from fl_core.aggregation import fedavg
from fl_core.aggregation.fedavg import FedAvg, FedAvgParams, example_weights
from fl_core.aggregation.protocol import Aggregator, ArraySource, VectorSource
from fl_core.errors import UnknownNameError
from fl_core.parameters import read_parameters
from fl_core.types import JsonScalar

AggregatorFactory: TypeAlias = Callable[[Mapping[str, JsonScalar], int], Aggregator]


def _fedavg(params: Mapping[str, JsonScalar], threads: int) -> Aggregator:
    return FedAvg(read_parameters(FedAvgParams, params, owner="aggregator 'fedavg'"), threads)


AGGREGATORS: Final[Mapping[str, AggregatorFactory]] = MappingProxyType({fedavg.NAME: _fedavg})


def build_aggregator(name: str, params: Mapping[str, JsonScalar], *, threads: int = 1) -> Aggregator:
    """The aggregator that a genesis document or a scenario names.

    Args:
        name: A key of ``AGGREGATORS``.
        params: Its parameters; those left out have their defaults.
        threads: How many threads may share one call's work; at least 1, never part of the result.

    Raises:
        UnknownNameError: no such aggregator.
        ParameterError: an unknown parameter, a wrong type, a value out of range, or fewer than 1 thread.
    """
    if name not in AGGREGATORS:
        raise UnknownNameError("aggregator", name, AGGREGATORS)
    return AGGREGATORS[name](params, threads)


__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "AggregatorFactory",
    "ArraySource",
    "FedAvg",
    "FedAvgParams",
    "VectorSource",
    "build_aggregator",
    "example_weights",
]
