"""How many there are, by gossip: push-sum.

Every node holds a sum and a weight. Each round it keeps half of both and sends the other half to one of those that
hear it, drawn at random; what it received it adds. Sums and weights are never lost, so every node's ratio tends to the
ratio of the totals. With sums of 1 everywhere and one weight of 1 in the whole network, that is the number of nodes.
It knows nothing of messages that are lost: what carries half a weight must arrive, or be taken back by its sender.

Source: Kempe, Dobra, Gehrke: Gossip-Based Computation of Aggregate Information (FOCS 2003), Alg. 1. Deviation: they
draw among all nodes; here a node draws among its neighbours, as it knows no others.
"""

import numpy as np
from numpy.random import Generator

from fl_core.types import Vector64
from fl_simulator.graphs.graph import Graph


def estimate_num_nodes(graph: Graph, *, rounds: int, rng: Generator) -> Vector64:
    """Every node's estimate of the number of nodes after so many rounds of push-sum, in which all push at once.

    Args:
        graph: Who hears whom; a node without neighbours keeps everything.
        rounds: At least 0.
        rng: Whom each node sends to.

    Returns:
        Shape ``(n,)``, above 0. Node 0 begins with the one weight; a node that no weight has reached counts those that
        it hears and itself.
    """
    count = graph.num_nodes
    senders = np.flatnonzero(graph.degrees)
    held = np.ones((2, count))  # sums and weights
    held[1, 1:] = 0
    for _ in range(rounds):
        receivers = graph.sources[graph.offsets[senders] + rng.integers(graph.degrees[senders])]
        sent = held[:, senders] / 2
        held[:, senders] -= sent
        held += [np.bincount(receivers, weights=halves, minlength=count) for halves in sent]
    sums, weights = held
    counts = graph.degrees.astype(np.float64) + 1
    return np.divide(sums, weights, out=counts, where=weights > 0)
