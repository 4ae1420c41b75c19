"""Random graphs that must come out connected: drawn again until they are.

networkx draws; it is loaded on the first draw, since a server whose overlay is a ring needs none of it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from fl_core.errors import ParameterError
from fl_simulator.graphs.topology.protocol import Edge, edge

if TYPE_CHECKING:
    import networkx as nx
    from numpy.random import Generator  # loading it takes 7 MB

    RandomGraph: TypeAlias = nx.Graph[int]

MAX_DRAWS: Final = 1000
"""Draws of a small graph; larger ones get fewer, but never below ``MIN_DRAWS``."""
MIN_DRAWS: Final = 10
_NODES_IN_ALL: Final = 1_000_000


def connected(
    draw: "Callable[[int], RandomGraph | None]", count: int, *, rng: "Generator", owner: str, fix: str
) -> frozenset[Edge]:
    """The edges of the first connected graph.

    Args:
        draw: From a seed to a graph of the nodes 0 to ``count - 1``, or None where this seed gives none.
        count: Nodes.
        rng: Where the seeds come from.
        owner: Who draws, for the message: ``topology 'erdos-renyi'``.
        fix: What makes a connected graph likelier, for the message.

    Raises:
        ParameterError: no draw was connected.
    """
    import networkx as nx  # noqa: PLC0415 -- see the module

    draws = min(MAX_DRAWS, max(MIN_DRAWS, _NODES_IN_ALL // count))
    for _ in range(draws):
        graph = draw(int(rng.integers(2**32)))
        if graph is not None and nx.is_connected(graph):
            return frozenset(edge(a, b) for a, b in graph.edges())
    raise ParameterError(f"{owner}: none of {draws} draws connected {count} nodes; {fix}")
