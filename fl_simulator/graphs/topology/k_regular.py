"""Random k-regular: everybody has exactly ``k`` neighbours, otherwise at random; drawn again until connected."""

from dataclasses import dataclass

import networkx as nx
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology.random_graphs import connected


@dataclass(frozen=True, slots=True)
class KRegularParams:
    k: int = parameter(4, at_least=1, doc="Neighbours of each node; nodes times k must be even.")


def k_regular(params: KRegularParams, count: int, *, rng: Generator) -> Graph:
    """A random regular graph; with k = 10 the D-Cliques paper's random-10."""
    return random_regular(count, params.k, rng=rng)


def random_regular(count: int, k: int, *, rng: Generator) -> Graph:
    """A random connected graph of ``count`` nodes with ``k`` neighbours each.

    Raises:
        ParameterError: Too few nodes, an odd number of edges' ends, or no draw was connected.
    """
    if count <= k:
        raise ParameterError(f"needs more than k = {k} nodes, not {count}; lower k")
    if count * k % 2:
        raise ParameterError(
            f"{count} nodes with k = {k} edges each would leave one edge with one end; make either even"
        )
    return connected(
        lambda seed: nx.random_regular_graph(k, count, seed=seed),
        count,
        rng=rng,
        fix=f"raise k = {k}, best to 3 or more",
    )
