"""Topologies: who is whose neighbour.

A new rule is one file and one line in ``TOPOLOGIES``; the contract tests in ``tests/contract/test_topologies.py`` then
hold it to what every topology promises. ``build_graph`` makes the graph of one, and ``metropolis_hastings`` and
``decentralised_average`` say with what weights its nodes average.
"""

from typing import Any, Final

from fl_core.registry import PartRegistry
from fl_simulator.graphs.topology.graph import DataAwareTopology, Graph, build_graph
from fl_simulator.graphs.topology.mixing import MixingMatrix, decentralised_average, metropolis_hastings
from fl_simulator.graphs.topology.protocol import Edge, Topology, neighbours

TOPOLOGIES: Final = PartRegistry[Any](  # of Topology | DataAwareTopology; ``build_graph`` takes either kind
    "topology",
    {
        "barabasi-albert": "fl_simulator.graphs.topology.barabasi_albert:BarabasiAlbert",
        "complete": "fl_simulator.graphs.topology.complete:Complete",
        "configuration": "fl_simulator.graphs.topology.configuration:Configuration",
        "d-cliques": "fl_simulator.graphs.topology.d_cliques:DCliques",
        "erdos-renyi": "fl_simulator.graphs.topology.erdos_renyi:ErdosRenyi",
        "grid": "fl_simulator.graphs.topology.grid:Grid",
        "k-regular": "fl_simulator.graphs.topology.k_regular:KRegular",
        "random-diverse": "fl_simulator.graphs.topology.random_diverse:RandomDiverse",
        "ring": "fl_simulator.graphs.topology.ring:Ring",
        "small-world": "fl_simulator.graphs.topology.small_world:SmallWorld",
        "stochastic-block": "fl_simulator.graphs.topology.stochastic_block:StochasticBlock",
        "torus": "fl_simulator.graphs.topology.torus:Torus",
        "watts-strogatz": "fl_simulator.graphs.topology.watts_strogatz:WattsStrogatz",
    },
)

__all__ = [
    "TOPOLOGIES",
    "DataAwareTopology",
    "Edge",
    "Graph",
    "MixingMatrix",
    "Topology",
    "build_graph",
    "decentralised_average",
    "metropolis_hastings",
    "neighbours",
]
