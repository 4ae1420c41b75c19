"""CFA-GE: CFA whose nodes also send gradients of one another's models (Savazzi et al., IoT Journal 2020).

Plainly, a node would send its aggregated model round, wait for its neighbours' gradients of it, and apply them. Here it
is the sped-up form of that paper, which DecDiff+VT uses as well: nobody waits. Along with its new model a node sends
each neighbour the gradient of the model that it received from it in the round *before*, on the first batch of its own
data. What a node receives is averaged by p_ij, as models are (Eq. 9), and applied once models are aggregated:
w_i <- CFA(w)_i - η Σ_j p_ij ∇L_j(w_i of the round before).

A gradient is as large as a model and is counted as one. It can be sent only where the neighbour was heard in the round
before and hears now. Deviation: the original smooths gradients over rounds; here each is used as it is.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.types import Matrix32, Vector64
from fl_simulator.engine.world import World
from fl_simulator.graphs.graph import Graph
from fl_simulator.strategies.decentralised.base import NodeParams
from fl_simulator.strategies.decentralised.cfa import Cfa

_BLOCK_BYTES: Final = 1 << 24
"""Models whose gradients are computed together: few enough to stay near the processor, and to reuse their memory."""


class CfaGe(Cfa):
    """CFA, and a step against the neighbours' gradients."""

    name = "cfa-ge"
    remembered: tuple[str, ...] = (*Cfa.remembered, "received")

    def __init__(self, params: NodeParams, world: World) -> None:
        super().__init__(params, world)
        self._rate = np.float32(world.training.learning_rate)
        self.received: Matrix32 = np.zeros_like(self.models)

    def aggregate(self, models: Matrix32, heard: Graph) -> Matrix32:
        moved = super().aggregate(models, heard)
        moved -= self._rate * self.received
        return moved

    def _also_send(self, number: int, before: Matrix32, heard_before: Graph) -> int:
        asked = returning(self._heard, heard_before)
        shares = shares_of(asked, self._world.population.num_examples).astype(np.float32)[:, None]  # (a, 1)
        targets = asked.targets
        received = np.zeros_like(before)
        size = max(_BLOCK_BYTES // before[0].nbytes, 1)
        for at in range(0, asked.num_arcs, size):
            those = slice(at, at + size)
            gradients = self._world.gradients(
                before[targets[those]], asked.sources[those], round_index=number
            )  # (k, P)
            gradients *= shares[those]
            first = np.flatnonzero(np.diff(targets[those], prepend=-1))  # where each node's rows begin
            received[targets[those][first]] += np.add.reduceat(gradients, first, axis=0)
        self.received = received
        return asked.num_arcs


def returning(now: Graph, before: Graph) -> Graph:
    """The arcs of ``now`` whose hearer was heard by its source ``before``: over these a gradient can come back."""
    came = before.targets * before.num_nodes + before.sources
    back = now.sources * now.num_nodes + now.targets
    return now.only(np.isin(back, came))


def shares_of(heard: Graph, amounts: NDArray[np.int64]) -> Vector64:
    """p_ij of each arc: what its source has of all that its hearer's sources have, shape ``(a,)``."""
    weighed: Vector64 = amounts[heard.sources].astype(np.float64)
    totals = np.bincount(heard.targets, weights=weighed, minlength=heard.num_nodes)
    shares: Vector64 = weighed / totals[heard.targets]
    return shares
