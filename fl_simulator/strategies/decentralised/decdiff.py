"""DecDiff: each node takes a step towards its neighbours' average (DecDiff+VT: Valerio et al., 2023, Eq. 5 and 6).

The step is the shorter the further away the average is (Alg. 1). The average leaves the node's own model out and weighs
ω_ij |D_j|. The formula has one distance for a whole model, the text says that aggregation "is done layerwise":
``distance`` chooses. With the loss ``virtual-teacher`` ([training]) it is DecDiff+VT.
"""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Matrix32
from fl_simulator.engine.world import World
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, decentralised_average, mix
from fl_simulator.strategies.decentralised.base import NodeParams, TrainAndAggregate
from fl_simulator.strategies.merging import decdiff


@dataclass(frozen=True, slots=True)
class DecDiffParams(NodeParams):
    s: float = parameter(1.0, at_least=1.0, doc="Added to the distance (Eq. 5); DecDiff's is 1.")
    distance: str = parameter(
        "model",
        choices=("model", "tensor"),
        doc="One distance for the whole model (Eq. 5), or one for each of its tensors (the text).",
    )


class DecDiff(TrainAndAggregate):
    """A step towards the neighbours' average."""

    name = "decdiff"

    def __init__(self, params: DecDiffParams, world: World) -> None:
        super().__init__(params, world)
        self._s = params.s
        self._tensors = world.trainer.layout.tensor_slices if params.distance == "tensor" else ()

    def weights(self, heard: Graph) -> MixingMatrix:
        return decentralised_average(heard, self._world.population.num_examples, include_self=False)

    def aggregate(self, models: Matrix32, heard: Graph) -> Matrix32:
        merged = mix(self.mixing(heard), models)
        for node in np.flatnonzero(heard.degrees):
            merged[node] = decdiff(models[node], merged[node], s=self._s, tensors=self._tensors)
        return merged
