"""Everybody is everybody's neighbour: one hop, and ``count (count - 1) / 2`` edges."""

from itertools import combinations
from typing import Final

from fl_core.errors import ParameterError
from fl_core.parameters import NoParams
from fl_simulator.graphs.graph import Graph

MOST_NODES: Final = 5000
"""Their 12.5 million edges are 3 GB as pairs; whoever means more means a sparser graph."""


def complete(params: NoParams, count: int) -> Graph:  # noqa: ARG001 -- there are none
    if count > MOST_NODES:
        raise ParameterError(f"is for up to {MOST_NODES:,} nodes, not {count:,}; take another")
    return Graph.from_edges(count, combinations(range(count), 2))
