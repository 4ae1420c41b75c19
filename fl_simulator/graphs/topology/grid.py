"""Grid: nodes in rows and columns, each beside its neighbours in both; edges end at the border."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fl_core.parameters import parameter
from fl_simulator.graphs.topology.lattice import lattice_edges, sides
from fl_simulator.graphs.topology.protocol import Edge

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "grid"


@dataclass(frozen=True, slots=True)
class GridParams:
    """Parameters of the grid."""

    dimensions: int = parameter(
        2, at_least=1, at_most=6, doc="Dimensions; the sides are as equal as the number of nodes allows."
    )


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid; nodes are numbered row by row."""

    params: GridParams = field(default_factory=GridParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:  # noqa: ARG002 -- nothing is drawn
        """See ``Topology.edges``."""
        lengths = sides(count, self.params.dimensions, owner=f"topology {NAME!r}")
        return frozenset(lattice_edges(lengths, wrapped=False))
