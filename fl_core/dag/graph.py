"""The DAG of admitted transactions: parents, depth, tips, ledger time. Headers and receipts only, no models.

A graph holds what can still be chosen and what sums up the rest: each author's newest, when its first was received,
the ids of the tips. All others are looked up among its ``Nodes``: in memory, or on a server in the journal. So what is
asked of it costs the same however old the ledger is. Ledger time is what the members' newest receipts say
(``fl_core.dag.receipt.ledger_time_ms``): it grows with the set of transactions, whatever their order of arrival, and
half of the members must be ahead for it to be ahead.
"""

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from fl_core.dag.author_list import AuthorList
from fl_core.dag.figures import Figures, decode_figures
from fl_core.dag.receipt import Receipt, ledger_time_ms
from fl_core.dag.transaction import Header
from fl_core.types import AuthorId, Digest, PublicKey, TxId


@dataclass(frozen=True, slots=True)
class Node:
    """What the graph keeps of a transaction.

    ``depth`` is the length of the longest path to genesis (genesis: 0): it follows from hashed bytes
    alone, so every server computes the same; it orders transactions where order is needed.

    Attributes:
        recorded: ``figures`` as the journal has them; as numbers they would take five times the memory.
        bounded_by: The updates by which the step is bounded (``fl_core.dag.steps``): its parents, or those by which its
            author's own newest was, where it names that alone.
        received_at_ms: By its receipt; 0 of one that has none yet.
        issuer: The server that issued it.
    """

    id: TxId
    parents: tuple[TxId, ...]
    author: AuthorId
    sequence: int
    num_examples: int
    recorded: bytes
    depth: int
    model_digest: Digest
    noise_std: float = 0.0
    bounded_by: tuple[TxId, ...] = ()
    received_at_ms: int = 0
    issuer: PublicKey | None = None

    @property
    def figures(self) -> Figures:
        """Of the model; its step is None where that could not be measured, and of genesis."""
        return decode_figures(self.recorded)

    def received(self, receipt: Receipt) -> "Node":
        """The same, once a server has issued it."""
        return replace(self, received_at_ms=receipt.received_at_ms, issuer=PublicKey(sys.intern(receipt.issuer)))


def node_of(
    transaction: TxId,
    header: Header,
    *,
    depth: int,
    bounded_by: tuple[TxId, ...],
    recorded: bytes,
    receipt: Receipt | None = None,
) -> Node:
    """What the graph keeps of a transaction, by what it says and what its ancestors say of it."""
    parents = header.parents
    return Node(
        id=transaction,
        parents=parents,
        author=AuthorId(sys.intern(header.author)),  # as most recur, and a name takes a hundred bytes
        sequence=header.sequence,
        num_examples=header.num_examples,
        recorded=recorded,
        depth=depth,
        model_digest=header.model_digest,
        noise_std=header.noise_std or 0.0,  # one object for all that declare none
        bounded_by=parents if bounded_by == parents else bounded_by,
        received_at_ms=0 if receipt is None else receipt.received_at_ms,
        issuer=None if receipt is None else PublicKey(sys.intern(receipt.issuer)),
    )


def bounded_by(parents: Sequence[Node], author: AuthorId | None) -> tuple[TxId, ...]:
    """Whose steps bound an update's: its parents', or where it is upon its author's own alone, what bounded that."""
    if len(parents) == 1 and parents[0].author == author and parents[0].parents:
        return parents[0].bounded_by
    return tuple([parent.id for parent in parents])


class Nodes(Protocol):
    """All nodes that were ever added to a graph, however old."""

    def add(self, node: Node) -> None:
        """Take in one that is new."""

    def get(self, transaction: TxId) -> Node | None:
        """One of them; None: it is not among them."""

    def __contains__(self, transaction: TxId, /) -> bool:
        """Whether it is one of them; who cannot find out says no, and is asked again."""
        ...

    def look_up(self, transactions: Iterable[TxId]) -> None:
        """Each of these will be asked for: whoever looks them up elsewhere does so at once."""

    def __iter__(self) -> Iterator[Node]:
        """All, in the order they came (parents before children)."""
        ...


class NodesInMemory:
    """All nodes in memory: for simulations, and for verification, which reads a ledger once."""

    def __init__(self) -> None:
        self._nodes: dict[TxId, Node] = {}

    def add(self, node: Node) -> None:
        self._nodes[node.id] = node

    def get(self, transaction: TxId) -> Node | None:
        return self._nodes.get(transaction)

    def __contains__(self, transaction: TxId, /) -> bool:
        return transaction in self._nodes

    def look_up(self, transactions: Iterable[TxId]) -> None:
        pass

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())


FirstReceived: TypeAlias = tuple[tuple[PublicKey | None, int], ...]
"""Members, and when each received the first of an author's updates; of most authors one, so no dictionary each."""


class Graph:
    """An ancestor-closed set of nodes, growing one node at a time.

    Args:
        genesis: The first.
        nodes: Where the others are looked up; none yet. None: in memory.
        members: Whose receipts make ledger time; empty: everybody's who has issued one.

    Attributes:
        author_list: Who may publish, and who goes on as whom.
    """

    def __init__(self, genesis: Node, *, nodes: Nodes | None = None, members: Collection[PublicKey] = ()) -> None:
        self.author_list = AuthorList()
        self.nodes: Nodes = NodesInMemory() if nodes is None else nodes
        self._count = 1
        self._tips = {genesis.id}
        self._newest: dict[AuthorId, Node] = {}
        self._first_received: dict[AuthorId, FirstReceived] = {}
        self._newest_receipts: dict[PublicKey, int] = {}
        self.members = members
        self._now_ms: int | None = 0
        """None: to be found anew, when it is asked for."""
        self.genesis = genesis

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Node]:
        """All nodes, in the order they came (parents before children)."""
        yield self.genesis
        yield from self.nodes

    def __contains__(self, transaction: TxId) -> bool:
        return transaction == self.genesis.id or transaction in self.nodes

    def get(self, transaction: TxId) -> Node | None:
        return self.genesis if transaction == self.genesis.id else self.nodes.get(transaction)

    def find(self, transaction: TxId, header: Header) -> Node | None:
        """As ``get``, and without a look among the nodes where the header alone says that it is new."""
        is_new = header.parents and self._is_beyond(header.author, header.sequence, transaction)
        return None if is_new else self.get(transaction)

    def add(self, node: Node) -> None:
        """Append a node whose parents are here and which is not here itself."""
        self.nodes.add(node)
        self.include(node)

    def include(self, node: Node) -> None:
        """Append one that is among the nodes already: this is a part of another graph, and shares its nodes."""
        self._count += 1
        self._tips.difference_update(node.parents)
        self._tips.add(node.id)
        if node.issuer is not None and node.received_at_ms > self._newest_receipts.get(node.issuer, -1):
            self._newest_receipts[node.issuer] = node.received_at_ms
            self._now_ms = None
        received = dict(self._first_received.get(node.author, ()))
        if node.received_at_ms < received.get(node.issuer, math.inf):
            self._first_received[node.author] = tuple({**received, node.issuer: node.received_at_ms}.items())
        if self._is_beyond(node.author, node.sequence, node.id):
            self._newest[node.author] = node

    def _is_beyond(self, author: AuthorId, sequence: int, transaction: TxId) -> bool:
        """Whether an update comes after all that are here of its author.

        Equal sequence numbers (an author on two servers at once) are settled by id, the same everywhere.
        """
        newest = self._newest.get(author)
        return newest is None or (sequence, transaction) > (newest.sequence, newest.id)

    def summed_up(self) -> dict[str, Any]:
        """All that it holds besides genesis, as JSON has it: ``resume`` goes on from there."""
        first = {
            author: {issuer or "": at_ms for issuer, at_ms in received}
            for author, received in self._first_received.items()
        }
        newest = [node.id for node in self._newest.values()]
        return {
            "count": self._count,
            "tips": self.tips(),
            "newest": newest,
            "first": first,
            "times": self._newest_receipts,
        }

    def resume(self, held: Mapping[str, Any], newest: Iterable[Node]) -> None:
        """Hold what ``summed_up`` said of this graph once, before anything is added.

        Args:
            held: What it said.
            newest: The nodes that it names so.
        """
        self._count, self._tips = held["count"], set(held["tips"])
        self._newest = {node.author: node for node in newest}
        self._first_received = {
            author: tuple([(issuer or None, at_ms) for issuer, at_ms in received.items()])
            for author, received in held["first"].items()
        }
        self._newest_receipts, self._now_ms = dict(held["times"]), None

    @property
    def now_ms(self) -> int:
        """Ledger time, milliseconds since 1970 UTC; 0 until half of the members have received an update."""
        if self._now_ms is None:
            # Who is listed and has issued none counts as long ago, so that the first receipts alone cannot run ahead.
            newest = self._newest_receipts
            self._now_ms = ledger_time_ms(newest.get(key, 0) for key in self.members or newest)
        return self._now_ms

    def go_by_members(self, members: Collection[PublicKey]) -> None:
        """Make ledger time of these members' receipts from now on; it may be another one."""
        self.members = members
        self._now_ms = None

    def tips(self) -> tuple[TxId, ...]:
        """What nobody approves, ascending."""
        return tuple(sorted(self._tips))

    def tip_set(self) -> frozenset[TxId]:
        """The same in no order, which costs a twentieth of sorting them."""
        return frozenset(self._tips)

    def tip_count(self) -> int:
        return len(self._tips)

    def is_tip(self, transaction: TxId) -> bool:
        return transaction in self._tips

    def newest_of(self, author: AuthorId) -> Node | None:
        """The author's node with the highest sequence number; before its first, that of whom it goes on as."""
        while author not in self._newest and author in self.author_list.formers:
            author = self.author_list.formers[author]
        return self._newest.get(author)

    def has_update_of(self, author: AuthorId) -> bool:
        """Whether one of its own is here, not only of whom it goes on as."""
        return author in self._newest

    def first_received(self, author: AuthorId) -> FirstReceived:
        """When each member received the first of an author's updates that are here, by its own receipts.

        What it has of whom it goes on as counts. None stands for all who are members no more.
        """
        found: dict[PublicKey | None, int] = {}
        name: AuthorId | None = author
        while name is not None:
            for issuer, at_ms in self._first_received.get(name, ()):
                member = issuer if not self.members or issuer in self.members else None
                found[member] = min(at_ms, found.get(member, at_ms))
            name = self.author_list.formers.get(name)
        own, pairs = self._first_received.get(author), tuple(found.items())
        return own if own == pairs else pairs  # of most authors it is the same, which may be kept once

    def newest_nodes(self) -> Iterable[Node]:
        """Each author's newest node, in no order."""
        return self._newest.values()

    def authors(self) -> tuple[AuthorId, ...]:
        """Everyone who has published, in ascending order; genesis's creator is not among them."""
        return tuple(sorted(self._newest))
