"""Configuration model with a heavy tail: degrees drawn from p(k) ~ k^-gamma, and their ends joined at random."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.topology.protocol import Edge
from fl_simulator.graphs.topology.random_graphs import connected

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

    from fl_simulator.graphs.topology.random_graphs import RandomGraph

NAME: Final = "configuration"


@dataclass(frozen=True, slots=True)
class ConfigurationParams:
    """Parameters of the configuration model."""

    gamma: float = parameter(2.5, above=0, doc="Exponent of the tail: p(k) ~ k^-gamma; the smaller, the heavier.")
    minimum: int = parameter(3, at_least=1, doc="The smallest degree; with 1, large graphs are hardly ever connected.")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration model, with degrees from ``minimum`` to one less than there are nodes.

    Edges from a node to itself and second edges between two nodes are erased, so hubs lose a few.
    """

    params: ConfigurationParams = field(default_factory=ConfigurationParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:
        """See ``Topology.edges``."""
        import networkx as nx  # noqa: PLC0415 -- see drawing

        gamma, minimum = self.params.gamma, self.params.minimum
        if count <= minimum:
            raise ParameterError(f"topology {NAME!r} needs more than minimum = {minimum} nodes, not {count}")
        degrees = np.arange(minimum, count)
        chances = degrees**-gamma / (degrees**-gamma).sum()

        def draw(seed: int) -> "RandomGraph | None":
            drawn = rng.choice(degrees, size=count, p=chances)
            if drawn.sum() % 2:
                return None  # an end would be left over
            graph: RandomGraph = nx.Graph(nx.configuration_model(drawn.tolist(), seed=seed))
            graph.remove_edges_from(nx.selfloop_edges(graph))
            return graph

        return connected(
            draw,
            count,
            rng=rng,
            owner=f"topology {NAME!r}",
            fix=f"raise minimum = {minimum} or lower gamma = {gamma:g}",
        )
