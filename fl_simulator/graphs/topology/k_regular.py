"""Random k-regular: everybody has exactly ``k`` neighbours, otherwise at random; drawn again until connected."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.topology.protocol import Edge
from fl_simulator.graphs.topology.random_graphs import connected

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "k-regular"


@dataclass(frozen=True, slots=True)
class KRegularParams:
    """Parameters of the random regular graph."""

    k: int = parameter(4, at_least=1, doc="Neighbours of each node; nodes times k must be even.")


@dataclass(frozen=True, slots=True)
class KRegular:
    """A random regular graph; with k = 10 the D-Cliques paper's random-10."""

    params: KRegularParams = field(default_factory=KRegularParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:
        """See ``Topology.edges``."""
        import networkx as nx  # noqa: PLC0415 -- see drawing

        k = self.params.k
        check_regular(count, k, owner=f"topology {NAME!r}")
        return connected(
            lambda seed: nx.random_regular_graph(k, count, seed=seed),
            count,
            rng=rng,
            owner=f"topology {NAME!r}",
            fix=f"raise k = {k}, best to 3 or more",
        )


def check_regular(count: int, k: int, *, owner: str) -> None:
    """Refuse a number of nodes that cannot have ``k`` neighbours each.

    Raises:
        ParameterError: too few nodes, or an odd number of edges' ends.
    """
    if count <= k:
        raise ParameterError(f"{owner} needs more than k = {k} nodes, not {count}; lower k")
    if count * k % 2:
        raise ParameterError(
            f"{owner}: {count} nodes with k = {k} edges each would leave one edge with one end; make either even"
        )
