"""A ledger in memory, as its journal has it, and what the API shows of it.

Reading never waits for a publication that is being stored: it sees what was visible before.
"""

import gc
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fl_core.clusters import Approvals
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.graph import Node
from fl_core.dag.steps import StepBound
from fl_core.dag.transaction import Transaction
from fl_core.errors import CursorUnknownError, GenesisError, TransactionUnknownError
from fl_core.ledger import Ledger
from fl_core.node import LedgerNode
from fl_core.retention import Retention
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId, digest_of
from ledger_server.acts import MemberActs
from ledger_server.model_store import CachedModelStore
from ledger_server.store.journal import REPLAY_PAGE, Store, StoredTransaction


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A transaction with what its place in the DAG says about it."""

    stored: StoredTransaction
    depth: int
    is_tip: bool


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """A ledger as it was at one time.

    Attributes:
        retention: What it keeps.
        nodes: Its transactions, in order of arrival.
    """

    retention: Retention
    nodes: tuple[Node, ...]


class LedgerView:
    """One ledger's node, restored from its journal, and views of it; safe to call from many threads.

    Args:
        store: The journal; it must hold a genesis.
        cache_bytes: Memory for recently used models and aggregates.
        server: Key of the member on whose server this is: its own acts hold here; None: only those in effect do.

    Attributes:
        lock: While it is held, ledger and graph do not change; briefly, since publications wait.
        node: The ledger's rules, graph and vectors; use it under ``lock``.
        acts: What the members have decided; the node goes by it.
        models: The models' bytes.
        epoch: Names this server's order of arrival.

    Raises:
        GenesisError: The store holds no ledger, or a damaged one.
    """

    def __init__(self, store: Store, *, cache_bytes: int, server: PublicKey | None = None) -> None:
        held = store.genesis()
        if held is None:
            raise GenesisError(
                "there is no ledger here yet; make one with: dag-acfl ledger init, "
                "or take a server's with: dag-acfl ledger join URL"
            )
        first, document = held
        self.genesis: Genesis = parse_genesis(document)
        self.store: Store = store
        self.epoch: str = store.epoch()
        self.id: TxId = first.id
        self.lock: threading.RLock = threading.RLock()
        self.models: CachedModelStore = CachedModelStore(store, self.genesis.layout, cache_bytes=cache_bytes)
        self.node: LedgerNode = LedgerNode(self.genesis, first, self.models.vector(first.header.model_digest))
        self.ledger: Ledger = self.node.ledger
        self.acts: MemberActs = MemberActs(
            store,
            self.id,
            self.genesis,
            has_published=self.ledger.graph.has_update_of,
            server=server,
        )
        self.go_by_acts()
        self.acts.on_effect = self.go_by_acts
        # By giver and then receiver: keyed by pairs, a count would take six times the memory.
        self._approvals: defaultdict[AuthorId, Counter[AuthorId]] = defaultdict(Counter)
        self._header_bytes = 0
        self._count(self.node.graph.genesis, first)
        gc.disable()  # the collector would walk through all of a growing ledger again and again, and find no cycle
        try:
            while self.read_on():
                pass
        finally:
            gc.enable()

    def forget(self, digests: Sequence[Digest]) -> None:
        """Let go of what memory holds of models that may have been pruned."""
        self.models.forget(digests)

    def go_by_acts(self) -> None:
        """Go by what the members have decided."""
        with self.lock:
            self.node.go_by(self.acts.effect, self.acts.authors, self.acts.quarantine)

    def _count(self, node: Node, transaction: Transaction) -> None:
        """Note of a transaction that has become visible what views sum up; under the lock."""
        self._header_bytes += len(transaction.header_bytes)
        for parent in node.parents:
            approved = self.ledger.history.get(parent)
            if approved is not None and approved.parents and approved.author != node.author:
                self._approvals[node.author][approved.author] += 1

    def read_on(self, seen: Callable[[Node, Transaction], None] = lambda _, __: None) -> int:
        """Take in a page of what the journal holds beyond this ledger: all of it at the start, then others' writing.

        Args:
            seen: Called with each update before anybody else can read of it.

        Returns:
            How many updates came in; 0 at the end of the journal.
        """
        page = self.store.page(after=len(self.ledger) - 1, limit=REPLAY_PAGE)
        for stored in page:
            with self.lock:
                if stored.arrival == len(self.ledger):  # else another thread was faster
                    node = stored.node
                    self.node.restore(node)
                    self._count(node, stored.transaction)
                    seen(node, stored.transaction)
        return len(page)

    def step_bound(self, author: AuthorId | None, parents: Sequence[TxId]) -> StepBound:
        """How long the step of an update may be that an author publishes upon these; None: one that is new here."""
        with self.lock:
            return self.ledger.step_bound(author, parents)

    def step_bound_alone(self, author: AuthorId | None) -> StepBound:
        """The same upon nobody's but its own newest, or upon genesis before its first."""
        with self.lock:
            newest = None if author is None else self.node.graph.newest_of(author)
            return self.ledger.step_bound(author, [self.id if newest is None else newest.id])

    # -- transactions -------------------------------------------------------------------------------

    def view(self, transaction: TxId) -> TransactionView:
        """One transaction.

        Raises:
            TransactionUnknownError: It is not here.
        """
        stored = self.store.transaction(transaction) if self._is_visible(transaction) else None
        if stored is None:
            raise TransactionUnknownError(f"no transaction {transaction[:16]}… here", transaction=transaction)
        return self._view_of(stored)

    def page(self, *, after: int, limit: int) -> list[TransactionView]:
        """Transactions in order of arrival, from the one after ``after`` on (-1: from genesis).

        Raises:
            CursorUnknownError: ``after`` lies beyond the newest arrival.
        """
        self.check_cursor(after)
        page = self.store.page(after=after, limit=limit)
        # What is visible is a beginning of the journal, so leaving out the rest leaves no gap.
        return [self._view_of(stored) for stored in page if self._is_visible(stored.transaction.id)]

    def check_cursor(self, after: int) -> None:
        """Check that a listener or reader can go on after this arrival (-1: from genesis).

        Raises:
            CursorUnknownError: ``after`` lies beyond the newest arrival.
        """
        if after >= len(self.ledger):
            raise CursorUnknownError("this server has not given that cursor; start again without one")

    def newest(self) -> list[TransactionView]:
        """Each author's newest transaction, by author: as of one moment, read with one query."""
        with self.lock:
            graph = self.node.graph
            place = {node.id: (node, graph.is_tip(node.id)) for node in graph.newest_nodes()}
        ids = sorted(place, key=lambda each: place[each][0].author)
        views = []
        for stored in self.store.transactions(ids):
            node, is_tip = place[stored.transaction.id]
            views.append(TransactionView(stored, node.depth, is_tip))
        return views

    def attachment(self, transaction: TxId) -> bytes:
        """The exact bytes of a transaction's attachment.

        Raises:
            TransactionUnknownError: The transaction is not here, or has no attachment.
        """
        header = self.view(transaction).stored.transaction.header
        found = None if header.attachment_digest == ZERO_ID else self.store.attachment(header.attachment_digest)
        if found is None:
            raise TransactionUnknownError(f"transaction {transaction[:16]}… has no attachment", transaction=transaction)
        return found

    def _is_visible(self, transaction: TxId) -> bool:
        """Whether its publication has come to the last step; the journal may be ahead of that."""
        with self.lock:
            return transaction in self.ledger

    def _view_of(self, stored: StoredTransaction) -> TransactionView:
        with self.lock:
            node = self.ledger.history.get(stored.transaction.id)
            assert node is not None, "only what is visible is viewed"
            return TransactionView(stored, node.depth, self.node.graph.is_tip(node.id))

    # -- the ledger as a whole ----------------------------------------------------------------------

    def tips(self) -> tuple[int, tuple[Node, ...]]:
        """Number of transactions, and all tips, ascending by id."""
        with self.lock:
            return len(self.ledger), self.node.graph.tips()

    def tips_digest(self, tips: tuple[Node, ...]) -> Digest:
        """SHA-256 of the tips' ids: sets are ancestor-closed, so equal tips mean equal ledgers."""
        return digest_of(b"".join(bytes.fromhex(tip.id) for tip in tips))

    def approvals(self) -> tuple[int, Approvals]:
        """Number of transactions, and who approves whom how often (genesis and oneself left out)."""
        with self.lock:
            count, authors = len(self.ledger), self.node.graph.authors()
            given = [(giver, receivers.copy()) for giver, receivers in self._approvals.items()]
        pairs = {(giver, receiver): times for giver, receivers in given for receiver, times in receivers.items()}
        return count, Approvals(authors, pairs)

    def header_bytes(self) -> tuple[int, int]:
        """Number of transactions, and the size of all their headers."""
        with self.lock:
            return len(self.ledger), self._header_bytes

    def snapshot(self, *, keep_ms: int | None) -> LedgerSnapshot:
        """What pruning decides on.

        Raises:
            ParameterError: ``keep_ms`` is below 0.
        """
        with self.lock:
            retention = Retention.of(self.node.graph, self.genesis, keep_ms=keep_ms, offering=self.node.offering)
            return LedgerSnapshot(retention, tuple(self.ledger))
