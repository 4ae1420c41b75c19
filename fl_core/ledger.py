"""The ledger: the rules by which transactions enter the DAG.

Headers and norms only. A replica, which also offers updates and compares them, is ``fl_core.node.LedgerNode``; its
``admit`` is the way in for servers, the simulator and tools. Verification asks a ledger alone: that works for a ledger
whose candidate rule or aggregator this version does not know.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

from fl_core.dag.admission import NORM_SLACK, check_header, check_norm, check_sequence
from fl_core.dag.figures import Figures
from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node, Nodes, bounded_by, node_of
from fl_core.dag.receipt import Receipt
from fl_core.dag.steps import NO_STEP_BOUND, StepBound, check_step, step_bound
from fl_core.dag.transaction import Header, Kind, Transaction
from fl_core.errors import GenesisError
from fl_core.types import AuthorId, TxId

_STEP_BOUNDS: Final = 256
"""Sets of parents whose bound is remembered: it is asked for five times between a selection and its publication."""


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
        nodes: Where all but the newest are looked up; None: in memory.

    Raises:
        GenesisError: Transaction and document do not belong together.
    """

    def __init__(
        self, genesis: Genesis, transaction: Transaction, *, genesis_norm: float, nodes: Nodes | None = None
    ) -> None:
        header = transaction.header
        if header.kind is not Kind.GENESIS or header.attachment_digest != genesis.digest:
            raise GenesisError("the genesis transaction does not name this genesis document")
        if header.model_size != genesis.layout.nbytes:
            raise GenesisError("the genesis model's size is not that of the layout")
        self.genesis = genesis
        self.id: TxId = transaction.id
        first = node_of(transaction.id, header, depth=0, bounded_by=(), recorded=Figures(genesis_norm).pack())
        members = frozenset(member.key for member in genesis.members)
        self.graph: Graph = Graph(first, nodes=nodes, members=members)
        self._beside: Mapping[TxId, Node] = {}
        self._step_bounds: LRUCache[tuple[TxId, ...], StepBound] = LRUCache(_STEP_BOUNDS)

    def __len__(self) -> int:
        return len(self.graph)

    def __contains__(self, transaction: TxId) -> bool:
        return transaction in self.graph

    def __iter__(self) -> Iterator[Node]:
        return iter(self.graph)

    def beside(self, nodes: Mapping[TxId, Node]) -> "Ledger":
        """This ledger as if these were part of it already: to be asked, not to be added to."""
        asked = copy(self)
        asked._beside = nodes  # noqa: SLF001 -- this class's own
        return asked

    def _get(self, transaction: TxId) -> Node | None:
        return self._beside.get(transaction) or self.graph.get(transaction)

    def review(
        self,
        transaction: TxId,
        header: Header,
        *,
        figures: Figures,
        receipt: Receipt | None = None,
        slack: float = NORM_SLACK,
    ) -> Admitted | AlreadyKnown | WaitingForParents:
        """Ask every rule of a transaction whose signatures and payload were checked; changes nothing.

        Args:
            transaction: Its id.
            header: What it says.
            figures: Of its model.
            receipt: Its server's, where it has one.
            slack: Relative slack of the norms: 0 at publish, where a step is asked also where not all of the parents'
                are known here; ``NORM_SLACK`` for what a peer has admitted before.

        Raises:
            TransactionError, ModelNormError: A rule is broken.
        """
        if (known := self.graph.find(transaction, header)) is not None:
            return AlreadyKnown(known)
        check_header(header, genesis=self.genesis, ledger=self.id)
        node = self.place(transaction, header, recorded=figures.pack(), receipt=receipt)
        if isinstance(node, WaitingForParents):
            return node
        check_sequence(header, depth=node.depth, graph=self.graph)
        check_norm(figures.norm, max_norm=self.genesis.bounds.max_norm, slack=slack)
        if figures.step is not None:
            bound = self.step_bound(node.author, node.parents)
            if bound.is_exact or slack == 0:
                check_step(figures.step, bound, layout=self.genesis.layout, slack=slack)
        return Admitted(node)

    def step_bound(self, author: AuthorId | None, parents: Sequence[TxId]) -> StepBound:
        """How long the step of an update may be.

        Args:
            author: Its author; None for one that has not published yet.
            parents: What it names, all of them here.
        """
        bounds = self.genesis.bounds
        if not bounds.limit_steps:
            return NO_STEP_BOUND
        by = bounded_by(self._nodes(parents), author)
        bound = None if self._beside else self._step_bounds.get(by)
        if bound is None:
            nodes, genesis_norm = self._nodes(by), self.graph.genesis.figures.norm
            num_tensors = len(self.genesis.layout.tensors)
            bound = step_bound(nodes, genesis_norm=genesis_norm, num_tensors=num_tensors, bounds=bounds)
            if not self._beside and len(nodes) == len(by):  # what is recorded of an update never changes
                self._step_bounds[by] = bound
        return bound

    def _nodes(self, transactions: Sequence[TxId]) -> list[Node]:
        found = [self._get(each) for each in transactions]
        return [node for node in found if node is not None]

    def place(
        self, transaction: TxId, header: Header, *, recorded: bytes, receipt: Receipt | None = None
    ) -> Node | WaitingForParents:
        """Where a transaction stands in the DAG, whatever the rules say to it; changes nothing.

        ``recorded`` are its encoded figures. ``receipt`` is its server's, where it has one: without it, it can be
        looked at, and not be added.
        """
        parents = {parent: self._get(parent) for parent in header.parents}
        found = [node for node in parents.values() if node is not None]
        if len(found) < len(parents):
            return WaitingForParents(tuple(parent for parent, node in parents.items() if node is None))
        return node_of(
            transaction,
            header,
            depth=1 + max((parent.depth for parent in found), default=-1),
            bounded_by=bounded_by(found, header.author),
            recorded=recorded,
            receipt=receipt,
        )
