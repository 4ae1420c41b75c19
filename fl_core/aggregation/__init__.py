"""Aggregation: one model of several.

A new rule is one file and one line in ``AGGREGATORS``; the contract tests in ``tests/contract/test_aggregators.py``
then hold it to what every aggregator promises.
"""

from typing import Final

from fl_core.aggregation.fedavg import FedAvg, example_weights
from fl_core.aggregation.protocol import Aggregator, ArraySource, VectorSource
from fl_core.registry import PartRegistry

AGGREGATORS: Final = PartRegistry[Aggregator](
    "aggregator",
    {
        "fedavg": "fl_core.aggregation.fedavg:FedAvg",
        "median": "fl_core.aggregation.median:Median",
        "trimmed-mean": "fl_core.aggregation.trimmed_mean:TrimmedMean",
        "krum": "fl_core.aggregation.krum:Krum",
        "multi-krum": "fl_core.aggregation.multi_krum:MultiKrum",
    },
    group="dag_acfl.aggregators",
)
"""Context: ``pool``, the ``SpanPool`` whose threads share one call's work; never part of the result."""

__all__ = ["AGGREGATORS", "Aggregator", "ArraySource", "FedAvg", "VectorSource", "example_weights"]
