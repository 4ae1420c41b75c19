"""Aggregation: one model of several.

A new rule is one file with a frozen params dataclass and one line in ``AGGREGATORS``; the contract tests
in ``tests/contract/test_aggregators.py`` then hold it to what every aggregator promises.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from fl_core.aggregation import fedavg, krum, median, multi_krum, trimmed_mean
from fl_core.aggregation.fedavg import FedAvg, FedAvgParams, example_weights
from fl_core.aggregation.krum import Krum, KrumParams
from fl_core.aggregation.median import Median, MedianParams
from fl_core.aggregation.multi_krum import MultiKrum, MultiKrumParams
from fl_core.aggregation.protocol import Aggregator, ArraySource, VectorSource
from fl_core.aggregation.trimmed_mean import TrimmedMean, TrimmedMeanParams
from fl_core.errors import UnknownNameError
from fl_core.parameters import read_parameters
from fl_core.types import JsonScalar

AggregatorFactory: TypeAlias = Callable[[Mapping[str, JsonScalar], int], Aggregator]


def _fedavg(params: Mapping[str, JsonScalar], threads: int) -> Aggregator:
    return FedAvg(read_parameters(FedAvgParams, params, owner="aggregator 'fedavg'"), threads)


def _median(params: Mapping[str, JsonScalar], threads: int) -> Aggregator:
    return Median(read_parameters(MedianParams, params, owner="aggregator 'median'"), threads)


def _trimmed_mean(params: Mapping[str, JsonScalar], threads: int) -> Aggregator:
    return TrimmedMean(read_parameters(TrimmedMeanParams, params, owner="aggregator 'trimmed-mean'"), threads)


def _krum(params: Mapping[str, JsonScalar], threads: int) -> Aggregator:
    return Krum(read_parameters(KrumParams, params, owner="aggregator 'krum'"), threads)


def _multi_krum(params: Mapping[str, JsonScalar], threads: int) -> Aggregator:
    return MultiKrum(read_parameters(MultiKrumParams, params, owner="aggregator 'multi-krum'"), threads)


AGGREGATORS: Final[Mapping[str, AggregatorFactory]] = MappingProxyType(
    {
        fedavg.NAME: _fedavg,
        median.NAME: _median,
        trimmed_mean.NAME: _trimmed_mean,
        krum.NAME: _krum,
        multi_krum.NAME: _multi_krum,
    }
)


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
    "Krum",
    "KrumParams",
    "Median",
    "MedianParams",
    "MultiKrum",
    "MultiKrumParams",
    "TrimmedMean",
    "TrimmedMeanParams",
    "VectorSource",
    "build_aggregator",
    "example_weights",
]
