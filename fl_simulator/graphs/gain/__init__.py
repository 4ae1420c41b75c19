"""Uncoordinated initialisation: the gain that undoes what averaging among peers does to initial parameters.

A new estimator of the gain is one file with a frozen params dataclass and one line in ``GAIN_ESTIMATORS``; the contract
tests in ``tests/contract/test_gain_estimators.py`` then hold it to what every estimator promises.

    >>> estimator = build_gain_estimator("size", {})
    >>> estimator.estimate(NetworkSketch(num_nodes=16), rng=np.random.default_rng(0))
    4.0
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from numpy.random import Generator

from fl_core.errors import UnknownNameError
from fl_core.parameters import read_parameters
from fl_core.types import JsonScalar, Vector64
from fl_simulator.graphs.gain import degrees, exact, family, size
from fl_simulator.graphs.gain.degrees import Degrees, DegreesParams
from fl_simulator.graphs.gain.exact import Exact, ExactParams
from fl_simulator.graphs.gain.family import Family, FamilyParams
from fl_simulator.graphs.gain.mixing import mixing_time, mixing_time_bounds, spectral_gap
from fl_simulator.graphs.gain.numerical_model import (
    SpreadOverRounds,
    early_stage,
    predicted_sigma_ap,
    stabilisation_time,
)
from fl_simulator.graphs.gain.protocol import GainEstimator, NetworkSketch
from fl_simulator.graphs.gain.push_sum import PushSum, estimate_num_nodes, push_sum_rounds
from fl_simulator.graphs.gain.size import Size, SizeParams
from fl_simulator.graphs.gain.spread import parameter_spread
from fl_simulator.graphs.gain.steady import (
    SelfWeight,
    averaging_matrix,
    gain,
    gain_of,
    power_iteration,
    steady_state,
    steady_state_of,
)
from fl_simulator.graphs.topology.graph import Graph

GainEstimatorFactory: TypeAlias = Callable[[Mapping[str, JsonScalar]], GainEstimator]


def _exact(params: Mapping[str, JsonScalar]) -> GainEstimator:
    return Exact(read_parameters(ExactParams, params, owner="gain estimator 'exact'"))


def _size(params: Mapping[str, JsonScalar]) -> GainEstimator:
    return Size(read_parameters(SizeParams, params, owner="gain estimator 'size'"))


def _degrees(params: Mapping[str, JsonScalar]) -> GainEstimator:
    return Degrees(read_parameters(DegreesParams, params, owner="gain estimator 'degrees'"))


def _family(params: Mapping[str, JsonScalar]) -> GainEstimator:
    return Family(read_parameters(FamilyParams, params, owner="gain estimator 'family'"))


GAIN_ESTIMATORS: Final[Mapping[str, GainEstimatorFactory]] = MappingProxyType(
    {exact.NAME: _exact, size.NAME: _size, degrees.NAME: _degrees, family.NAME: _family}
)


def build_gain_estimator(name: str, params: Mapping[str, JsonScalar]) -> GainEstimator:
    """The estimator that a scenario or a client names.

    Raises:
        UnknownNameError: no such estimator.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    if name not in GAIN_ESTIMATORS:
        raise UnknownNameError("gain estimator", name, GAIN_ESTIMATORS)
    return GAIN_ESTIMATORS[name](params)


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
    if estimator.name == exact.NAME:
        return np.full(graph.num_nodes, estimator.estimate(known, rng=rng))
    sketches = (NetworkSketch(float(count), known.degrees, graph) for count in counts)
    return np.array([estimator.estimate(sketch, rng=rng) for sketch in sketches])


__all__ = [
    "GAIN_ESTIMATORS",
    "Degrees",
    "DegreesParams",
    "Exact",
    "ExactParams",
    "Family",
    "FamilyParams",
    "GainEstimator",
    "GainEstimatorFactory",
    "NetworkSketch",
    "PushSum",
    "SelfWeight",
    "Size",
    "SizeParams",
    "SpreadOverRounds",
    "averaging_matrix",
    "build_gain_estimator",
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
