"""Torus: a grid whose borders meet, so that every node has as many neighbours as any other."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fl_core.parameters import parameter
from fl_simulator.graphs.topology.lattice import lattice_edges, sides
from fl_simulator.graphs.topology.protocol import Edge

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "torus"


@dataclass(frozen=True, slots=True)
class TorusParams:
    """Parameters of the torus."""

    dimensions: int = parameter(
        2, at_least=1, at_most=6, doc="Dimensions; the sides are as equal as the number of nodes allows."
    )


@dataclass(frozen=True, slots=True)
class Torus:
    """The torus; nodes are numbered row by row."""

    params: TorusParams = field(default_factory=TorusParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:  # noqa: ARG002 -- nothing is drawn
        """See ``Topology.edges``."""
        lengths = sides(count, self.params.dimensions, owner=f"topology {NAME!r}")
        return frozenset(lattice_edges(lengths, wrapped=True))
