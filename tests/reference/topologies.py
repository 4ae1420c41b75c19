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


def d_clique_construction(classes: list[set[int]], picks: list[int]) -> list[set[int]]:
    """Alg. D-Clique Construction of D-Cliques, line by line, over sets; ``picks`` are the nodes in picked order.

    Each pick must be one that the algorithm may make. The algorithm's condition is read as "brings a class that C
    lacks", which is what its text says.
    """
    everything = set.union(*classes)
    remaining, cliques, current = set(range(len(classes))), list[set[int]](), set[int]()
    for n in picks:
        covered = set[int]().union(*(classes[m] for m in current))
        assert n in {m for m in remaining if not classes[m] <= covered}
        remaining -= {n}
        current |= {n}
        if set[int]().union(*(classes[m] for m in current)) == everything:
            cliques.append(current)
            current = set()
    assert not remaining
    return cliques


def skew(counts: list[list[int]], clique: list[int]) -> float:
    """L1 distance between a clique's label distribution and that of all nodes, by loops."""
    everybody, members = range(len(counts)), clique
    total = sum(map(sum, counts))
    inside = sum(sum(counts[node]) for node in members)
    distance = 0.0
    for label in range(len(counts[0])):
        share = sum(counts[node][label] for node in members) / inside if inside else 0.0
        distance += abs(share - sum(counts[node][label] for node in everybody) / total)
    return distance
