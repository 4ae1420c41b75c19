"""D-Cliques: cliques whose members have all classes between them, joined by few edges.

Construction looks at how many samples of each class every node has, which D-Cliques takes for known to all. Nodes are
parted into cliques, each clique's members know one another, and ``interclique`` joins the cliques.

* ``greedy``: D-Cliques's Alg. D-Clique Construction. It needs what D-Cliques assumes: that classes can be dealt out
  until each clique has all of them and nobody is left over, as with one class per node on equally many nodes.
* ``greedy-swap``: for nodes whose data are skewed in any way. From random cliques of equal size, two nodes of different
  cliques change places as long as that brings the label distributions of their cliques nearer to that of all nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import networkx as nx
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_core.types import Vector64
from fl_simulator.graphs.graph import Edge, Graph
from fl_simulator.graphs.topology.interclique import INTERCLIQUE, interconnect
from fl_simulator.graphs.topology.random_graphs import RandomGraph

_MAX_REMOVALS: Final = 1000
_EMPTY: Final = -1
_LEAST_GAIN: Final = 1e-9
"""A swap must bring this much, so that rounding cannot make two nodes change places for ever."""


@dataclass(frozen=True, slots=True)
class DCliquesParams:
    construction: str = parameter(
        "greedy",
        choices=("greedy", "greedy-swap"),
        doc="How nodes are parted: D-Cliques's algorithm, or swaps for general skew.",
    )
    clique_size: int = parameter(
        0,
        at_least=0,
        doc="Nodes in a clique under greedy-swap, some cliques one less; 0: as many as there are classes.",
    )
    inter_clique: str = parameter("complete", choices=INTERCLIQUE, doc="How cliques are joined to one another.")
    neighbourhood: int = parameter(
        2, at_least=1, doc="The small world's fingers to each set of cliques, each way round (D-Cliques's ns)."
    )
    remove: int = parameter(0, at_least=0, doc="Edges taken out of each clique at random; D-Cliques tries 1 and 5.")


def d_cliques(params: DCliquesParams, count: int, *, label_counts: NDArray[np.int64], rng: Generator) -> Graph:
    """The D-Cliques topology; nodes with equally few edges between cliques are picked at random.

    The graph's ``cliques`` are ascending, and in the order of the ring.
    """
    if params.construction == "greedy":
        cliques = greedy_cliques(label_counts, rng=rng)
    else:
        n_classes = int(np.count_nonzero(label_counts.sum(axis=0)))
        cliques = swapped_cliques(label_counts, clique_size=params.clique_size or max(1, n_classes), rng=rng)
    outside = interconnect(params.inter_clique, cliques, neighbourhood=params.neighbourhood, rng=rng)
    inside = [pair for clique in cliques for pair in _intraconnect(clique, params.remove, rng)]
    return Graph.from_edges(count, outside.union(inside), cliques=cliques)


def _intraconnect(clique: tuple[int, ...], remove: int, rng: Generator) -> list[Edge]:
    """All edges within a clique, less those to remove; the others still connect it."""
    pairs = list(combinations(clique, 2))
    if not remove:
        return pairs
    kept = len(pairs) - remove
    for _ in range(_MAX_REMOVALS if kept >= len(clique) - 1 else 0):
        left = [pairs[at] for at in sorted(rng.choice(len(pairs), size=kept, replace=False))]
        graph: RandomGraph = nx.Graph(left)
        if len(graph) == len(clique) and nx.is_connected(graph):
            return left
    raise ParameterError(
        f"a clique of {len(clique)} nodes does not hold together without {remove} of its "
        f"{len(pairs)} edges; lower remove"
    )


def greedy_cliques(label_counts: NDArray[np.int64], *, rng: Generator) -> tuple[tuple[int, ...], ...]:
    """Cliques, one after another: any node that brings a class which the clique lacks, until it has all.

    Args:
        label_counts: Samples of each class at each node, shape ``(n, classes)``.
        rng: Picks among the nodes that bring something.

    Raises:
        ParameterError: the remaining nodes cannot complete a clique; D-Cliques rules this out by its assumptions.

    Source: D-Cliques, App., Alg. D-Clique Construction.
    """
    has = label_counts > 0  # (n, classes)
    present = has.any(axis=0)  # D-Cliques's L
    remaining = np.ones(len(has), dtype=np.bool_)
    cliques: list[tuple[int, ...]] = []
    current, covered = list[int](), np.zeros_like(present)
    while remaining.any():
        bringing = np.flatnonzero(remaining & (has & ~covered).any(axis=1))
        if not bringing.size:
            break
        node = int(rng.choice(bringing))
        remaining[node] = False
        current.append(node)
        covered |= has[node]
        if (covered == present).all():
            cliques.append(tuple(sorted(current)))
            current, covered = [], np.zeros_like(present)
    left = int(remaining.sum()) + len(current)
    if left:
        raise ParameterError(
            f"after {len(cliques)} cliques, {left} nodes are left that do not hold all "
            f"{int(present.sum())} classes; greedy construction needs every class on equally many nodes, take "
            "construction='greedy-swap'"
        )
    return tuple(cliques)


def swapped_cliques(
    label_counts: NDArray[np.int64], *, clique_size: int, rng: Generator
) -> tuple[tuple[int, ...], ...]:
    """Random cliques of equal size, improved by swaps until no two nodes of different cliques should change places.

    A swap is judged by the two cliques' skews: the L1 distance of a clique's label distribution to that of all nodes.
    Cliques meet two by two as in a tournament, and each two make their best swap; tournaments follow one another until
    one passes without a swap. The sum of all skews falls with each swap, so this ends.

    Args:
        label_counts: Samples of each class at each node, shape ``(n, classes)``.
        clique_size: Nodes in a clique, at least 1; some have one less where n is no multiple.
        rng: The first cliques, and the order in which they meet.

    Source: D-Cliques, Sec. D-Cliques, whose aim (each clique's distribution represents the global one) it pursues where
    Alg. D-Clique Construction does not apply.
    """
    n_nodes = len(label_counts)
    n_cliques = -(-n_nodes // clique_size)
    counts = np.vstack([label_counts, np.zeros_like(label_counts[:1])]).astype(np.float64).T.copy()  # (c, n + 1)
    places = np.full((n_cliques, -(-n_nodes // n_cliques)), _EMPTY)  # (k, m): whoever is in the clique
    for clique, part in enumerate(np.array_split(rng.permutation(n_nodes), n_cliques)):
        places[clique, : len(part)] = part
    target = _distribution(counts.sum(axis=1))  # (c,)
    now, swapped = 0, True
    changed = np.zeros(n_cliques, dtype=np.int64)  # (k,): when each last swapped
    met = np.full((n_cliques, n_cliques), -1)  # (k, k): when each two last met; if nothing changed since, nothing will
    while swapped:
        swapped = False
        for one, other in _tournament(rng.permutation(n_cliques)):
            due = np.maximum(changed[one], changed[other]) > met[one, other]
            here, there = one[due], other[due]
            met[here, there] = met[there, here] = now
            now += 1
            helped = _swap(places, here, there, counts, target=target)
            changed[here[helped]] = changed[there[helped]] = now
            swapped |= bool(helped.any())
    return tuple(tuple(sorted(int(node) for node in clique if node != _EMPTY)) for clique in places)


def _tournament(order: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rounds in which each meets one other at most, until each has met all others once (the circle method)."""
    circle = order if len(order) % 2 == 0 else np.append(order, _EMPTY)  # whoever meets nobody pauses
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        here, there = circle[:half], circle[half:][::-1]
        both = (here != _EMPTY) & (there != _EMPTY)
        yield here[both], there[both]
        circle = np.concatenate([circle[:1], np.roll(circle[1:], 1)])


def _swap(
    places: NDArray[np.int64], here: NDArray[np.int64], there: NDArray[np.int64], counts: Vector64, *, target: Vector64
) -> NDArray[np.bool_]:
    """Make the best swap between each two cliques ``here`` and ``there``, where it helps; where it did, shape (t,)."""
    a, b = places[here], places[there]  # (t, m) each
    mine, theirs = counts[:, a], counts[:, b]  # (c, t, m); an empty place is the last column, of zeros
    moved = theirs[:, :, np.newaxis] - mine[..., np.newaxis]  # (c, t, m, m)
    sums = mine.sum(axis=2), theirs.sum(axis=2)  # (c, t) each
    before = _skew(sums[0], target) + _skew(sums[1], target)  # (t,)
    after = _skew(sums[0][..., np.newaxis, np.newaxis] + moved, target)  # (t, m, m)
    after += _skew(sums[1][..., np.newaxis, np.newaxis] - moved, target)
    after[(a == _EMPTY)[:, :, np.newaxis] | (b == _EMPTY)[:, np.newaxis]] = np.inf
    swaps = after.reshape(len(here), places.shape[1] ** 2)
    helps: NDArray[np.bool_] = before - swaps.min(axis=1) > _LEAST_GAIN
    inner, outer = np.divmod(swaps[helps].argmin(axis=1), places.shape[1])
    at = np.flatnonzero(helps)
    places[here[at], inner], places[there[at], outer] = b[at, outer], a[at, inner]
    return helps


def _distribution(sums: Vector64) -> Vector64:
    """Shares along the first axis, the classes; where there are no samples, no class has a share."""
    totals = sums.sum(axis=0)
    shares: Vector64 = sums / np.where(totals > 0, totals, 1)
    return shares


def _skew(sums: Vector64, target: Vector64) -> Vector64:
    """L1 distances along the first axis, which comes first because sums over a short last one are slow."""
    shares = _distribution(sums)
    shares -= target.reshape(-1, *(1,) * (sums.ndim - 1))
    distances: Vector64 = np.abs(shares, out=shares).sum(axis=0)
    return distances
