"""Configuration model with a heavy tail: degrees drawn from p(k) ~ k^-gamma, and their ends joined at random."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology.random_graphs import RandomGraph, connected


@dataclass(frozen=True, slots=True)
class ConfigurationParams:
    gamma: float = parameter(2.5, above=0, doc="Exponent of the tail: p(k) ~ k^-gamma; the smaller, the heavier.")
    minimum: int = parameter(3, at_least=1, doc="The smallest degree; with 1, large graphs are hardly ever connected.")


def configuration(params: ConfigurationParams, count: int, *, rng: Generator) -> Graph:
    """The configuration model, with degrees from ``minimum`` to one less than there are nodes.

    Edges from a node to itself and second edges between two nodes are erased, so hubs lose a few.
    """
    gamma, minimum = params.gamma, params.minimum
    if count <= minimum:
        raise ParameterError(f"needs more than minimum = {minimum} nodes, not {count}")
    degrees = np.arange(minimum, count)
    chances = degrees**-gamma / (degrees**-gamma).sum()

    def draw(seed: int) -> RandomGraph | None:
        drawn = rng.choice(degrees, size=count, p=chances)
        if drawn.sum() % 2:
            return None  # an end would be left over
        graph: RandomGraph = nx.Graph(nx.configuration_model(drawn.tolist(), seed=seed))
        graph.remove_edges_from(nx.selfloop_edges(graph))
        return graph

    return connected(
        draw,
        count,
        rng=rng,
        fix=f"raise minimum = {minimum} or lower gamma = {gamma:g}",
    )
