"""The ledger: admits transactions, keeps the DAG, and says which tips a client is compared with.

Pure state. Models are not held: their norms come in with ``admit``, their similarity vectors are the
caller's. Storing and fetching are the caller's work too; a server replays its journal into a ``Ledger``
when it starts, the simulator simply admits.

    ledger = Ledger(genesis, genesis_transaction, genesis_norm=12.5)
    ledger.admit(transaction, norm=12.7)         # Admitted | AlreadyKnown | WaitingForParents
    ledger.candidates(asker="key:…")              # the tips that a selection compares

The same set of transactions gives the same tips and the same candidates, whatever the order of arrival.
Who can be a candidate is kept as transactions come: asking costs as much as what is answered, however many tips
have piled up below (docs/adr/0015).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from fl_core.dag.admission import NORM_SLACK, check_header, check_norm
from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.dag.transaction import Header, Kind, Transaction
from fl_core.errors import GenesisError, ParameterError
from fl_core.retention import Retention
from fl_core.selection.protocol import Candidate
from fl_core.types import AuthorId, TxId

_transaction_of: Final = attrgetter("transaction")


@dataclass(frozen=True, slots=True)
class Admitted:
    """The transaction is now part of the ledger."""

    node: Node


@dataclass(frozen=True, slots=True)
class AlreadyKnown:
    """The ledger has held this transaction before."""

    node: Node


@dataclass(frozen=True, slots=True)
class WaitingForParents:
    """Parents have not come yet. Two gossip rounds can cross, so this is a wait, not a refusal."""

    missing: tuple[TxId, ...]


class Ledger:
    """One ledger's rules and its graph.

    Args:
        genesis: The agreed rules.
        transaction: The genesis transaction; its header must name the document's digest.
        genesis_norm: Euclidean norm of the genesis model.

    Raises:
        GenesisError: Transaction and document do not belong together.
    """

    def __init__(self, genesis: Genesis, transaction: Transaction, *, genesis_norm: float) -> None:
        header = transaction.header
        if header.kind is not Kind.GENESIS or header.attachment_digest != genesis.digest:
            raise GenesisError("the genesis transaction does not name this genesis document")
        if header.model_size != genesis.layout.nbytes:
            raise GenesisError("the genesis model's size is not that of the layout")
        self.genesis = genesis
        self.id = transaction.id
        self._eligible: dict[TxId, Candidate] = {}
        self._ranking: list[tuple[int, TxId]] = []  # (-depth, id) of the eligible: the deepest first, then by id
        self._front: tuple[Candidate, ...] | None = ()
        self.graph = Graph(_node(transaction.id, header, norm=genesis_norm, depth=0))

    def __len__(self) -> int:
        return len(self.graph)

    def __contains__(self, transaction: TxId) -> bool:
        return transaction in self.graph

    def __iter__(self) -> Iterator[Node]:
        return iter(self.graph)

    def admit(
        self, transaction: Transaction, *, norm: float, slack: float = NORM_SLACK
    ) -> Admitted | AlreadyKnown | WaitingForParents:
        """Add a transaction whose signatures and payload the caller has checked (``fl_core.dag.admission``).

        Args:
            transaction: The transaction.
            norm: Euclidean norm of its model, from ``check_payload``'s vector.
            slack: Relative slack of the norm rule: 0 at publish, ``NORM_SLACK`` for what a peer or the
                journal has admitted before.

        Raises:
            TransactionError, ModelNormError: A rule is broken; nothing has changed.
        """
        answer = self.review(transaction.id, transaction.header, norm=norm, slack=slack)
        if isinstance(answer, Admitted):
            self.add(answer.node)
        return answer

    def add(self, node: Node) -> tuple[TxId, ...]:
        """Make a reviewed transaction part of the ledger, once it is stored.

        Returns:
            What cannot be a candidate any more, for good: approved, superseded by its author's newer one, or fallen
            out of the freshness window.
        """
        before, deepest = self.graph.newest_of(node.author), self.graph.deepest
        self.graph.add(node)
        gone = [parent for parent in node.parents if self._retire(parent)]
        if self.graph.newest_of(node.author) is node:
            if before is not None and self._retire(before.id):
                gone.append(before.id)
            if node.depth >= self._oldest:
                self._eligible[node.id] = Candidate(node.id, node.author, node.sequence, node.depth)
                insort(self._ranking, (-node.depth, node.id))
        if self.graph.deepest != deepest:
            gone += self._retire_stale()
        self._front = None
        return tuple(gone)

    def _retire(self, transaction: TxId) -> bool:
        candidate = self._eligible.pop(transaction, None)
        if candidate is None:
            return False
        del self._ranking[bisect_left(self._ranking, (-candidate.depth, transaction))]
        return True

    def _retire_stale(self) -> list[TxId]:
        first_stale = bisect_left(self._ranking, (1 - self._oldest,))
        stale = [transaction for _, transaction in self._ranking[first_stale:]]
        del self._ranking[first_stale:]
        for transaction in stale:
            del self._eligible[transaction]
        return stale

    @property
    def _oldest(self) -> int:
        """The least depth inside the freshness window; genesis is nobody's trained model and never counts."""
        return max(self.graph.deepest - self.genesis.policy.freshness_window, 1)

    def review(
        self, transaction: TxId, header: Header, *, norm: float, slack: float = NORM_SLACK
    ) -> Admitted | AlreadyKnown | WaitingForParents:
        """What ``admit`` would answer, changing nothing: a server stores durably between the two."""
        if (known := self.graph.get(transaction)) is not None:
            return AlreadyKnown(known)
        check_header(header, genesis=self.genesis, ledger=self.id)
        if missing := self.graph.missing(header.parents):
            return WaitingForParents(missing)
        check_norm(
            norm,
            parent_norms=[self._norm_of(parent) for parent in header.parents],
            genesis_norm=self.graph.genesis.norm,
            genesis=self.genesis,
            slack=slack,
        )
        return Admitted(self._node_of(transaction, header, norm))

    def review_headers(self, transaction: TxId, header: Header) -> Admitted | AlreadyKnown | WaitingForParents:
        """As ``review``, without the norm rule: for reading a ledger whose models were judged before."""
        if (known := self.graph.get(transaction)) is not None:
            return AlreadyKnown(known)
        check_header(header, genesis=self.genesis, ledger=self.id)
        if missing := self.graph.missing(header.parents):
            return WaitingForParents(missing)
        return Admitted(self._node_of(transaction, header, self.genesis.policy.max_norm))

    def restore(self, transaction: Transaction, *, norm: float) -> Node | WaitingForParents:
        """Put back what this very server has admitted before, without asking every rule again.

        Args:
            transaction: The next one of its journal, parents before children.
            norm: Euclidean norm of its model.
        """
        header = transaction.header
        if missing := self.graph.missing(header.parents):
            return WaitingForParents(missing)
        node = self._node_of(transaction.id, header, norm)
        self.add(node)
        return node

    def _node_of(self, transaction: TxId, header: Header, norm: float) -> Node:
        author, parents = self.graph.known_names(header.author, header.parents)
        return Node(
            id=transaction,
            parents=parents,
            author=author,
            sequence=header.sequence,
            num_examples=header.num_examples,
            norm=norm,
            depth=self.graph.depth_below(parents),
        )

    def _norm_of(self, transaction: TxId) -> float:
        node = self.graph.get(transaction)
        assert node is not None, "the caller has looked for missing parents"
        return node.norm

    def candidates(self, asker: AuthorId | None = None) -> tuple[Candidate, ...]:
        """The foreign tips that a client is compared with, ascending by id.

        A tip counts while it is its author's newest transaction and lies within the freshness window.
        Genesis is nobody's trained model and never counts. Beyond ``policy.max_candidates`` the deepest stay.

        Args:
            asker: The author who asks; its own tip is not compared with itself.
        """
        front = self.front()
        own = None if asker is None else self.graph.newest_of(asker)
        offered = front if own is None or own.id not in self._eligible else _without(front, own.id)
        if len(offered) > self.genesis.policy.max_candidates:
            last = self._ranking[len(front) - 1][1]
            offered = tuple(each for each in offered if each.transaction != last)
        return offered

    def is_eligible(self, transaction: TxId) -> bool:
        """Whether this is a fresh tip and its author's newest: a candidate, or one whose turn may yet come."""
        return transaction in self._eligible

    def front(self) -> tuple[Candidate, ...]:
        """All that can be offered to anybody now, ascending by id: one more than ``policy.max_candidates`` at most.

        One more, because who asks may be the author of one of them.
        """
        if self._front is None:
            ranked = self._ranking[: self.genesis.policy.max_candidates + 1]
            self._front = tuple(self._eligible[each] for each in sorted(transaction for _, transaction in ranked))
        return self._front

    def retention(self, *, keep_generations: int) -> Retention:
        """Which transactions keep their model when older ones are pruned; a moment's view, true for ever after.

        Args:
            keep_generations: How many of the deepest generations keep all their models, at least 1.

        Raises:
            ParameterError: ``keep_generations`` is below 1.
        """
        if keep_generations < 1:
            raise ParameterError(f"keep_generations must be at least 1, not {keep_generations}")
        graph, oldest = self.graph, self._oldest
        fresh = (tip.id for tip in graph.tip_nodes() if tip.depth >= oldest)
        newest = (node.id for node in graph.newest_nodes())
        return Retention(
            oldest_depth=graph.deepest - keep_generations + 1, singled_out=frozenset((self.id, *fresh, *newest))
        )

    def own_tip(self, author: AuthorId) -> TxId | None:
        """The author's newest transaction, while nobody approves it."""
        newest = self.graph.newest_of(author)
        return newest.id if newest is not None and self.graph.is_tip(newest.id) else None


def _without(front: tuple[Candidate, ...], transaction: TxId) -> tuple[Candidate, ...]:
    """Candidates, ascending by id, less this one if it is among them."""
    place = bisect_left(front, transaction, key=_transaction_of)
    is_here = place < len(front) and front[place].transaction == transaction
    return front[:place] + front[place + 1 :] if is_here else front


def _node(transaction: TxId, header: Header, *, norm: float, depth: int) -> Node:
    return Node(
        id=transaction,
        parents=header.parents,
        author=header.author,
        sequence=header.sequence,
        num_examples=header.num_examples,
        norm=norm,
        depth=depth,
    )
