"""DecAvg: each node takes the average of its neighbourhood, itself among it (DecDiff: Valerio et al., 2023, Eq. 4).

DecDiff (Sec. III-C, Eq. 4) calls it DecAvg where all nodes begin with one model (``init = "shared"``), and DecHetero
where each begins with its own; Uncoordinated initialisation (Eq. 3) is the same average. By examples a model weighs
ω_ij |D_j|; with Metropolis-Hastings weights (D-Cliques, Eq. metro) the amount of data plays no part.

Deviation: as reported, Eq. 4 divides by Σ ω_ij alone, under which models would shrink; see ``decentralised_average``.
"""

from dataclasses import dataclass

from fl_core.parameters import parameter
from fl_core.types import Matrix32
from fl_simulator.engine.world import World
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, decentralised_average, metropolis_hastings, mix
from fl_simulator.strategies.decentralised.base import NodeParams, TrainAndAggregate


@dataclass(frozen=True, slots=True)
class DecAvgParams(NodeParams):
    weights: str = parameter(
        "examples",
        choices=("examples", "metropolis"),
        doc="A model weighs as its node has samples, or by Metropolis-Hastings.",
    )


class DecAvg(TrainAndAggregate):
    """The neighbourhood's average in the model's place."""

    name = "decavg"

    def __init__(self, params: DecAvgParams, world: World) -> None:
        self._by_examples = params.weights == "examples"
        super().__init__(params, world)

    def weights(self, heard: Graph) -> MixingMatrix:
        if self._by_examples:
            return decentralised_average(heard, self._world.population.num_examples, include_self=True)
        return metropolis_hastings(heard)

    def _averages(self) -> MixingMatrix:
        return self.weights(self._graph)

    def aggregate(self, models: Matrix32, heard: Graph) -> Matrix32:
        return mix(self.mixing(heard), models)
