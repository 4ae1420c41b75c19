"""Random graphs that must come out connected: drawn again until they are."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import networkx as nx
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_simulator.graphs.graph import Graph

if TYPE_CHECKING:
    RandomGraph: TypeAlias = nx.Graph[int]
else:
    RandomGraph = nx.Graph

MAX_DRAWS: Final = 1000
"""Draws of a small graph; larger ones get fewer, but never below ``MIN_DRAWS``."""
MIN_DRAWS: Final = 10
_NODES_IN_ALL: Final = 1_000_000


def connected(draw: Callable[[int], RandomGraph | None], count: int, *, rng: Generator, fix: str) -> Graph:
    """The first connected graph.

    Args:
        draw: From a seed to a graph of the nodes 0 to ``count - 1``, or None where this seed gives none.
        count: Nodes.
        rng: Where the seeds come from.
        fix: What makes a connected graph likelier, for the message.
    """
    draws = min(MAX_DRAWS, max(MIN_DRAWS, _NODES_IN_ALL // count))
    for _ in range(draws):
        drawn = draw(int(rng.integers(2**32)))
        if drawn is not None and nx.is_connected(drawn):
            return Graph.from_edges(count, drawn.edges())
    raise ParameterError(f"none of {draws} draws connected {count} nodes; {fix}")
