"""Topologies: who is whose neighbour.

A new rule is one file with a frozen params dataclass and one line in ``TOPOLOGIES``; the contract tests in
``tests/contract/test_topologies.py`` then hold it to what every topology promises. ``build_graph`` makes the graph of
one, and ``metropolis_hastings`` and ``decentralised_average`` say with what weights its nodes average.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from fl_core.errors import ParameterError, UnknownNameError
from fl_core.parameters import read_parameters
from fl_core.types import JsonScalar
from fl_simulator.graphs.topology import (
    barabasi_albert,
    complete,
    configuration,
    d_cliques,
    erdos_renyi,
    grid,
    k_regular,
    random_diverse,
    ring,
    small_world,
    stochastic_block,
    torus,
    watts_strogatz,
)
from fl_simulator.graphs.topology.barabasi_albert import BarabasiAlbert, BarabasiAlbertParams
from fl_simulator.graphs.topology.complete import Complete, CompleteParams
from fl_simulator.graphs.topology.configuration import Configuration, ConfigurationParams
from fl_simulator.graphs.topology.d_cliques import DCliques, DCliquesParams
from fl_simulator.graphs.topology.erdos_renyi import ErdosRenyi, ErdosRenyiParams
from fl_simulator.graphs.topology.graph import Graph, build_graph
from fl_simulator.graphs.topology.grid import Grid, GridParams
from fl_simulator.graphs.topology.k_regular import KRegular, KRegularParams
from fl_simulator.graphs.topology.mixing import MixingMatrix, decentralised_average, metropolis_hastings
from fl_simulator.graphs.topology.protocol import DataAwareTopology, Edge, Topology, neighbours
from fl_simulator.graphs.topology.random_diverse import RandomDiverse, RandomDiverseParams
from fl_simulator.graphs.topology.ring import Ring, RingParams
from fl_simulator.graphs.topology.small_world import SmallWorld, SmallWorldParams
from fl_simulator.graphs.topology.stochastic_block import StochasticBlock, StochasticBlockParams
from fl_simulator.graphs.topology.torus import Torus, TorusParams
from fl_simulator.graphs.topology.watts_strogatz import WattsStrogatz, WattsStrogatzParams

AnyTopology: TypeAlias = Topology | DataAwareTopology
TopologyFactory: TypeAlias = Callable[[Mapping[str, JsonScalar]], AnyTopology]
RuleT = TypeVar("RuleT", bound=AnyTopology)


def _reading(name: str, params: type[Any], rule: Callable[[Any], RuleT]) -> Callable[[Mapping[str, JsonScalar]], RuleT]:
    return lambda given: rule(read_parameters(params, given, owner=f"topology {name!r}"))


TOPOLOGIES: Final[Mapping[str, TopologyFactory]] = MappingProxyType(
    {
        barabasi_albert.NAME: _reading(barabasi_albert.NAME, BarabasiAlbertParams, BarabasiAlbert),
        complete.NAME: _reading(complete.NAME, CompleteParams, Complete),
        configuration.NAME: _reading(configuration.NAME, ConfigurationParams, Configuration),
        d_cliques.NAME: _reading(d_cliques.NAME, DCliquesParams, DCliques),
        erdos_renyi.NAME: _reading(erdos_renyi.NAME, ErdosRenyiParams, ErdosRenyi),
        grid.NAME: _reading(grid.NAME, GridParams, Grid),
        k_regular.NAME: _reading(k_regular.NAME, KRegularParams, KRegular),
        random_diverse.NAME: _reading(random_diverse.NAME, RandomDiverseParams, RandomDiverse),
        ring.NAME: _reading(ring.NAME, RingParams, Ring),
        small_world.NAME: _reading(small_world.NAME, SmallWorldParams, SmallWorld),
        stochastic_block.NAME: _reading(stochastic_block.NAME, StochasticBlockParams, StochasticBlock),
        torus.NAME: _reading(torus.NAME, TorusParams, Torus),
        watts_strogatz.NAME: _reading(watts_strogatz.NAME, WattsStrogatzParams, WattsStrogatz),
    }
)


def build_topology(name: str, params: Mapping[str, JsonScalar]) -> AnyTopology:
    """The topology that a setting or a scenario names; ``build_graph`` takes either kind.

    Raises:
        UnknownNameError: no such topology.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    if name not in TOPOLOGIES:
        raise UnknownNameError("topology", name, TOPOLOGIES)
    return TOPOLOGIES[name](params)


def build_overlay(name: str, params: Mapping[str, JsonScalar]) -> Topology:
    """The topology of this name, for nodes that have no data to be arranged by, such as servers.

    Raises:
        UnknownNameError: no such topology.
        ParameterError: as ``build_topology``; or the topology arranges nodes by their data.
    """
    topology = build_topology(name, params)
    if not isinstance(topology, Topology):
        raise ParameterError(
            f"topology {name!r} arranges nodes by their data, and here they have none; take one that needs none, "
            f"such as 'small-world'"
        )
    return topology


__all__ = [
    "TOPOLOGIES",
    "AnyTopology",
    "BarabasiAlbert",
    "BarabasiAlbertParams",
    "Complete",
    "CompleteParams",
    "Configuration",
    "ConfigurationParams",
    "DCliques",
    "DCliquesParams",
    "DataAwareTopology",
    "Edge",
    "ErdosRenyi",
    "ErdosRenyiParams",
    "Graph",
    "Grid",
    "GridParams",
    "KRegular",
    "KRegularParams",
    "MixingMatrix",
    "RandomDiverse",
    "RandomDiverseParams",
    "Ring",
    "RingParams",
    "SmallWorld",
    "SmallWorldParams",
    "StochasticBlock",
    "StochasticBlockParams",
    "Topology",
    "TopologyFactory",
    "Torus",
    "TorusParams",
    "WattsStrogatz",
    "WattsStrogatzParams",
    "build_graph",
    "build_overlay",
    "build_topology",
    "decentralised_average",
    "metropolis_hastings",
    "neighbours",
]
