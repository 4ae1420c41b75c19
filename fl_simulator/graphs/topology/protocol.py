"""What a topology is: who is a neighbour of whom, among nodes that are numbered from 0.

A topology says nothing about what neighbours do with one another. Servers use one to choose whom they gossip with,
where they are too many for everybody to speak to everybody.

Some topologies look at what data the nodes have (D-Cliques); they are a protocol of their own (``graph``), because a
place that knows no data, such as the servers' overlay, has no use for them.

Rules that every topology keeps; the contract tests hold each registered one to them: edges are undirected, join two
different nodes, and connect all of them; the same count and the same state of the generator give the same edges.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from numpy.random import Generator  # loading it takes 7 MB

Edge: TypeAlias = tuple[int, int]
"""Two nodes, the lower number first."""


@runtime_checkable
class Topology(Protocol):
    """A rule for connecting nodes; instances are immutable."""

    @property
    def name(self) -> str:
        """The registry's name for this rule."""
        ...

    def edges(self, count: int, *, rng: "Generator") -> frozenset[Edge]:
        """The edges between ``count`` nodes.

        Args:
            count: Nodes, at least 1.
            rng: Every draw; a topology that draws nothing leaves it as it is.

        Raises:
            ParameterError: The rule cannot connect so few, or so many, nodes.
        """
        ...


def edge(a: int, b: int) -> Edge:
    """The edge between two nodes, in either order."""
    return (a, b) if a < b else (b, a)


def neighbours(node: int, edges: Iterable[Edge]) -> tuple[int, ...]:
    """The nodes that share an edge with ``node``, ascending."""
    return tuple(sorted(b if a == node else a for a, b in edges if node in (a, b)))
