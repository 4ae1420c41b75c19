"""Aggregation: one model of several."""

from fl_core.aggregation.protocol import Aggregator, ArraySource, VectorSource

__all__ = ["Aggregator", "ArraySource", "VectorSource"]
