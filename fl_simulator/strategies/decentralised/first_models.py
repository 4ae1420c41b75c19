"""With which models the nodes of a graph begin: one for all or each its own, and scaled by what gain.

Averaging among peers compresses parameters that were drawn independently; the gain 1 / ‖v_steady‖ on top of any
initialiser undoes that (Uncoordinated initialisation, Sec. 4.3, Alg. 1). ``exact`` takes the steady state of the
averages that the strategy really computes, amounts of data and weights of links among them; with equal amounts that is
the Gain paper's A'. The other gains are what a node can estimate (``fl_simulator.graphs.gain``).
"""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Matrix32, Vector64
from fl_simulator.engine.world import World
from fl_simulator.graphs.gain.estimates import (
    FAMILY_NAMES,
    HEAVY_TAILS,
    gain_by_degrees,
    gain_by_family,
    gain_by_size,
)
from fl_simulator.graphs.gain.push_sum import estimate_num_nodes
from fl_simulator.graphs.gain.steady_state import gain
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix


@dataclass(frozen=True, slots=True)
class FirstModelParams:
    """First models; an estimate reads those of the parameters that its rule has."""

    init: str = parameter(
        "independent",
        choices=("independent", "shared"),
        doc="Every node draws a first model of its own, or all begin with one and the same.",
    )
    gain: str = parameter(
        "none",
        choices=("none", "exact", "size", "degrees", "family"),
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
    gain_family: str = parameter("erdos-renyi", choices=FAMILY_NAMES, doc="Of `family`: which.")
    gain_gamma: float = parameter(
        2.5,
        at_least=min(HEAVY_TAILS),
        at_most=max(HEAVY_TAILS),
        doc="Of `family`, where it is `configuration`: the exponent of its degrees.",
    )
    gain_exponent: float = parameter(
        0.0,
        at_least=0,
        at_most=1,
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
    for node, each in enumerate(gains.tolist()):
        models[node] = world.initial_model(*(() if shared else (node,)), gain=each)
    return models


def _gains(world: World, graph: Graph, params: FirstModelParams, averages: MixingMatrix) -> Vector64:
    if params.gain == "none":
        return np.full(graph.num_nodes, params.gain_factor)
    if params.gain == "exact":
        return np.full(graph.num_nodes, params.gain_factor * gain(averages))
    rng = world.seeds.generator("gain")
    counts = np.full(graph.num_nodes, float(graph.num_nodes))
    if params.gain_gossip_rounds:
        counts = np.maximum(1, estimate_num_nodes(graph, rounds=params.gain_gossip_rounds, rng=rng))
    degrees = graph.degrees.astype(np.float64)
    estimates = np.empty(graph.num_nodes)
    for node, nodes in enumerate((params.gain_nodes_factor * counts).tolist()):
        if params.gain == "size":
            estimates[node] = gain_by_size(nodes)
        elif params.gain == "degrees":
            is_sampled = 0 < params.gain_sample < len(degrees)
            polled = rng.choice(degrees, params.gain_sample, replace=False) if is_sampled else degrees
            estimates[node] = gain_by_degrees(nodes, polled)
        elif params.gain_exponent:
            estimates[node] = max(1.0, nodes) ** params.gain_exponent
        else:
            estimates[node] = gain_by_family(nodes, params.gain_family, gamma=params.gain_gamma)
    return params.gain_factor * estimates
