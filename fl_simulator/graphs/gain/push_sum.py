"""How many there are, by gossip: push-sum, as pure functions of a state and a generator.

Every node holds a sum and a weight. Each round it keeps half of both and sends the other half to one of those that
hear it, drawn at random; what it received it adds. Sums and weights are never lost, so every node's ratio tends to the
ratio of the totals. With sums of 1 everywhere and one weight of 1 in the whole network, that is the number of nodes.
It knows nothing of messages that are lost: what carries half a weight must arrive, or be taken back by its sender.

Source: Kempe, Dobra, Gehrke: Gossip-Based Computation of Aggregate Information (FOCS 2003), Alg. 1. Deviation: they
draw among all nodes; here a node draws among its neighbours, as it knows no others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.types import Vector64
from fl_simulator.graphs.topology.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class PushSum:
    """What all nodes hold after a round.

    Attributes:
        sums: Shape ``(n,)``.
        weights: Shape ``(n,)``, at least 0.
    """

    sums: Vector64
    weights: Vector64

    @classmethod
    def counting(cls, count: int, *, root: int = 0) -> "PushSum":
        """The state in which gossip begins to count ``count`` nodes; ``root`` has the one weight.

        Raises:
            ParameterError: The root is not among the nodes.
        """
        if not 0 <= root < count:
            raise ParameterError(f"push-sum counts from one of the nodes 0 to {count - 1}, not from {root}")
        weights = np.zeros(count)
        weights[root] = 1
        return cls(np.ones(count), weights)

    @property
    def estimates(self) -> Vector64:
        """Each node's ratio, shape ``(n,)``; infinite where no weight has arrived yet."""
        ratios = np.full(len(self.sums), np.inf)
        np.divide(self.sums, self.weights, out=ratios, where=self.weights > 0)
        return ratios


def push_sum_rounds(graph: Graph, state: PushSum, *, rng: Generator) -> Iterator[PushSum]:
    """The state after each further round, without end; all nodes push at the same time.

    A node that nobody hears keeps everything.
    """
    count = graph.num_nodes
    by_source = np.argsort(graph.sources, kind="stable")
    targets = graph.targets[by_source]  # (a,): who hears node j, at begins[j] and on
    how_many = np.bincount(graph.sources, minlength=count)
    begins = np.cumsum(how_many) - how_many
    senders = np.flatnonzero(how_many)
    while True:
        drawn = rng.integers(how_many[senders])  # (senders,)
        receivers = targets[begins[senders] + drawn]
        state = PushSum(*(_halved(held, senders, receivers) for held in (state.sums, state.weights)))
        yield state


def estimate_num_nodes(graph: Graph, *, rounds: int, rng: Generator, root: int = 0) -> Vector64:
    """Every node's estimate of the number of nodes after so many rounds of push-sum.

    Args:
        graph: Who hears whom.
        rounds: At least 0.
        rng: Whom each node sends to.
        root: The node that begins.

    Returns:
        Shape ``(n,)``, above 0; infinite where no weight has arrived yet.

    Raises:
        ParameterError: Fewer than 0 rounds, or a root that is not among the nodes.
    """
    if rounds < 0:
        raise ParameterError(f"gossip takes 0 rounds or more, not {rounds}")
    state = PushSum.counting(graph.num_nodes, root=root)
    states = push_sum_rounds(graph, state, rng=rng)
    for _ in range(rounds):
        state = next(states)
    return state.estimates


def _halved(held: Vector64, senders: NDArray[np.int64], receivers: NDArray[np.int64]) -> Vector64:
    kept = held.copy()
    kept[senders] /= 2
    kept += np.bincount(receivers, weights=held[senders] / 2, minlength=len(held))
    return kept
