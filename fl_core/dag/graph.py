"""The DAG of admitted transactions: parents, depth, tips. Headers only, no models.

Tips are kept as transactions come, so asking for them costs nothing however old the ledger is.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fl_core.types import AuthorId, Digest, TxId


@dataclass(frozen=True, slots=True)
class Node:
    """What the graph keeps of a transaction.

    ``depth`` is the length of the longest path to genesis (genesis: 0): it follows from hashed bytes
    alone, so every server computes the same; it orders transactions where order is needed.

    Attributes:
        norm: Euclidean norm of the model.
        step: That of the model minus the average of its parents; None where that could not be measured, and of genesis.
        weights: The largest share that each parent can have of a value of that average, in the parents' order.
    """

    id: TxId
    parents: tuple[TxId, ...]
    author: AuthorId
    sequence: int
    num_examples: int
    norm: float
    depth: int
    model_digest: Digest
    noise_std: float = 0.0
    step: float | None = None
    weights: tuple[float, ...] = ()


class Graph:
    """An ancestor-closed set of nodes, growing one node at a time."""

    def __init__(self, genesis: Node) -> None:
        self._nodes: dict[TxId, Node] = {genesis.id: genesis}
        self._tips: dict[TxId, Node] = {genesis.id: genesis}
        self._newest: dict[AuthorId, Node] = {}
        self._deepest = 0
        self.genesis = genesis

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, transaction: TxId) -> bool:
        return transaction in self._nodes

    def __iter__(self) -> Iterator[Node]:
        """All nodes, in the order they came (parents before children)."""
        return iter(self._nodes.values())

    def __reversed__(self) -> Iterator[Node]:
        """All nodes, the newest first."""
        return reversed(self._nodes.values())

    def get(self, transaction: TxId) -> Node | None:
        return self._nodes.get(transaction)

    def add(self, node: Node) -> None:
        """Append a node whose parents are here and which is not here itself."""
        assert node.id not in self._nodes, "a node is added once"
        for parent in node.parents:
            self._tips.pop(parent, None)
        self._nodes[node.id] = node
        self._tips[node.id] = node
        self._deepest = max(self._deepest, node.depth)
        newest = self._newest.get(node.author)
        # Equal sequence numbers (an author on two servers at once) are settled by id, the same everywhere.
        if newest is None or (node.sequence, node.id) > (newest.sequence, newest.id):
            self._newest[node.author] = node

    @property
    def deepest(self) -> int:
        return self._deepest

    def tips(self) -> tuple[Node, ...]:
        """Nodes that nobody approves, in ascending id order."""
        return tuple(self._tips[tip] for tip in sorted(self._tips))

    def tip_nodes(self) -> Iterable[Node]:
        """The same in no order, and without the cost of one."""
        return self._tips.values()

    def tip_count(self) -> int:
        return len(self._tips)

    def is_tip(self, transaction: TxId) -> bool:
        return transaction in self._tips

    def newest_of(self, author: AuthorId) -> Node | None:
        """The author's node with the highest sequence number."""
        return self._newest.get(author)

    def newest_nodes(self) -> Iterable[Node]:
        """Each author's newest node, in no order."""
        return self._newest.values()

    def authors(self) -> tuple[AuthorId, ...]:
        """Everyone who has published, in ascending order; genesis's creator is not among them."""
        return tuple(sorted(self._newest))
