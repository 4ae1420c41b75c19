"""The ledger on a machine: the store is the journal, ``fl_core.ledger.Ledger`` keeps the rules.

Everything here is synchronous and safe to call from many threads; the API calls it from its thread pool.

Order of a publication, which is the promise of durability:

1. the model is checked and hashed, outside any lock;
2. the header is built and every rule asked; then a model that lies outside the database is written there;
3. one writer at a time: header and rules again, and one database transaction with all that is not written yet;
4. only then does the transaction become visible, and only then is it acknowledged.

A crash between 3 and 4 leaves a transaction that was never acknowledged but is there: the client's retry
finds it and is answered 200. A database that loses its connection between 3 and 4 leaves the same without a crash;
the next publication makes it visible first.
"""

import gc
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.clusters import Approvals
from fl_core.dag.admission import check_author, check_payload, check_publication
from fl_core.dag.building import UnsignedTransaction, build_genesis, build_update
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.graph import Node
from fl_core.dag.signature import Role, public_key_of, sign, verify
from fl_core.dag.transaction import AuthorKind, Transaction, split_author
from fl_core.errors import (
    CursorUnknownError,
    DigestMismatchError,
    GenesisError,
    ModelPrunedError,
    ModelUnknownError,
    ParentsUnknownError,
    SelectionUnknownError,
    SignatureRequiredError,
    TransactionInvalidError,
    TransactionUnknownError,
)
from fl_core.ledger import Admitted, AlreadyKnown, Ledger, WaitingForParents
from fl_core.models import Buffer, check_model, flat, model_norm
from fl_core.selection.change_points import ChangePointDetector
from fl_core.selection.evidence import Evidence, parse_evidence
from fl_core.sync.messages import CarriedTransaction
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId, Vector32, digest_of
from ledger_server.events import Announcements
from ledger_server.model_store import CachedModelStore
from ledger_server.pruning import Moment
from ledger_server.selecting import ModelDigests, SelectionRecord, TipSelectionService
from ledger_server.selection_book import SelectionBook
from ledger_server.store.errors import StoredUnseenError, StoreUnavailableError
from ledger_server.store.protocol import Store, StoredTransaction

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BroughtEvidence:
    """A selection's evidence that a client brings from the server that made and signed it."""

    encoded: bytes
    issuer: PublicKey
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a client wants to publish; None where the server shall fill in (see ``PublishRequest``)."""

    num_examples: int
    selection: Digest | None = None
    parents: tuple[TxId, ...] | None = None
    metrics: Mapping[str, float] | None = None
    author: AuthorId | None = None
    sequence: int | None = None
    created_at_ms: int | None = None
    signature: bytes | None = None
    evidence: "BroughtEvidence | None" = None
    claimed_id: TxId | None = None
    claimed_model: Digest | None = None


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A transaction with what its place in the DAG says about it."""

    stored: StoredTransaction
    depth: int
    is_tip: bool


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome: ``created`` is False when the very same transaction was here before."""

    view: TransactionView
    created: bool

    @property
    def transaction(self) -> TxId:
        """The transaction's id."""
        return self.view.stored.transaction.id


@dataclass(frozen=True, slots=True)
class _Payload:
    """What a header says of a model, and its Euclidean norm."""

    digest: Digest
    size: int
    norm: float


@dataclass(frozen=True, slots=True)
class _Draft:
    """A publication that every rule allows, or that is here already."""

    unsigned: UnsignedTransaction
    node: Node
    known: bool
    now_ms: int


class LedgerService:
    """One ledger, served.

    Args:
        store: The journal; it must hold a genesis.
        key: This server's key; it signs what it admits.
        now_ms: The clock, milliseconds since 1970 UTC.
        detect: Runs BEAST.
        cache_bytes: Memory for recently used models and aggregates.
        max_unpublished_selections: How many selections are kept for clients still training.
        selection_lifetime_ms: For how long, in milliseconds.
        recent_selections: How many selections memory holds for their publication.

    Raises:
        GenesisError: The store holds no ledger, or a damaged one.
    """

    def __init__(
        self,
        store: Store,
        *,
        key: Ed25519PrivateKey,
        now_ms: Callable[[], int],
        detect: ChangePointDetector,
        cache_bytes: int,
        max_unpublished_selections: int = 10_000,
        selection_lifetime_ms: int = 30 * 86_400_000,
        recent_selections: int = 128,
    ) -> None:
        held = store.genesis()
        if held is None:
            raise GenesisError("there is no ledger here yet; make one with: dag-acfl ledger init")
        first, document = held
        self.genesis: Genesis = parse_genesis(document)
        self.genesis_transaction = first
        self.store = store
        self.epoch = store.epoch()
        """Names this server's order of arrival."""
        self.public_key = PublicKey(public_key_of(key))
        self.announcements = Announcements()
        self.trusted_issuers: frozenset[PublicKey] = frozenset({self.public_key})
        """Servers whose selections are taken from clients: this one and its peers."""
        self.on_published: Callable[[Transaction], None] | None = None
        """Told of what a client published, once it is visible; in the thread that published it."""
        self._key, self._now_ms = key, now_ms
        self._selections = SelectionBook(
            store,
            now_ms=now_ms,
            max_unpublished=max_unpublished_selections,
            lifetime_ms=selection_lifetime_ms,
            recent=recent_selections,
        )
        self._lock = threading.RLock()
        self._writer = threading.Lock()
        self._foreign_writer = False
        self._approvals: Counter[tuple[AuthorId, AuthorId]] = Counter()
        self._header_bytes = len(first.header_bytes)
        self._served: set[AuthorId] = set()
        self._model_of = ModelDigests()
        self._model_of.put(first.id, first.header.model_digest)
        self._models = CachedModelStore(store, self.genesis.layout, cache_bytes=cache_bytes)
        genesis_vector = self._models.vector(first.header.model_digest)
        self.ledger = Ledger(self.genesis, first, genesis_norm=model_norm(genesis_vector))
        self._selecting = TipSelectionService(
            self.ledger,
            lock=self._lock,
            models=self._models,
            model_of=self._model_of,
            detect=detect,
            genesis_vector=genesis_vector,
        )
        self._replay()

    def _replay(self) -> None:
        with _uncollected():
            self._restore_journal()
        self._selecting.load()

    def _restore_journal(self) -> None:
        for stored in self.store.replay():
            if stored.transaction.id == self.ledger.id:
                continue
            restored = self.ledger.restore(stored.transaction, norm=stored.norm)
            if isinstance(restored, WaitingForParents):
                raise GenesisError(
                    f"the journal lacks parents of {stored.transaction.id[:16]}…; run: dag-acfl ledger verify"
                )
            self._count(restored, stored.transaction)

    def _count(self, node: Node, transaction: Transaction) -> None:
        self._model_of.put(node.id, transaction.header.model_digest)
        self._header_bytes += len(transaction.header_bytes)
        for parent in node.parents:
            approved = self.ledger.graph.get(parent)
            if approved is not None and approved.parents and approved.author != node.author:
                self._approvals[node.author, approved.author] += 1

    # -- reading ----------------------------------------------------------------------------------

    @property
    def id(self) -> TxId:
        """The ledger's id."""
        return self.ledger.id

    def view(self, transaction: TxId) -> TransactionView:
        """One transaction.

        Raises:
            TransactionUnknownError: It is not here.
        """
        stored = self.store.transaction(transaction) if self._is_visible(transaction) else None
        if stored is None:
            raise TransactionUnknownError(f"no transaction {transaction[:16]}… here", transaction=transaction)
        return self._with_place(stored)

    def reading(self) -> AbstractContextManager[object]:
        """While it is held, ledger and graph do not change; briefly, since publications wait."""
        return self._lock

    def _is_visible(self, transaction: TxId) -> bool:
        """Whether a publication has come to its last step; the journal may be ahead of that."""
        with self._lock:
            return transaction in self.ledger

    def check_cursor(self, after: int) -> None:
        """That a listener or reader can go on after this arrival (-1: from genesis).

        Raises:
            CursorUnknownError: ``after`` lies beyond the newest arrival.
        """
        if after >= len(self.ledger):
            raise CursorUnknownError("this server has not given that cursor; start again without one")

    def page(self, *, after: int, limit: int) -> list[TransactionView]:
        """Transactions in order of arrival, from the one after ``after`` on (-1: from genesis).

        Raises:
            CursorUnknownError: ``after`` lies beyond the newest arrival.
        """
        self.check_cursor(after)
        page = self.store.page(after=after, limit=limit)
        # What is visible is a beginning of the journal, so leaving out the rest leaves no gap.
        return [self._with_place(stored) for stored in page if self._is_visible(stored.transaction.id)]

    def _with_place(self, stored: StoredTransaction) -> TransactionView:
        with self._lock:
            node = self.ledger.graph.get(stored.transaction.id)
            assert node is not None, "only what is visible has a place"
            return TransactionView(stored, node.depth, self.ledger.graph.is_tip(node.id))

    def tips(self) -> tuple[int, tuple[Node, ...]]:
        """Number of transactions, and all tips ascending: one consistent moment."""
        with self._lock:
            return len(self.ledger), self.ledger.graph.tips()

    def tips_digest(self, tips: tuple[Node, ...]) -> Digest:
        """SHA-256 of the tips' ids: sets are ancestor-closed, so equal tips mean equal ledgers."""
        return digest_of(b"".join(bytes.fromhex(tip.id) for tip in tips))

    def approvals(self) -> tuple[int, Approvals]:
        """Number of transactions, and who approves whom how often (genesis and oneself left out)."""
        with self._lock:
            count, authors, counted = len(self.ledger), self.ledger.graph.authors(), self._approvals.copy()
        place = {author: index for index, author in enumerate(authors)}
        counts = np.zeros((len(authors), len(authors)), np.int64)
        for (giver, receiver), times in counted.items():
            counts[place[giver], place[receiver]] = times
        return count, Approvals(authors, counts)

    def cached_bytes(self) -> int:
        """Model bytes held in memory."""
        return self._models.cached_bytes

    def header_bytes(self) -> tuple[int, int]:
        """Number of transactions, and the size of all their headers."""
        with self._lock:
            return len(self.ledger), self._header_bytes

    def newest(self) -> list[TransactionView]:
        """Each author's newest transaction, by author: one moment's, read with one query."""
        with self._lock:
            graph = self.ledger.graph
            place = {node.id: (node, graph.is_tip(node.id)) for node in graph.newest_nodes()}
        ids = sorted(place, key=lambda each: place[each][0].author)
        views = []
        for stored in self.store.transactions(ids):
            node, is_tip = place[stored.transaction.id]
            views.append(TransactionView(stored, node.depth, is_tip))
        return views

    def clients_served(self) -> int:
        """How many authors have published here since this process started."""
        return len(self._served)

    def tip_count(self) -> int:
        """How many transactions nobody approves."""
        with self._lock:
            return self.ledger.graph.tip_count()

    def moment(self, *, keep_generations: int) -> Moment:
        """What pruning decides on.

        Raises:
            ParameterError: ``keep_generations`` is below 1.
        """
        with self._lock:
            retention = self.ledger.retention(keep_generations=keep_generations)
            return Moment(retention, tuple(self.ledger), self._model_of)

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

    def model_in_memory(self, digest: Digest) -> Buffer | None:
        """A model or aggregate that can be handed out without waiting."""
        return self._models.cached(digest)

    def forget_models(self, digests: Iterable[Digest]) -> None:
        """Keep nothing in memory of models that were pruned."""
        self._models.forget(digests)

    def model(self, digest: Digest) -> Buffer:
        """A transaction's model or an aggregate, by digest.

        Raises:
            ModelPrunedError: A transaction's model that was pruned.
            ModelUnknownError: Neither; or an aggregate that nobody asked for here lately.
        """
        found = self._models.get(digest)
        if found is None:
            with suppress(ModelPrunedError):  # of one that it is the average of
                found = self._selecting.aggregate_bytes(digest)
        if found is None:
            if isinstance(absent := self._models.missing(digest), ModelPrunedError):
                raise absent
            raise ModelUnknownError(f"no model {digest[:16]}… here; an aggregate is had by a new selection")
        return found

    # -- selecting --------------------------------------------------------------------------------

    def select_for(self, transaction: TxId) -> tuple[SelectionRecord, bool]:
        """Select for a client by its transaction; the flag says whether this evidence is new."""
        return self._keep(self._selecting.select_for(transaction))

    def select_with(self, model: Buffer) -> tuple[SelectionRecord, bool]:
        """Select for a client by its model."""
        return self._keep(self._selecting.select_with(model))

    def _keep(self, record: SelectionRecord) -> tuple[SelectionRecord, bool]:
        return record, self._selections.keep(record)

    def selection(self, selection: Digest) -> SelectionRecord:
        """A selection's evidence.

        Raises:
            SelectionUnknownError: It is not kept here (any more), or was damaged.
        """
        if (held := self._selections.get(selection)) is not None:
            return held
        encoded = self.store.attachment(selection)
        if encoded is None or selection == self.genesis.digest or digest_of(encoded) != selection:
            raise SelectionUnknownError(f"no selection {selection[:16]}… here; ask for a new one")
        return SelectionRecord(selection, encoded, parse_evidence(encoded))

    def sign_selection(self, selection: Digest) -> bytes:
        """This server's word that it made a selection, for the client to publish elsewhere."""
        return sign(self._key, TxId(selection), role=Role.SELECTION)

    def _selection_for(self, publication: Publication) -> SelectionRecord | None:
        """The selection that a publication names: from here, or as brought from a server that is trusted.

        Raises:
            SelectionUnknownError: It is not kept here, and no evidence came that this server takes.
            SignatureError, TransactionInvalidError, DigestMismatchError: What came is not what it says.
        """
        if publication.selection is None:
            return None
        brought = publication.evidence
        try:
            return self.selection(publication.selection)
        except SelectionUnknownError:
            if brought is None or brought.issuer not in self.trusted_issuers:
                raise
        if (computed := digest_of(brought.encoded)) != publication.selection:
            raise DigestMismatchError(
                "the evidence is not that of the selection", claimed=publication.selection, computed=computed
            )
        verify(brought.issuer, TxId(computed), brought.signature, role=Role.SELECTION)
        return SelectionRecord(computed, brought.encoded, parse_evidence(brought.encoded))

    # -- publishing -------------------------------------------------------------------------------

    def publish(self, publication: Publication, model: Buffer) -> Published:
        """Admit a model as a transaction, durably.

        Raises:
            ModelError, TransactionError, SelectionUnknownError: Refused; nothing has changed.
        """
        digest = digest_of(model)
        if publication.claimed_model not in (None, digest):
            raise DigestMismatchError(
                "model_digest is not the SHA-256 of the model that came",
                claimed=publication.claimed_model or "",
                computed=digest,
            )
        vector = check_model(self.genesis.layout, model, max_abs=self.genesis.policy.max_abs_value)
        norm = model_norm(vector)
        record = self._selection_for(publication)
        payload = _Payload(digest, len(model), norm)
        draft = self._draft(publication, record, payload)
        if not draft.known:
            with self.store.staged(digest, model), self._writer:
                self._check_sole_writer()
                draft = self._draft(publication, record, payload, verified=draft.unsigned.id)
                if not draft.known:
                    return self._append(draft, publication, record, model, vector)
        return Published(self.view(draft.unsigned.id), created=False)

    def _draft(
        self,
        publication: Publication,
        record: SelectionRecord | None,
        payload: "_Payload",
        *,
        verified: TxId | None = None,
    ) -> "_Draft":
        """The transaction as it would be admitted now: asked before anything is written, and again by its writer."""
        with self._lock:
            unsigned = self._build(publication, record, payload)
            header, identity = unsigned.header, unsigned.id
            if publication.claimed_id not in (None, identity):
                raise DigestMismatchError(
                    "id is not that of the transaction as this server builds it",
                    claimed=publication.claimed_id or "",
                    computed=identity,
                )
            if identity != verified:
                check_author(header, identity, publication.signature, genesis=self.genesis)
            answer = self.ledger.review(identity, header, norm=payload.norm, slack=0.0)
            if isinstance(answer, WaitingForParents):
                raise ParentsUnknownError("parents are not known here; ask for a selection", missing=answer.missing)
            now_ms = self._now_ms()
            known = isinstance(answer, AlreadyKnown)
            if not known:
                check_publication(
                    header, node=answer.node, graph=self.ledger.graph, genesis=self.genesis, now_ms=now_ms
                )
            return _Draft(unsigned, answer.node, known, now_ms)

    def _append(
        self,
        draft: "_Draft",
        publication: Publication,
        record: SelectionRecord | None,
        model: Buffer,
        vector: Vector32,
    ) -> Published:
        transaction = draft.unsigned.issue(self._key, author_signature=publication.signature)
        carried = CarriedTransaction(transaction, None if record is None else record.encoded)
        stored = self._enter(carried, draft.node, model, vector, now_ms=draft.now_ms)
        self._served.add(draft.node.author)
        if record is not None:
            self._selections.published(record.id)
        if self.on_published is not None:
            self.on_published(transaction)
        return Published(self._with_place(stored), created=True)

    def _enter(
        self, carried: CarriedTransaction, node: Node, model: Buffer, vector: Vector32, *, now_ms: int
    ) -> StoredTransaction:
        """Durable, then visible: a reviewed transaction becomes part of the ledger. The caller is the only writer."""
        transaction = carried.transaction
        try:
            arrival = self.store.append(
                transaction, norm=node.norm, model=model, attachment=carried.attachment, received_at_ms=now_ms
            )
        except StoredUnseenError as unseen:
            # What was reviewed may not be right any more with that one in the ledger: its sender tries again.
            self._take_in(unseen.transaction)
            raise
        self._make_visible(arrival, transaction, node, model, vector)
        return StoredTransaction(arrival, transaction, node.norm, now_ms)

    def _make_visible(
        self, arrival: int, transaction: Transaction, node: Node, model: Buffer, vector: Vector32
    ) -> None:
        if arrival != len(self.ledger):
            self._foreign_writer = True
            self._check_sole_writer()
        with self._lock:
            gone = self.ledger.add(node)
            self._count(node, transaction)
            self._selecting.admitted(node.id, gone, vector)
        self._models.put(transaction.header.model_digest, model)
        self.announcements.announce(arrival)

    def _take_in(self, unseen: TxId) -> None:
        """Make visible what was stored although its commit seemed to fail; peers learn of it when they pull."""
        stored = self.store.transaction(unseen)
        assert stored is not None, "the store has just found it"
        header = stored.transaction.header
        model = self._models.get(header.model_digest)
        assert model is not None, "it is stored with its transaction"
        answer, vector = self.ledger.review(unseen, header, norm=stored.norm), flat(self.genesis.layout, model)
        assert isinstance(answer, Admitted), "it was reviewed before it was stored, and nothing has come since"
        self._make_visible(stored.arrival, stored.transaction, answer.node, model, vector)
        self.store.saw(unseen)
        logger.warning("a commit that seemed to fail had happened", extra={"transaction": unseen})

    def admit_carried(self, carried: CarriedTransaction, model: Buffer) -> bool:
        """Admit what a peer has admitted, as it stands; False when it was here before.

        Args:
            carried: Its header and signatures have been checked.
            model: The bytes that its header names; checked here.

        Raises:
            ModelError, TransactionError: A rule is broken; nothing has changed.
            ParentsUnknownError: A parent has not come yet.
            StoreError: Not stored.
        """
        transaction, header = carried.transaction, carried.transaction.header
        vector = check_payload(header, genesis=self.genesis, model=model, attachment=carried.attachment)
        norm = model_norm(vector)
        if transaction.id in self.ledger:
            return False
        with self.store.staged(header.model_digest, model), self._writer:
            self._check_sole_writer()
            with self._lock:
                answer = self.ledger.review(transaction.id, header, norm=norm)
            if isinstance(answer, AlreadyKnown):
                return False
            if isinstance(answer, WaitingForParents):
                raise ParentsUnknownError("parents are not known here yet", missing=answer.missing)
            self._enter(carried, answer.node, model, vector, now_ms=self._now_ms())
            return True

    def _check_sole_writer(self) -> None:
        """Another process that appends to the same journal has made this one's ledger incomplete.

        Raises:
            StoreUnavailableError: It has; a restart reads the journal again.
        """
        if self._foreign_writer:
            raise StoreUnavailableError("another server writes to this database; run one per database, and restart")

    def _build(
        self, publication: Publication, record: SelectionRecord | None, payload: "_Payload"
    ) -> UnsignedTransaction:
        if (record is None) == (publication.parents is None):
            raise TransactionInvalidError("send either selection or parents")
        evidence = None if record is None else record.evidence
        author = publication.author or self._author_of(evidence)
        self._check_lineage(author, evidence)
        newest = self.ledger.graph.newest_of(author)
        following = 0 if newest is None else newest.sequence + 1
        parents = publication.parents if evidence is None else evidence.selection.parents
        assert parents is not None, "one of the two was given"
        return build_update(
            ledger=self.ledger.id,
            author=author,
            sequence=following if publication.sequence is None else publication.sequence,
            created_at_ms=self._now_ms() if publication.created_at_ms is None else publication.created_at_ms,
            num_examples=publication.num_examples,
            model_digest=payload.digest,
            model_size=payload.size,
            parents=parents,
            evidence=None if record is None else record.id,
            metrics=publication.metrics,
        )

    def _author_of(self, evidence: Evidence | None) -> AuthorId:
        """A client without a key keeps the name of the transaction it asked with, or gets a new one."""
        asked = None if evidence is None or evidence.reference is None else self.ledger.graph.get(evidence.reference)
        if asked is None:
            return AuthorKind.ANONYMOUS.author(secrets.token_hex(32))
        if split_author(asked.author)[0] is AuthorKind.ED25519:
            raise SignatureRequiredError("the selection's author has a key; send author and signature")
        return asked.author

    def _check_lineage(self, author: AuthorId, evidence: Evidence | None) -> None:
        if evidence is None:
            return
        if evidence.ledger != self.ledger.id:
            raise SelectionUnknownError("the selection is of another ledger")
        asked = None if evidence.reference is None else self.ledger.graph.get(evidence.reference)
        if asked is not None and asked.author != author:
            raise TransactionInvalidError("the selection was made for another author; ask for your own")

    def close(self) -> None:
        """End listeners' streams and write what waits, once; the store is its opener's to close."""
        self.announcements.close()
        self._selections.close()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the search for cycles, which would go through all of a growing ledger again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def create_ledger(store: Store, genesis: Genesis, model: Buffer, *, key: Ed25519PrivateKey, now_ms: int) -> Transaction:
    """Write a new ledger's genesis into an empty store.

    Args:
        store: An empty store.
        genesis: The rules.
        model: The initial model, canonical bytes of the genesis layout.
        key: The creator's key: author and issuer of the genesis transaction.
        now_ms: Creation time, milliseconds since 1970 UTC.

    Raises:
        ModelError: The model does not fit the layout.
        LedgerExistsError: The store holds a ledger.
    """
    check_model(genesis.layout, model, max_abs=genesis.policy.max_abs_value)
    unsigned = build_genesis(genesis, key=key, model_digest=digest_of(model), created_at_ms=now_ms)
    transaction = unsigned.issue(key, author_signature=unsigned.sign_as_author(key))
    norm = model_norm(flat(genesis.layout, model))
    store.create(transaction, document=genesis.document, model=model, norm=norm, received_at_ms=now_ms)
    return transaction
