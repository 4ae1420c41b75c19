"""Barabási-Albert: nodes come one after another and choose neighbours by how many these have; a few become hubs."""

from dataclasses import dataclass

import networkx as nx
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology.random_graphs import connected


@dataclass(frozen=True, slots=True)
class BarabasiAlbertParams:
    m: int = parameter(2, at_least=1, doc="Edges that each new node brings; half of the mean degree, or a little less.")


def barabasi_albert(params: BarabasiAlbertParams, count: int, *, rng: Generator) -> Graph:
    """The Barabási-Albert graph by preferential attachment, grown from a star of ``m + 1`` nodes; always connected."""
    m = params.m
    if count <= m:
        raise ParameterError(f"needs more than m = {m} nodes, not {count}; lower m")
    return connected(
        lambda seed: nx.barabasi_albert_graph(count, m, seed=seed),
        count,
        rng=rng,
        fix="raise m",
    )
