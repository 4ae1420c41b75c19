"""Random and diverse: everybody has ``k`` neighbours at random, among whom all classes are represented.

D-Cliques compares itself with this at k = 10 (random-10-diverse), to tell apart what cliques do and what diverse
neighbours do. D-Cliques says what such a graph must fulfil and not how to find one. Here a random k-regular graph is
drawn, and edges are exchanged in pairs, which keeps every node's number of neighbours: an edge to a class that a node
has twice goes against one to a class that it lacks, as long as no more is lacking than before.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Edge, Graph, edge
from fl_simulator.graphs.topology.k_regular import random_regular

_DRAWS: Final = 10
_EXCHANGES_PER_EDGE: Final = 10


@dataclass(frozen=True, slots=True)
class RandomDiverseParams:
    k: int = parameter(10, at_least=1, doc="Neighbours of each node; at least as many as it takes to have all classes.")


def random_diverse(
    params: RandomDiverseParams, count: int, *, label_counts: NDArray[np.int64], rng: Generator
) -> Graph:
    """A random k-regular graph in which every node has neighbours of all classes."""
    has = label_counts > 0  # (n, c)
    has = has[:, has.any(axis=0)]
    for _ in range(_DRAWS):
        search = _Search(random_regular(count, params.k, rng=rng), has=has, rng=rng)
        if search.run():
            graph = Graph.from_edges(count, search.edges)
            if graph.is_connected:
                return graph
    raise ParameterError(
        f"no way was found to give each of {count} nodes k = {params.k} neighbours that "
        f"have all {has.shape[1]} classes between them; raise k, or let more nodes have the rare classes"
    )


class _Search:
    """Exchanges edges of a regular graph until nobody lacks a class among the neighbours."""

    def __init__(self, graph: Graph, *, has: NDArray[np.bool_], rng: Generator) -> None:
        self._has = has.astype(np.int64)  # (n, c)
        self._rng = rng
        self._heard = [set(graph.in_neighbours(node).tolist()) for node in range(graph.num_nodes)]
        self._seen = np.array([self._has[list(heard)].sum(axis=0) for heard in self._heard])  # (n, c)
        self._holders = [np.flatnonzero(column) for column in has.T]

    @property
    def edges(self) -> set[Edge]:
        """As they are now."""
        return {edge(node, other) for node, heard in enumerate(self._heard) for other in heard}

    def run(self) -> bool:
        """Exchange until nothing is lacking; whether that was reached."""
        for _ in range(_EXCHANGES_PER_EDGE * len(self.edges)):
            lacking = np.argwhere(self._seen == 0)
            if not len(lacking):
                return True
            node, label = lacking[self._rng.integers(len(lacking))]
            self._exchange(int(node), int(label))
        return False

    def _exchange(self, node: int, label: int) -> None:
        """Give ``node`` a neighbour that has ``label``, for one of its others: a-b and c-d become a-c and b-d.

        Of all edges that the two could give up, those are taken after which fewest nodes lack fewest classes.
        """
        has, seen, heard = self._has, self._seen, self._heard
        wanted = int(self._rng.choice(self._holders[label]))
        if wanted == node:
            return
        given, freed = np.array(sorted(heard[node])), np.array(sorted(heard[wanted]))  # (k,) each
        change = _lacking(seen[node] - has[given] + has[wanted]) - _lacking(seen[node])  # (k,)
        change = change[:, np.newaxis] + _lacking(seen[wanted] - has[freed] + has[node]) - _lacking(seen[wanted])
        b, d = given[:, np.newaxis], freed[np.newaxis]  # all (k, k) pairs of one edge each
        change += _lacking(seen[b] - has[node] + has[d]) - _lacking(seen[b])
        change += _lacking(seen[d] - has[wanted] + has[b]) - _lacking(seen[d])
        possible = np.array([[d != b and d not in heard[b] for d in freed.tolist()] for b in given.tolist()])
        best = min(0, int(change[possible].min(initial=1)))
        choices = np.argwhere(possible & (change == best))
        if not len(choices):
            return
        at = choices[self._rng.integers(len(choices))]
        self._apply(node, int(given[at[0]]), wanted, int(freed[at[1]]))

    def _apply(self, a: int, b: int, c: int, d: int) -> None:
        for node, old, new in ((a, b, c), (b, a, d), (c, d, a), (d, c, b)):
            self._heard[node].remove(old)
            self._heard[node].add(new)
            self._seen[node] += self._has[new] - self._has[old]


def _lacking(seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many classes nobody brings, along the last axis."""
    return np.asarray((seen == 0).sum(axis=-1), dtype=np.int64)
