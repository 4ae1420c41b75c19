"""Barabási-Albert: nodes come one after another and choose neighbours by how many these have; a few become hubs."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.topology.protocol import Edge
from fl_simulator.graphs.topology.random_graphs import connected

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "barabasi-albert"


@dataclass(frozen=True, slots=True)
class BarabasiAlbertParams:
    """Parameters of the Barabási-Albert graph."""

    m: int = parameter(2, at_least=1, doc="Edges that each new node brings; half of the mean degree, or a little less.")


@dataclass(frozen=True, slots=True)
class BarabasiAlbert:
    """The Barabási-Albert graph by preferential attachment, grown from a star of ``m + 1`` nodes; always connected."""

    params: BarabasiAlbertParams = field(default_factory=BarabasiAlbertParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:
        """See ``Topology.edges``."""
        import networkx as nx  # noqa: PLC0415 -- see drawing

        m = self.params.m
        if count <= m:
            raise ParameterError(f"topology {NAME!r} needs more than m = {m} nodes, not {count}; lower m")
        return connected(
            lambda seed: nx.barabasi_albert_graph(count, m, seed=seed),
            count,
            rng=rng,
            owner=f"topology {NAME!r}",
            fix="raise m",
        )
