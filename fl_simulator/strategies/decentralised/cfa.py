"""CFA: each node moves a part of the way to its neighbours' average (Savazzi et al., IoT Journal 2020).

w_i <- w_i + ε Σ_j p_ij (w_j - w_i), with p_ij = |D_j| / Σ_k |D_k| over the neighbours and ε = 1/Δ, Δ = |N(i)|, as
DecDiff+VT gives it (Eq. 9). ω plays no part. Where a node hears only some of its neighbours, p is over these and Δ is
what it was.
"""

import numpy as np

from fl_core.types import Matrix32
from fl_simulator.engine.world import World
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, decentralised_average, mix
from fl_simulator.strategies.decentralised.base import NodeParams, TrainAndAggregate


class Cfa(TrainAndAggregate):
    """A step of ε towards the neighbours' average."""

    name = "cfa"

    def __init__(self, params: NodeParams, world: World) -> None:
        super().__init__(params, world)
        self._epsilon = (1 / np.maximum(self._graph.degrees, 1)).astype(np.float32)[:, None]  # (n, 1)

    def weights(self, heard: Graph) -> MixingMatrix:
        return decentralised_average(heard.unweighted(), self._world.population.num_examples, include_self=False)

    def aggregate(self, models: Matrix32, heard: Graph) -> Matrix32:
        moved = mix(self.mixing(heard), models)
        moved -= models
        moved *= self._epsilon
        moved += models
        return moved
