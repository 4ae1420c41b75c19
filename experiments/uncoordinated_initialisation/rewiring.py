"""Degree-preserving rewiring towards a degree assortativity (Uncoordinated initialisation, Sec. 4.4, Fig. 8c).

Two edges a-b and c-d become a-d and c-b, so all degrees stay. Assortativity ρ is Newman's: the correlation of the
degrees at both ends of an edge. With degrees fixed it is linear in the sum over edges of the product of their ends'
degrees, so a swap's effect needs four degrees. Swaps are accepted by simulated annealing: those that bring ρ nearer to
its target always, others with a probability that falls with the temperature.
"""

import math
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fl_simulator.graphs.graph import Graph

FIRST_TEMPERATURE: Final = 1e-3
COOLING: Final = 0.9999
"""Of the temperature with each swap that is tried; temperatures are differences of ρ."""
CLOSE_ENOUGH: Final = 1e-3
MOST_SWAPS: Final = 2_000_000


def edges_of(graph: Graph) -> NDArray[np.int64]:
    """Both ends of each edge, the lower number first, shape ``(m, 2)``."""
    forth = graph.targets < graph.sources
    return np.stack([graph.targets[forth], graph.sources[forth]], axis=1)


def assortativity(graph: Graph) -> float:
    """Newman's ρ of an undirected graph; 0 where all edges join equal degrees, for then it has no value."""
    products, mean, variance = _done(edges_of(graph), graph.degrees)
    return (products / graph.num_edges - mean**2) / variance if variance > 0 else 0.0


def rewire(graph: Graph, *, target: float, rng: Generator) -> Graph:
    """A graph with the same degrees whose assortativity is ``target``, within ``CLOSE_ENOUGH``.

    Raises:
        ValueError: It was not reached; for each sequence of degrees there are values that no graph has.
    """
    edges, degrees = edges_of(graph).tolist(), graph.degrees
    products, mean, variance = _done(edges_of(graph), degrees)
    scale = 1 / (len(edges) * variance)
    known, k = {(a, b) for a, b in edges}, degrees.tolist()
    now, temperature = (products / len(edges) - mean**2) / variance, FIRST_TEMPERATURE
    for tried in range(MOST_SWAPS):
        if abs(now - target) <= CLOSE_ENOUGH:
            return Graph.from_edges(graph.num_nodes, np.array(edges))
        if tried % 4096 == 0:
            picks = rng.integers(len(edges), size=(4096, 2)).tolist()
            flips, chances = rng.integers(2, size=4096).tolist(), rng.random(4096).tolist()
        first, second = picks[tried % 4096]
        (a, b), (c, d) = edges[first], edges[second]
        if flips[tried % 4096]:
            c, d = d, c
        temperature *= COOLING
        if len({a, b, c, d}) < 4 or _pair(a, d) in known or _pair(c, b) in known:
            continue
        moved = now + scale * (k[a] * k[d] + k[c] * k[b] - k[a] * k[b] - k[c] * k[d])
        worse = abs(moved - target) - abs(now - target)
        if worse > 0 and chances[tried % 4096] >= math.exp(-worse / max(temperature, 1e-12)):
            continue
        known -= {_pair(a, b), _pair(c, d)}
        known |= {_pair(a, d), _pair(c, b)}
        edges[first], edges[second], now = list(_pair(a, d)), list(_pair(c, b)), moved
    raise ValueError(f"assortativity {target:g} was not reached in {MOST_SWAPS} swaps, only {now:.3f}")


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _done(edges: NDArray[np.int64], degrees: NDArray[np.int64]) -> tuple[float, float, float]:
    """Sum over edges of the product of their ends' degrees; mean and variance of the degree at an edge's end."""
    ends = degrees[edges].astype(np.float64)  # (m, 2)
    return float(ends.prod(axis=1).sum()), float(ends.mean()), float(ends.var())
