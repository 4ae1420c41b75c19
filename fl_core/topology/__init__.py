"""Topologies: who is whose neighbour.

A new rule is one file with a frozen params dataclass and one line in ``TOPOLOGIES``; the contract tests in
``tests/contract/test_topologies.py`` then hold it to what every topology promises.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from fl_core.errors import UnknownNameError
from fl_core.parameters import read_parameters
from fl_core.topology import complete, ring, small_world
from fl_core.topology.complete import Complete, CompleteParams
from fl_core.topology.graph import Graph, build_graph
from fl_core.topology.mixing import MixingMatrix, decentralised_average, metropolis_hastings
from fl_core.topology.protocol import DataAwareTopology, Edge, Topology, neighbours
from fl_core.topology.ring import Ring, RingParams
from fl_core.topology.small_world import SmallWorld, SmallWorldParams
from fl_core.types import JsonScalar

TopologyFactory: TypeAlias = Callable[[Mapping[str, JsonScalar]], Topology]


def _complete(params: Mapping[str, JsonScalar]) -> Topology:
    return Complete(read_parameters(CompleteParams, params, owner="topology 'complete'"))


def _ring(params: Mapping[str, JsonScalar]) -> Topology:
    return Ring(read_parameters(RingParams, params, owner="topology 'ring'"))


def _small_world(params: Mapping[str, JsonScalar]) -> Topology:
    return SmallWorld(read_parameters(SmallWorldParams, params, owner="topology 'small-world'"))


TOPOLOGIES: Final[Mapping[str, TopologyFactory]] = MappingProxyType(
    {complete.NAME: _complete, ring.NAME: _ring, small_world.NAME: _small_world}
)


def build_topology(name: str, params: Mapping[str, JsonScalar]) -> Topology:
    """The topology that a setting or a scenario names.

    Raises:
        UnknownNameError: no such topology.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    if name not in TOPOLOGIES:
        raise UnknownNameError("topology", name, TOPOLOGIES)
    return TOPOLOGIES[name](params)


__all__ = [
    "TOPOLOGIES",
    "Complete",
    "CompleteParams",
    "DataAwareTopology",
    "Edge",
    "Graph",
    "MixingMatrix",
    "Ring",
    "RingParams",
    "SmallWorld",
    "SmallWorldParams",
    "Topology",
    "TopologyFactory",
    "build_graph",
    "build_topology",
    "decentralised_average",
    "metropolis_hastings",
    "neighbours",
]
