"""Each node has the one before it and the one after it: ``count`` edges, and up to ``count / 2`` hops."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fl_simulator.graphs.topology.protocol import Edge, edge

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "ring"


@dataclass(frozen=True, slots=True)
class RingParams:
    """A ring has no parameters."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The nodes in the order of their numbers, the last beside the first; two nodes share one edge."""

    params: RingParams = field(default_factory=RingParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:  # noqa: ARG002 -- nothing is drawn
        """See ``Topology.edges``."""
        return frozenset(edge(node, (node + 1) % count) for node in range(count) if count > 1)
