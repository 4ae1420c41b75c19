"""With which models the nodes of a graph begin: one for all or each its own, and scaled by what gain.

Averaging among peers compresses parameters that were drawn independently; the gain 1 / ‖v_steady‖ on top of any
initialiser undoes that (Uncoordinated initialisation, Sec. 4.3, Alg. 1). ``exact`` takes the steady state of the
averages that the strategy really computes, amounts of data and weights of links among them; with equal amounts that is
the Gain paper's A'. The other gains are what a node can estimate (``fl_simulator.graphs.gain``).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_core.parameters import parameter, rules_of
from fl_core.types import JsonScalar, Matrix32, Vector64
from fl_simulator.engine.world import World
from fl_simulator.graphs.gain import (
    GAIN_ESTIMATORS,
    gain_of,
    gains_of_nodes,
    steady_state_of,
)
from fl_simulator.graphs.gain.by_family import FamilyParams
from fl_simulator.graphs.topology import Graph, MixingMatrix

_NONE: Final = "none"
_EXACT: Final = "exact"
GAINS: Final = (_NONE, *GAIN_ESTIMATORS)
_FAMILY: Final = rules_of(FamilyParams)


@dataclass(frozen=True, slots=True)
class FirstModelParams:
    """First models; an estimate reads those of the parameters that its rule has."""

    init: str = parameter(
        "independent",
        choices=("independent", "shared"),
        doc="Every node draws a first model of its own, or all begin with one and the same.",
    )
    gain: str = parameter(
        _NONE,
        choices=GAINS,
        doc="What first weights are multiplied with: nothing, 1 / ‖v_steady‖, or a node's estimate of that from the "
        "number of nodes (`size`), polled degrees too (`degrees`), or the graph's family (`family`).",
    )
    gain_factor: float = parameter(1.0, above=0.0, doc="Multiplies the gain; with gain = none it is the gain itself.")
    gain_nodes_factor: float = parameter(
        1.0, above=0.0, doc="An estimate takes the number of nodes so many times: wrongly, unless 1."
    )
    gain_gossip_rounds: int = parameter(
        0, at_least=0, doc="Rounds of push-sum from which each node has its number of nodes; 0: all know it."
    )
    gain_sample: int = parameter(0, at_least=0, doc="Of `degrees`: how many are polled; 0: all.")
    gain_family: str = parameter("erdos-renyi", choices=_FAMILY["family"].choices, doc="Of `family`: which.")
    gain_gamma: float = parameter(
        2.5,
        at_least=_FAMILY["gamma"].at_least,
        at_most=_FAMILY["gamma"].at_most,
        doc="Of `family`, where it is `configuration`: the exponent of its degrees.",
    )
    gain_exponent: float = parameter(
        0.0,
        at_least=_FAMILY["exponent"].at_least,
        at_most=_FAMILY["exponent"].at_most,
        doc="Of `family`: the exponent of the number of nodes; 0: the family's.",
    )


def first_models(world: World, graph: Graph, params: FirstModelParams, *, averages: MixingMatrix) -> Matrix32:
    """Each node's first model, shape ``(n, P)``.

    Args:
        world: Draws them.
        graph: What estimates are made of.
        params: Checked.
        averages: How the strategy averages when all links are up.

    Raises:
        ParameterError: The gain is asked of a graph in which some do not reach some others.
    """
    gains = _gains(world, graph, params, averages)
    shared = params.init == "shared"
    if shared and (gains == gains[0]).all():
        return np.tile(world.initial_model(gain=float(gains[0])), (world.num_clients, 1))
    models = np.empty((world.num_clients, world.trainer.layout.num_parameters), dtype=np.float32)
    for node, gain in enumerate(gains.tolist()):
        models[node] = world.initial_model(*(() if shared else (node,)), gain=gain)
    return models


def _gains(world: World, graph: Graph, params: FirstModelParams, averages: MixingMatrix) -> Vector64:
    if params.gain == _NONE:
        return np.full(graph.num_nodes, params.gain_factor)
    if params.gain == _EXACT:
        return np.full(graph.num_nodes, params.gain_factor * gain_of(steady_state_of(averages)))
    told: dict[str, JsonScalar] = {"error_factor": params.gain_nodes_factor}
    if params.gain == "degrees":
        told["sample"] = params.gain_sample
    if params.gain == "family":
        told |= {"family": params.gain_family, "gamma": params.gain_gamma, "exponent": params.gain_exponent}
    gains = gains_of_nodes(
        GAIN_ESTIMATORS.build(params.gain, told),
        graph,
        rng=world.seeds.generator("gain"),
        gossip_rounds=params.gain_gossip_rounds or None,
    )
    return params.gain_factor * gains
