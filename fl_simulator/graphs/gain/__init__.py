"""Uncoordinated initialisation: the gain that undoes what averaging among peers does to initial parameters.

A new estimator of the gain is one file and one line in ``GAIN_ESTIMATORS``; the contract
tests in ``tests/contract/test_gain_estimators.py`` then hold it to what every estimator promises.

    >>> estimator = GAIN_ESTIMATORS.build("size", {})
    >>> estimator.estimate(NetworkSketch(num_nodes=16), rng=np.random.default_rng(0))
    4.0
"""

from typing import Final

import numpy as np
from numpy.random import Generator

from fl_core.registry import PartRegistry
from fl_core.types import Vector64
from fl_simulator.graphs.gain.dispersion import parameter_spread
from fl_simulator.graphs.gain.eigenvector import (
    SelfWeight,
    averaging_matrix,
    gain,
    gain_of,
    power_iteration,
    steady_state,
    steady_state_of,
)
from fl_simulator.graphs.gain.mixing import mixing_time, mixing_time_bounds, spectral_gap
from fl_simulator.graphs.gain.numerical_model import (
    SpreadOverRounds,
    early_stage,
    predicted_sigma_ap,
    stabilisation_time,
)
from fl_simulator.graphs.gain.protocol import GainEstimator, NetworkSketch
from fl_simulator.graphs.gain.push_sum import PushSum, estimate_num_nodes, push_sum_rounds
from fl_simulator.graphs.topology.graph import Graph

GAIN_ESTIMATORS: Final = PartRegistry[GainEstimator](
    "gain estimator",
    {
        "exact": "fl_simulator.graphs.gain.exact:Exact",
        "size": "fl_simulator.graphs.gain.by_size:Size",
        "degrees": "fl_simulator.graphs.gain.by_degree:Degrees",
        "family": "fl_simulator.graphs.gain.by_family:Family",
    },
)


def gains_of_nodes(
    estimator: GainEstimator, graph: Graph, *, rng: Generator, gossip_rounds: int | None = None
) -> Vector64:
    """The gain that each node of a graph takes, when all ask the same estimator.

    Args:
        estimator: Every node's rule.
        graph: The network; estimators that ask for the graph or for degrees are given them.
        rng: Every draw.
        gossip_rounds: Rounds of push-sum after which each node has an estimate of its own of the number of nodes; a
            node that no weight has reached counts those that it hears and itself. None: all know the number.

    Returns:
        Shape ``(n,)``, each at least 1.

    Raises:
        ParameterError: As ``GainEstimator.estimate`` and ``estimate_num_nodes``.
    """
    known = NetworkSketch.of(graph)
    if gossip_rounds is None:
        counts = np.full(graph.num_nodes, float(graph.num_nodes))
    else:
        counts = estimate_num_nodes(graph, rounds=gossip_rounds, rng=rng)
        counts = np.maximum(1.0, np.where(np.isfinite(counts), counts, graph.degrees + 1.0))
    if estimator.name == "exact":
        return np.full(graph.num_nodes, estimator.estimate(known, rng=rng))
    sketches = (NetworkSketch(float(count), known.degrees, graph) for count in counts)
    return np.array([estimator.estimate(sketch, rng=rng) for sketch in sketches])


__all__ = [
    "GAIN_ESTIMATORS",
    "GainEstimator",
    "NetworkSketch",
    "PushSum",
    "SelfWeight",
    "SpreadOverRounds",
    "averaging_matrix",
    "early_stage",
    "estimate_num_nodes",
    "gain",
    "gain_of",
    "gains_of_nodes",
    "mixing_time",
    "mixing_time_bounds",
    "parameter_spread",
    "power_iteration",
    "predicted_sigma_ap",
    "push_sum_rounds",
    "spectral_gap",
    "stabilisation_time",
    "steady_state",
    "steady_state_of",
]
