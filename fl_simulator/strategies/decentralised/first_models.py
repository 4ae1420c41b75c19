"""With which models the nodes of a graph begin: one for all or each its own, and scaled by what gain.

Averaging among peers compresses parameters that were drawn independently; the gain 1 / ‖v_steady‖ on top of any
initialiser undoes that (Uncoordinated initialisation, Sec. 4.3, Alg. 1). ``exact`` takes the steady state of the
averages that the strategy really computes, amounts of data and weights of links among them; with equal amounts that is
the Gain paper's A'. What a node can estimate of it is in ``experiments/uncoordinated_initialisation``.
"""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Matrix32
from fl_simulator.engine.world import World
from fl_simulator.graphs.gain.steady_state import gain
from fl_simulator.graphs.mixing import MixingMatrix


@dataclass(frozen=True, slots=True)
class FirstModelParams:
    init: str = parameter(
        "independent",
        choices=("independent", "shared"),
        doc="Every node draws a first model of its own, or all begin with one and the same.",
    )
    gain: str = parameter(
        "none", choices=("none", "exact"), doc="What first weights are multiplied with: nothing, or 1 / ‖v_steady‖."
    )
    gain_factor: float = parameter(1.0, above=0.0, doc="Multiplies the gain; with gain = none it is the gain itself.")


def first_models(world: World, params: FirstModelParams, *, averages: MixingMatrix) -> Matrix32:
    """Each node's first model, shape ``(n, P)``; ``averages`` is how the strategy averages when all links are up."""
    scale = params.gain_factor * (gain(averages) if params.gain == "exact" else 1.0)
    if params.init == "shared":
        return np.tile(world.initial_model(gain=scale), (world.num_clients, 1))
    models = np.empty((world.num_clients, world.trainer.layout.num_parameters), dtype=np.float32)
    for node in range(world.num_clients):
        models[node] = world.initial_model(node, gain=scale)
    return models
