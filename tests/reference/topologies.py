"""Naive twins of the topologies: Algorithm ``smallworld`` of D-Cliques, line by line, over sets."""

import math


def small_world(cliques: list[list[int]], *, ns: int) -> set[frozenset[int]]:
    """Undirected edges between cliques, as the paper's algorithm adds them, less a whole turn round the ring."""
    edges: set[frozenset[int]] = set()

    def least_edges(nodes: list[int]) -> int:
        return min(nodes, key=lambda node: (sum(node in each for each in edges), node))

    n = len(cliques)
    for i in range(n):
        for offset in [2**x for x in range(math.ceil(math.log2(n)))]:
            for k in range(ns):
                for j in ((i + offset + k) % n, (i - offset - k) % n):
                    if j != i:
                        edges.add(frozenset({least_edges(cliques[i]), least_edges(cliques[j])}))
    return edges


def hops(count: int, edges: set[frozenset[int]], start: int) -> dict[int, int]:
    """Distance of every node that can be reached from ``start``, by breadth-first search."""
    found, frontier = {start: 0}, [start]
    while frontier:
        following = []
        for node in frontier:
            for other in range(count):
                if frozenset({node, other}) in edges and other not in found:
                    found[other] = found[node] + 1
                    following.append(other)
        frontier = following
    return found
