"""Watts-Strogatz: a ring on which everybody knows the ``k`` nearest, some of whose edges lead elsewhere instead.

Not the small world of D-Cliques, which is ``small-world`` and draws nothing.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.topology.protocol import Edge
from fl_simulator.graphs.topology.random_graphs import connected

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "watts-strogatz"


@dataclass(frozen=True, slots=True)
class WattsStrogatzParams:
    """Parameters of the Watts-Strogatz graph."""

    k: int = parameter(4, at_least=2, doc="Neighbours on the ring, half of them on each side: an even number.")
    p: float = parameter(0.1, at_least=0, at_most=1, doc="Probability that an edge leads elsewhere.")

    def __post_init__(self) -> None:
        """Refuse half a neighbour on each side."""
        if self.k % 2:
            raise ParameterError(f"topology {NAME!r}: k must be even, not {self.k}")


@dataclass(frozen=True, slots=True)
class WattsStrogatz:
    """The Watts-Strogatz graph."""

    params: WattsStrogatzParams = field(default_factory=WattsStrogatzParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:
        """See ``Topology.edges``."""
        import networkx as nx  # noqa: PLC0415 -- see drawing

        k, p = self.params.k, self.params.p
        if count <= k:
            raise ParameterError(f"topology {NAME!r} needs more than k = {k} nodes, not {count}; lower k")
        return connected(
            lambda seed: nx.watts_strogatz_graph(count, k, p, seed=seed),
            count,
            rng=rng,
            owner=f"topology {NAME!r}",
            fix=f"raise k = {k} or lower p = {p:g}",
        )
