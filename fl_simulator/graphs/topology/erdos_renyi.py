"""Erdős-Rényi G(n, p): each pair of nodes has an edge with the same probability; drawn again until connected."""

import math
from dataclasses import dataclass

import networkx as nx
from numpy.random import Generator

from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology.random_graphs import connected


@dataclass(frozen=True, slots=True)
class ErdosRenyiParams:
    p: float = parameter(0.2, above=0, at_most=1, doc="Probability of each edge.")


def erdos_renyi(params: ErdosRenyiParams, count: int, *, rng: Generator) -> Graph:
    threshold = math.log(count) / count
    return connected(
        lambda seed: nx.fast_gnp_random_graph(count, params.p, seed=seed),
        count,
        rng=rng,
        fix=f"raise p = {params.p:g}, best well above ln(n) / n = {threshold:.2g}",
    )
