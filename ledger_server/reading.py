"""A ledger in memory, as its journal has it, and what the API shows of it.

Reading never waits for a publication that is being stored: it sees what was visible before.
"""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from fl_core.clusters import Approvals, count_approvals
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.graph import Node
from fl_core.dag.steps import StepBound
from fl_core.dag.transaction import Transaction
from fl_core.errors import CursorUnknownError, EvidenceArchivedError, GenesisError, TransactionUnknownError
from fl_core.ledger import Ledger
from fl_core.node import LedgerNode
from fl_core.retention import Retention
from fl_core.sync.items import ItemSet
from fl_core.trust.quarantine import NO_QUARANTINE
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId, digest_of
from ledger_server.acts import MemberActs
from ledger_server.history import JournalNodes
from ledger_server.model_store import CachedModelStore
from ledger_server.row_file import RowFile
from ledger_server.store.errors import StoreUnavailableError, SupersededError
from ledger_server.store.evidence import ARCHIVED
from ledger_server.store.journal import REPLAY_PAGE, Position, Store
from ledger_server.store.schema import head
from ledger_server.store.stored import StoredTransaction

SUMMED_UP_EVERY: Final = 10_000
"""Updates; at most so many are read when a server starts."""
_VERSION: Final = 1
"""Of what is summed up: whoever finds another reads the whole journal."""
_author_of: Final = attrgetter("author")


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A transaction, and whether nobody names it as a parent yet."""

    stored: StoredTransaction
    is_tip: bool


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """A ledger as it was at one time.

    Attributes:
        retention: What it keeps.
        transactions: How many it has.
    """

    retention: Retention
    transactions: int


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
        self._server = server
        self.id: TxId = first.id
        self.lock: threading.RLock = threading.RLock()
        self._reading_on: threading.Lock = threading.Lock()
        """Held while the journal's newest are taken in, and by a writer from before its commit until they are."""
        self._changes = store.position().changes
        self.models: CachedModelStore = CachedModelStore(store, self.genesis.layout, cache_bytes=cache_bytes)
        self._nodes = JournalNodes(store)
        self._summed_up = 1
        genesis_model, file = self.models.vector(first.header.model_digest), RowFile(store.database.folder)
        self.node: LedgerNode = LedgerNode(self.genesis, first, genesis_model, nodes=self._nodes, file=file)
        self.ledger: Ledger = self.node.ledger
        self._header_bytes = len(first.header_bytes)
        self.items: ItemSet = ItemSet([(0, self.id)], load=store.items)
        self._resume()
        while self.read_on(add=self.node.graph.add):
            pass
        self.node.offer_anew(NO_QUARANTINE)
        self.acts: MemberActs = MemberActs(
            store,
            self.id,
            self.genesis,
            has_published=self.ledger.graph.has_update_of,
            server=server,
        )
        self.go_by_acts()
        self.acts.on_effect = self.go_by_acts

    def forget_pruned(self) -> None:
        """Let go of what memory holds of models that were pruned, by whichever process."""
        self.models.forget_pruned(averages=bool(self.acts.quarantine.erased))

    def go_by_acts(self) -> None:
        """Go by what the members have decided."""
        with self.lock:
            self.node.go_by(self.acts.effect, self.acts.authors, self.acts.quarantine)

    def _entered(self, node: Node, transaction: Transaction) -> None:
        """Note what is summed up of a transaction that has become visible; under the lock."""
        self._header_bytes += len(transaction.header_bytes)
        self.items.add(node.depth, node.id)

    def _resume(self) -> None:
        """Go on from what a server last summed up of this journal, if it is there and of this program."""
        data = self.store.summary()
        held = {} if data is None else json.loads(data)
        if held.get("version") != _VERSION:
            return
        newest = [stored.node for stored in self.store.transactions(held["graph"]["newest"])]
        self._nodes.resume(held["graph"]["count"], newest)
        self.node.graph.resume(held["graph"], newest)
        self.items = ItemSet.resumed(held["items"], load=self.store.items)
        self._header_bytes = held["header_bytes"]
        self._summed_up = len(self.ledger)

    def keep_summary(self) -> None:
        """Keep what is summed up of the ledger, if much has come since: who starts next reads on from there."""
        with self.lock:
            if len(self.ledger) < self._summed_up + SUMMED_UP_EVERY:
                return
            held = {
                "version": _VERSION,
                "graph": self.node.graph.summed_up(),
                "items": self.items.blocks(),
                "header_bytes": self._header_bytes,
            }
            self._summed_up = len(self.ledger)
        self.store.keep_summary(json.dumps(held, separators=(",", ":")).encode())

    def follow(self) -> bool:
        """Take in what other processes have written by now; whether there was anything.

        Raises:
            StoreUnavailableError: The journal cannot be read, or somebody put an older one in its place.
            SupersededError: This process is to end.
        """
        known = len(self.ledger)
        position = self.store.position()
        if is_changed := position.changes != self._changes:
            self.acts.refresh()
            self.forget_pruned()
            self._changes = position.changes
        return self._take_in(position, known) or is_changed

    def _take_in(self, position: Position, known: int) -> bool:
        """Read on up to a position that was asked for when so many transactions were known."""
        self._require_as_started(position)
        if position.length < known:
            raise StoreUnavailableError("the journal is shorter than what this server has read; restart the server")
        is_behind = position.length > known
        while len(self.ledger) < position.length:
            with self._reading_on:
                self.read_on(self._seen)
        return is_behind

    def _require_as_started(self, position: Position) -> None:
        """See that the database is still what this process was started for.

        Raises:
            SupersededError: It is not.
        """
        if position.revision != head():
            why = f"it was upgraded to revision {position.revision}, and this process knows {head()}"
        elif position.epoch != self.epoch:
            why = "it was put back from a copy (dag-acfl db renew-epoch)"
        elif self._server is not None and position.server_key not in (None, self._server):
            why = f"it is served with the key {position.server_key} now, and this process has {self._server}"
        else:
            return
        raise SupersededError("this process serves the database no more", private=why)

    def _seen(self, node: Node, transaction: Transaction) -> None:
        """Another process has written an update, which nobody here can read of yet; under the lock."""

    def read_on(
        self,
        seen: Callable[[Node, Transaction], None] = lambda _, __: None,
        *,
        add: Callable[[Node], None] | None = None,
    ) -> int:
        """Take in a page of what the journal holds beyond this ledger: all of it at the start, then others' writing.

        Args:
            seen: Called with each update before anybody else can read of it.
            add: Instead of ``LedgerNode.restore``; at the start what the past offered is of no account.

        Returns:
            How many updates came in; 0 at the end of the journal.
        """
        page = self.store.page(after=len(self.ledger) - 1, limit=REPLAY_PAGE)
        for stored in page:
            with self.lock:
                if stored.arrival == len(self.ledger):  # else another thread was faster
                    node = stored.node
                    (add or self.node.restore)(node)
                    self._entered(node, stored.transaction)
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
        stored = self.store.transaction(transaction)
        if stored is None or not self._is_visible(stored):
            raise TransactionUnknownError(f"no transaction {transaction[:16]}… here", transaction=transaction)
        return self._view_of(stored)

    def beginning_with(self, digits: str, *, limit: int) -> list[StoredTransaction]:
        """At most ``limit`` transactions whose ids begin so, ascending by id."""
        return [stored for stored in self.store.beginning_with(digits, limit=limit) if self._is_visible(stored)]

    def page(self, *, after: int, limit: int) -> list[TransactionView]:
        """Transactions in order of arrival, from the one after ``after`` on (-1: from genesis).

        Raises:
            CursorUnknownError: ``after`` lies beyond the newest arrival.
        """
        self.check_cursor(after)
        page = self.store.page(after=after, limit=limit)
        # What is visible is a beginning of the journal, so leaving out the rest leaves no gap.
        return [self._view_of(stored) for stored in page if self._is_visible(stored)]

    def check_cursor(self, after: int) -> None:
        """Check that a listener or reader can go on after this arrival (-1: from genesis).

        Raises:
            CursorUnknownError: ``after`` lies beyond the newest arrival.
        """
        if after >= len(self.ledger):
            raise CursorUnknownError("this server has not given that cursor; start again without one")

    def newest(self) -> tuple[int, list[tuple[TxId, bool]]]:
        """Number of transactions, and each author's newest, by author, and whether it is a tip."""
        with self.lock:
            count, nodes, tips = len(self.ledger), [*self.node.graph.newest_nodes()], self.node.graph.tip_set()
        return count, [(node.id, node.id in tips) for node in sorted(nodes, key=_author_of)]

    def attachment(self, transaction: TxId) -> bytes:
        """The exact bytes of a transaction's attachment.

        Raises:
            TransactionUnknownError: The transaction is not here, or has no attachment.
            EvidenceArchivedError: It was moved to an archive.
        """
        header = self.view(transaction).stored.transaction.header
        found = None if header.attachment_digest == ZERO_ID else self.store.attachment(header.attachment_digest)
        if found is None:
            raise TransactionUnknownError(f"transaction {transaction[:16]}… has no attachment", transaction=transaction)
        if found == ARCHIVED:
            raise EvidenceArchivedError(
                f"the evidence of transaction {transaction[:16]}… was moved to an archive; ask this server's operator"
            )
        return found

    def _is_visible(self, stored: StoredTransaction) -> bool:
        """Whether its publication has come to the last step; the journal may be ahead of that."""
        return stored.arrival < len(self.ledger)

    def _view_of(self, stored: StoredTransaction) -> TransactionView:
        with self.lock:
            return TransactionView(stored, self.node.graph.is_tip(stored.transaction.id))

    # -- the ledger as a whole ----------------------------------------------------------------------

    def tips(self) -> tuple[int, tuple[TxId, ...]]:
        """Number of transactions, and all tips, ascending."""
        with self.lock:
            count, tips = len(self.ledger), self.node.graph.tip_set()
        return count, tuple(sorted(tips))

    def tips_digest(self, tips: tuple[TxId, ...]) -> Digest:
        """SHA-256 of the tips' ids: sets are ancestor-closed, so equal tips mean equal ledgers."""
        return digest_of(b"".join(map(bytes.fromhex, tips)))

    def approvals(self, *, lately: int) -> tuple[int, Approvals]:
        """Number of transactions, and who approves whom how often (genesis and oneself left out); reads the journal.

        Args:
            lately: Only this many updates that came last are looked at, and what they name among themselves.
        """
        count = len(self.ledger)
        author_of: dict[TxId, AuthorId | None] = {self.id: None}
        given: list[tuple[AuthorId, list[AuthorId | None]]] = []
        after = max(0, count - 1 - lately)
        while after < count - 1 and (page := self.store.page(after=after, limit=min(REPLAY_PAGE, count - 1 - after))):
            for stored in page:
                header = stored.transaction.header
                author_of[stored.transaction.id] = header.author
                given.append((header.author, [author_of.get(parent) for parent in header.parents]))
            after = page[-1].arrival
        return count, count_approvals(given)

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
            return LedgerSnapshot(retention, len(self.ledger))
