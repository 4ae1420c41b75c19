"""Erdős-Rényi G(n, p): each pair of nodes has an edge with the same probability; drawn again until connected."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fl_core.parameters import parameter
from fl_simulator.graphs.topology.protocol import Edge
from fl_simulator.graphs.topology.random_graphs import connected

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "erdos-renyi"


@dataclass(frozen=True, slots=True)
class ErdosRenyiParams:
    """Parameters of the Erdős-Rényi graph."""

    p: float = parameter(0.2, above=0, at_most=1, doc="Probability of each edge.")


@dataclass(frozen=True, slots=True)
class ErdosRenyi:
    """The Erdős-Rényi random graph."""

    params: ErdosRenyiParams = field(default_factory=ErdosRenyiParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:
        """See ``Topology.edges``."""
        import networkx as nx  # noqa: PLC0415 -- see drawing

        threshold = math.log(count) / count
        return connected(
            lambda seed: nx.fast_gnp_random_graph(count, self.params.p, seed=seed),
            count,
            rng=rng,
            owner=f"topology {NAME!r}",
            fix=f"raise p = {self.params.p:g}, best well above ln(n) / n = {threshold:.2g}",
        )
