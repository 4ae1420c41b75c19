"""Everybody is everybody's neighbour: one hop, and ``count (count - 1) / 2`` edges."""

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Final

from fl_core.errors import ParameterError
from fl_simulator.graphs.topology.protocol import Edge

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

NAME: Final = "complete"
MOST_NODES: Final = 5000
"""Their 12.5 million edges are 3 GB as pairs; whoever means more means a sparser graph."""


@dataclass(frozen=True, slots=True)
class CompleteParams:
    """A complete graph has no parameters."""


@dataclass(frozen=True, slots=True)
class Complete:
    """The complete graph."""

    params: CompleteParams = field(default_factory=CompleteParams)
    name: str = NAME

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:  # noqa: ARG002 -- nothing is drawn
        """See ``Topology.edges``."""
        if count > MOST_NODES:
            raise ParameterError(f"topology {NAME!r} is for up to {MOST_NODES:,} nodes, not {count:,}; take another")
        return frozenset(combinations(range(count), 2))
