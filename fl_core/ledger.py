"""The ledger: admits transactions, keeps the DAG, and says which tips a client is compared with.

Pure state. Models are not held: their norms come in with ``admit``, their similarity vectors are the
caller's. Storing and fetching are the caller's work too; a server replays its journal into a ``Ledger``
when it starts, the simulator simply admits.

    ledger = Ledger(genesis, genesis_transaction, genesis_norm=12.5)
    ledger.admit(transaction, norm=12.7)         # Admitted | AlreadyKnown | WaitingForParents
    ledger.candidates(asker="key:…")              # the tips that a selection compares

The same set of transactions gives the same tips and the same candidates, whatever the order of arrival.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fl_core.dag.admission import NORM_SLACK, check_header, check_norm
from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.dag.transaction import Header, Kind, Transaction
from fl_core.errors import GenesisError
from fl_core.selection.protocol import Candidate
from fl_core.types import AuthorId, TxId


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
        self._candidates: dict[TxId, Candidate] = {}
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

    def add(self, node: Node) -> None:
        """Make a reviewed transaction part of the ledger, once it is stored."""
        self.graph.add(node)
        for parent in node.parents:
            self._candidates.pop(parent, None)

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
        return Admitted(_node(transaction, header, norm=norm, depth=self.graph.depth_below(header.parents)))

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
        policy = self.genesis.policy
        oldest = max(self.graph.deepest - policy.freshness_window, 1)
        offered = [
            tip
            for tip in self.graph.tips()
            if tip.depth >= oldest and tip.author != asker and self.graph.newest_of(tip.author) is tip
        ]
        if len(offered) > policy.max_candidates:
            offered.sort(key=lambda tip: (-tip.depth, tip.id))
            offered = sorted(offered[: policy.max_candidates], key=lambda tip: tip.id)
        return tuple(map(self._as_candidate, offered))

    def _as_candidate(self, tip: Node) -> Candidate:
        """The same object for the same tip: a thousand tips are offered to every client that asks."""
        candidate = self._candidates.get(tip.id)
        if candidate is None:
            candidate = self._candidates[tip.id] = Candidate(tip.id, tip.author, tip.sequence, tip.depth)
        return candidate

    def own_tip(self, author: AuthorId) -> TxId | None:
        """The author's newest transaction, while nobody approves it."""
        newest = self.graph.newest_of(author)
        return newest.id if newest is not None and self.graph.is_tip(newest.id) else None


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
