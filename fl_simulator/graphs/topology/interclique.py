"""How cliques are joined to one another (D-Cliques, Sec. interclique-topologies): complete, ring, fractal, small world.

What the cliques are is decided before. Every edge begins and ends at the clique's member with the fewest edges to other
cliques so far, so that no node carries many: D-Cliques's ``least_edges``.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Final, TypeAlias

from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_simulator.graphs.graph import Edge, edge

Cliques: TypeAlias = Sequence[Sequence[int]]


INTERCLIQUE: Final = ("complete", "ring", "fractal", "small-world")
MOST_CLIQUES: Final = 5000
"""Of a complete interconnection, whose 12.5 million edges are 3 GB as pairs."""


def interconnect(
    how: str, cliques: Cliques, *, neighbourhood: int = 2, rng: Generator | None = None
) -> frozenset[Edge]:
    """Edges between cliques.

    Args:
        how: One of ``INTERCLIQUE``.
        cliques: Nodes of each, in the order in which they lie on a ring.
        neighbourhood: The small world's fingers to each set of cliques, each way round (D-Cliques's ns).
        rng: Picks among nodes with equally few edges; without it the lowest number is taken.
    """
    joints = Joints(rng)
    match how:
        case "complete":
            complete(cliques, joints)
        case "ring":
            ring(cliques, joints)
        case "fractal":
            fractal(cliques, joints)
        case _:
            small_world(cliques, joints, neighbourhood=neighbourhood)
    return frozenset(joints.edges)


class Joints:
    """Edges between cliques as they are added, and how many each node has; ``rng`` as in ``interconnect``."""

    def __init__(self, rng: Generator | None = None) -> None:
        self.edges: set[Edge] = set()
        self._degrees: defaultdict[int, int] = defaultdict(int)
        self._rng = rng

    def add(self, here: Sequence[int], there: Sequence[int]) -> None:
        """Join two groups of nodes by one edge; one that is there already is not counted again."""
        a, b = self._least_edges(here), self._least_edges(there)
        if (joint := edge(a, b)) not in self.edges:
            self.edges.add(joint)
            self._degrees[a] += 1
            self._degrees[b] += 1

    def _least_edges(self, nodes: Sequence[int]) -> int:
        degrees = [self._degrees[node] for node in nodes]
        fewest = min(degrees)
        equals = [node for node, degree in zip(nodes, degrees, strict=True) if degree == fewest]
        return min(equals) if self._rng is None else equals[self._rng.integers(len(equals))]


def complete(cliques: Cliques, joints: Joints) -> None:
    """One edge between any two cliques: n/c (n/c - 1) / 2 edges for n nodes in cliques of c."""
    if len(cliques) > MOST_CLIQUES:
        raise ParameterError(
            f"joins up to {MOST_CLIQUES:,} cliques each to each, not {len(cliques):,}; take "
            "inter_clique = 'fractal' or 'small-world'"
        )
    for here, there in combinations(cliques, 2):
        joints.add(here, there)


def ring(cliques: Cliques, joints: Joints) -> None:
    """One edge from each clique to the next and from the last to the first.

    D-Cliques counts n/c - 1 edges, which would leave the ring open; here it is closed.
    """
    for at in range(len(cliques) if len(cliques) > 2 else len(cliques) - 1):
        joints.add(cliques[at], cliques[(at + 1) % len(cliques)])


def fractal(cliques: Cliques, joints: Joints) -> None:
    """Groups of c cliques, each two of a group joined once; groups of c groups likewise; up to one that holds all.

    c is the size of the largest clique, as in D-Cliques, but at least 2.
    """
    arity = max(2, *map(len, cliques))
    groups = [list(clique) for clique in cliques]
    while len(groups) > 1:
        larger = [groups[at : at + arity] for at in range(0, len(groups), arity)]
        for members in larger:
            for here, there in combinations(members, 2):
                joints.add(here, there)
        groups = [[node for member in members for node in member] for members in larger]


def small_world(cliques: Cliques, joints: Joints, *, neighbourhood: int) -> None:
    """Fingers to the ``neighbourhood`` nearest cliques of sets that double in size with distance, both ways round.

    Source: D-Cliques, App., Alg. smallworld. Deviations: fingers that come round to their own clique are left out, and
    so is the algorithm's last set, which lies a whole turn of the ring away.
    """
    n_cliques = len(cliques)
    for here in range(n_cliques):
        for power in range((n_cliques - 1).bit_length()):
            for nearest in range(neighbourhood):
                distance = (1 << power) + nearest
                for there in ((here + distance) % n_cliques, (here - distance) % n_cliques):
                    if there != here:
                        joints.add(cliques[here], cliques[there])
