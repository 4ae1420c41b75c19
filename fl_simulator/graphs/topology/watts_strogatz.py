"""Watts-Strogatz: a ring on which everybody knows the ``k`` nearest, some of whose edges lead elsewhere instead.

Not the small world of D-Cliques, which is ``small-world`` and draws nothing.
"""

from dataclasses import dataclass

import networkx as nx
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology.random_graphs import connected


@dataclass(frozen=True, slots=True)
class WattsStrogatzParams:
    """Parameters of the Watts-Strogatz graph."""

    k: int = parameter(4, at_least=2, doc="Neighbours on the ring, half of them on each side: an even number.")
    p: float = parameter(0.1, at_least=0, at_most=1, doc="Probability that an edge leads elsewhere.")

    def __post_init__(self) -> None:
        """Refuse half a neighbour on each side."""
        if self.k % 2:
            raise ParameterError(f"topology 'watts-strogatz': k must be even, not {self.k}")


def watts_strogatz(params: WattsStrogatzParams, count: int, *, rng: Generator) -> Graph:
    """The Watts-Strogatz graph."""
    k, p = params.k, params.p
    if count <= k:
        raise ParameterError(f"needs more than k = {k} nodes, not {count}; lower k")
    return connected(
        lambda seed: nx.watts_strogatz_graph(count, k, p, seed=seed),
        count,
        rng=rng,
        fix=f"raise k = {k} or lower p = {p:g}",
    )
