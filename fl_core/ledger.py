"""The ledger: the rules by which transactions enter the DAG, and which of them a client is compared with.

Pure state. Models are not held: their norms come in with ``admit``. The way in for servers and
the simulator is ``fl_core.node.LedgerNode.admit``, which keeps the vectors beside it.

The same set of transactions gives the same tips and the same candidates, whatever the order of arrival.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from fl_core.candidates import CANDIDATE_RULES, CandidateRule
from fl_core.candidates.tips import oldest_fresh_depth
from fl_core.dag.admission import NORM_SLACK, check_header, check_norm
from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.dag.transaction import Header, Kind, Transaction
from fl_core.errors import GenesisError, ParameterError
from fl_core.retention import Retention
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


class History(Protocol):
    """Read-only look-ups among all that was ever admitted, however old: the rules ask for parents here."""

    def get(self, transaction: TxId) -> Node | None:
        """The transaction's place in the DAG; None if it is not part of the ledger."""
        ...


class Ledger:
    """One ledger's rules and its graph.

    Args:
        genesis: The agreed rules.
        transaction: The genesis transaction; its header must name the document's digest.
        genesis_norm: Euclidean norm of the genesis model.
        history: Where transactions are looked up; None: in the graph, which today holds all of them.

    Raises:
        GenesisError: Transaction and document do not belong together.
    """

    def __init__(
        self, genesis: Genesis, transaction: Transaction, *, genesis_norm: float, history: History | None = None
    ) -> None:
        header = transaction.header
        if header.kind is not Kind.GENESIS or header.attachment_digest != genesis.digest:
            raise GenesisError("the genesis transaction does not name this genesis document")
        if header.model_size != genesis.layout.nbytes:
            raise GenesisError("the genesis model's size is not that of the layout")
        self.genesis = genesis
        self.id = transaction.id
        self.graph = Graph(_node_of(transaction.id, header, (), norm=genesis_norm, author=header.author))
        self.history: History = self.graph if history is None else history
        self.candidate_rule: CandidateRule = CANDIDATE_RULES[genesis.candidates.name](self.graph, genesis)

    def __len__(self) -> int:
        return len(self.graph)

    def __contains__(self, transaction: TxId) -> bool:
        return self.history.get(transaction) is not None

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

    def review(
        self, transaction: TxId, header: Header, *, norm: float, slack: float = NORM_SLACK
    ) -> Admitted | AlreadyKnown | WaitingForParents:
        """What ``admit`` would answer, changing nothing.

        Args:
            transaction: Its id.
            header: Its header.
            norm: Of its model.
            slack: As for ``admit``.
        """
        if (known := self.history.get(transaction)) is not None:
            return AlreadyKnown(known)
        check_header(header, genesis=self.genesis, ledger=self.id)
        parents = self._parents(header)
        if isinstance(parents, WaitingForParents):
            return parents
        check_norm(
            norm,
            parent_norms=[parent.norm for parent in parents],
            genesis_norm=self.graph.genesis.norm,
            genesis=self.genesis,
            slack=slack,
        )
        return Admitted(self._place(transaction, header, parents, norm))

    def restore(self, transaction: Transaction, *, norm: float) -> Node | WaitingForParents:
        """Put back what this very server has admitted before, without asking every rule again.

        Args:
            transaction: The next one of its journal, parents before children.
            norm: Euclidean norm of its model.
        """
        parents = self._parents(transaction.header)
        if isinstance(parents, WaitingForParents):
            return parents
        node = self._place(transaction.id, transaction.header, parents, norm)
        self.add(node)
        return node

    def add(self, node: Node) -> tuple[TxId, ...]:
        """Make a reviewed transaction part of the ledger.

        Returns:
            What can never be a candidate again from now on.
        """
        self.graph.add(node)
        return self.candidate_rule.admit(node)

    def _parents(self, header: Header) -> list[Node] | WaitingForParents:
        found = {parent: self.history.get(parent) for parent in header.parents}
        missing = tuple(parent for parent, node in found.items() if node is None)
        return WaitingForParents(missing) if missing else [node for node in found.values() if node is not None]

    def _place(self, transaction: TxId, header: Header, parents: list[Node], norm: float) -> Node:
        newest = self.graph.newest_of(header.author)
        # The very string that is here already: a name takes a hundred bytes, and most recur.
        author = header.author if newest is None else newest.author
        return _node_of(transaction, header, parents, norm=norm, author=author)

    def candidates(self, asker: AuthorId | None = None) -> tuple[Candidate, ...]:
        """The updates that a client is compared with, ascending by id; see ``CandidateRule.candidates``.

        Args:
            asker: The author who asks; None for one who has not published yet.
        """
        return self.candidate_rule.candidates(asker)

    def is_eligible(self, transaction: TxId) -> bool:
        """Whether this is a candidate, or would be if there were room."""
        return transaction in self.candidate_rule.eligible

    def front(self) -> tuple[Candidate, ...]:
        """All that can be offered to anybody now, ascending by id; see ``CandidateRule.front``."""
        return self.candidate_rule.front()

    def retention(self, *, keep_generations: int) -> Retention:
        """Which transactions keep their model when older ones are pruned: as of now, and it holds for ever after.

        Args:
            keep_generations: How many of the deepest generations keep all their models, at least 1.

        Raises:
            ParameterError: ``keep_generations`` is below 1.
        """
        if keep_generations < 1:
            raise ParameterError(f"keep_generations must be at least 1, not {keep_generations}")
        graph, oldest = self.graph, oldest_fresh_depth(self.graph, self.genesis)
        fresh = (tip.id for tip in graph.tip_nodes() if tip.depth >= oldest)
        newest = (node.id for node in graph.newest_nodes())
        return Retention(
            oldest_depth=graph.deepest - keep_generations + 1, singled_out=frozenset((self.id, *fresh, *newest))
        )


def _node_of(
    transaction: TxId, header: Header, parents: list[Node] | tuple[()], *, norm: float, author: AuthorId
) -> Node:
    return Node(
        id=transaction,
        parents=tuple([parent.id for parent in parents]),
        author=author,
        sequence=header.sequence,
        num_examples=header.num_examples,
        norm=norm,
        depth=1 + max((parent.depth for parent in parents), default=-1),
        model_digest=header.model_digest,
    )
