"""Each node has the one before it and the one after it: ``count`` edges, and up to ``count / 2`` hops."""

from fl_core.parameters import NoParams
from fl_simulator.graphs.graph import Graph, edge


def ring(params: NoParams, count: int) -> Graph:  # noqa: ARG001 -- there are none
    """The nodes in the order of their numbers, the last beside the first; two nodes share one edge."""
    return Graph.from_edges(count, {edge(node, (node + 1) % count) for node in range(count) if count > 1})
