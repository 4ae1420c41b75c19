"""Publish on a server: the core's node under a lock, and the store that makes durable what the node admits.

Everything here is synchronous and safe to call from many threads; the API calls it from its thread pool.

Order of a publication, which is the promise of durability:

1. the model is checked and hashed, outside any lock;
2. the node prepares the transaction and asks every rule; a model that lies outside the database is written there;
3. one writer at a time of all processes, for all publications that wait in this one (``GroupCommit``): what others have
   written is taken in, the node prepares each again, and one database transaction holds all of theirs that is not
   written yet;
4. only then do the transactions become visible, and only then are they acknowledged.

A crash between 3 and 4 leaves a transaction that was never acknowledged but is there: the client's retry
finds it and is answered 200. A database that loses its connection between 3 and 4 leaves the same without a crash: the
journal has moved on, and is read on in as after another writer.
"""

import logging
import math
from collections.abc import Callable, Collection, Container, Sequence
from contextlib import ExitStack, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from opentelemetry.context import Context as TraceContext

from fl_core.dag.admission import NORM_SLACK, check_attachment, check_payload
from fl_core.dag.figures import Figures, Step, step_from
from fl_core.dag.graph import Node
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Transaction
from fl_core.errors import (
    DagAcflError,
    DigestMismatchError,
    ModelPrunedError,
    ModelUnknownError,
    ParentsStaleError,
    ParentsUnknownError,
)
from fl_core.ledger import Admitted
from fl_core.models import Buffer, check_model, model_norm
from fl_core.node import Draft, ModelFacts, Publication
from fl_core.selection.evidence import parse_evidence
from fl_core.selection.parents import check_parents
from fl_core.types import AuthorId, PublicKey, TxId, Vector32, digest_of
from ledger_server import tracing
from ledger_server.aggregates import Aggregates, Beside
from ledger_server.alarms import RESTORED, ServerAlarms
from ledger_server.clusters import Clusters
from ledger_server.events import Listeners, News
from ledger_server.group_commit import GroupCommit
from ledger_server.lately import Lately
from ledger_server.model_store import ModelCorruptError
from ledger_server.pending_selections import PendingSelections, SelectionRecord
from ledger_server.quotas import Quotas
from ledger_server.reading import LedgerView, TransactionView
from ledger_server.selecting import ForwardedEvidence, SelectionService
from ledger_server.store.appending import Entry
from ledger_server.store.engine import LOG_BYTES
from ledger_server.store.errors import StoreError, StoreInconsistentError, StoreUnavailableError
from ledger_server.store.evidence import ARCHIVED
from ledger_server.store.journal import Store
from ledger_server.store.stored import StoredTransaction
from ledger_server.windows import Windows

logger: logging.Logger = logging.getLogger(__name__)

_PAGE: Final = 100
_TOGETHER_BYTES: Final = LOG_BYTES
"""Models that are written together: more would make SQLite's log longer, and the first of them wait for the last."""


@dataclass(frozen=True, slots=True)
class PublicationResult:
    """The outcome: ``created`` is False when the very same transaction was here before."""

    view: TransactionView
    created: bool

    @property
    def transaction(self) -> TxId:
        return self.view.stored.transaction.id


@dataclass(slots=True, kw_only=True)
class _Arrival:
    """A transaction that waits to be written.

    Attributes:
        issue: Asks the rules again when its turn has come, given what is written with it and stands before it; None: it
            is here already. Gives its place in the DAG, too. Raises what they say.
        author: Whose it is.
        model: Its file; None where nobody has it.
        compared: What is compared of its model, shape ``(d,)``.
        attachment: The bytes that its header names.
        figures: Of its model.
        on_shown: Called once it is visible, before the next one is.
        context: Of the thread that brought it: its trace, and the request that log lines name.
    """

    issue: Callable[[Collection[TxId]], tuple[Transaction, Node] | None]
    author: AuthorId
    model: Buffer | None
    compared: Vector32 | None
    attachment: bytes | None
    figures: Figures
    on_shown: Callable[[Transaction], None] = lambda _: None
    context: Context = field(default_factory=copy_context)


def _fits(batch: Sequence[_Arrival], new: Sequence[_Arrival]) -> bool:
    """Whether the rules answer for updates as if those before them were visible already, and all are not too much.

    They ask of no other updates than their parents, which are visible or among themselves, and those of their authors.
    """
    nbytes = sum(len(each.model) for each in (*batch, *new) if each.model is not None)
    return nbytes <= _TOGETHER_BYTES and {each.author for each in batch}.isdisjoint(each.author for each in new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """An update that a peer has admitted, as it stands.

    Attributes:
        transaction: Header and signatures have been checked.
        attachment: The bytes that its header names; still to be checked. Empty: its evidence was archived, and a
            member's checkpoint stands for it.
        model: Bytes that hash to the digest that it names, to be checked for the rest; None where nobody has them and a
            member's checkpoint stands for them.
        norm: A bound of it, where the model is None: then the norm rule is not asked.
        trace: The trace that it belongs to.
    """

    transaction: Transaction
    attachment: bytes | None
    model: Buffer | None
    norm: float = 0.0
    trace: TraceContext | None = None


class LedgerService(LedgerView):
    """One ledger, served: the view that also writes.

    Args:
        store: The journal; it must hold a genesis.
        key: This server's key; it signs what it admits.
        now_ms: The clock, milliseconds since 1970 UTC.
        cache_bytes: Memory for recently used models and aggregates.
        recent_selections: How many selections memory holds for their publication.
        quotas: How much one author may publish; default: any.

    Attributes:
        selections: Answers selections.
        aggregates: Averages of updates.
        clusters: Who approves whom.
        windows: Parts of the journal, for pages that draw it.
        news: Its end, for those that draw it while it grows.
        shared: What else pages show, of a moment ago.
        alarms: What is odd about updates.
        listeners: Woken by each arrival.
        on_published: Called with what a client published, once it is visible, in order of arrival; in any thread.
        on_decided: Called when members have decided something else than before.
        on_read: Called with what another process has written, once it is visible.

    Raises:
        GenesisError: The store holds no ledger, or a damaged one.
    """

    def __init__(
        self,
        store: Store,
        *,
        key: Ed25519PrivateKey,
        now_ms: Callable[[], int],
        cache_bytes: int,
        recent_selections: int = 128,
        quotas: Quotas | None = None,
    ) -> None:
        self.public_key: PublicKey = public_key_of(key)
        self.on_decided: Callable[[], None] = lambda: None
        super().__init__(store, cache_bytes=cache_bytes, server=self.public_key)
        self._keep_summary()
        self.listeners: Listeners = Listeners()
        self.on_published: Callable[[Transaction, bytes | None], None] = lambda _, __: None
        self.on_read: Callable[[TxId], None] = lambda _: None
        self._pending = PendingSelections(
            store,
            now_ms=now_ms,
            recent=recent_selections,
        )
        self.aggregates: Aggregates = Aggregates(self)
        self.clusters: Clusters = Clusters(self)
        self.windows: Windows = Windows(self)
        self.news: News = News(self.windows.part)
        self.shared: Lately[Any] = Lately()
        self.selections: SelectionService = SelectionService(self, self.aggregates, self._pending, key=key)
        self._key, self._now_ms = key, now_ms
        self._quotas = quotas or Quotas()
        self._append = GroupCommit(self._append_together, fits=_fits)
        self.alarms: ServerAlarms = ServerAlarms(self._author_of)
        self._restore_alarms()

    def _author_of(self, transaction: TxId) -> AuthorId | None:
        with self.lock:
            node = self.ledger.graph.get(transaction)
        return None if node is None or not node.parents else node.author

    def _restore_alarms(self) -> None:
        """Look at the latest updates of the journal."""
        after = max(len(self.ledger) - 1 - RESTORED, 0)  # genesis is nobody's
        while page := self.store.page(after=after, limit=_PAGE):
            self._nodes.read({parent for stored in page for parent in stored.transaction.header.parents})
            for stored in page:
                self.alarms.restore(stored.node, stored.transaction.header)
            after = page[-1].arrival

    # -- what clients publish -----------------------------------------------------------------------

    def publish(
        self,
        publication: Publication,
        model: Buffer,
        *,
        is_coded: bool = False,
        forwarded: ForwardedEvidence | None = None,
        token: str | None = None,
    ) -> PublicationResult:
        """Admit a model as a transaction, durably.

        Args:
            publication: What the client says.
            model: The model's file, or what it differs by from another one (``fl_core.step_coding``).
            is_coded: Whether it is that.
            forwarded: Evidence of the selection, where another server made it.
            token: Id of the bearer token that came with it.

        Raises:
            ModelError, TransactionError, SelectionUnknownError, QuotaExceededError: Refused; nothing has changed.
            BaseUnknownError: The model that it is coded by is not at hand here.
        """
        selection = publication.selection
        record = None if selection is None else self.selections.selection_or_forwarded(selection, forwarded)
        if is_coded:
            self.follow()
            chosen = () if record is None else record.evidence.selection.parents
            self._require_parents(publication.parents or chosen, beside=())  # before a few bytes cost a whole model
            model = self.aggregates.rebuilt(model)
        digest = digest_of(model)
        if publication.claimed_model not in (None, digest):
            raise DigestMismatchError(
                "model_digest is not the SHA-256 of the model that came",
                claimed=publication.claimed_model or "",
                computed=digest,
            )
        vector = check_model(self.genesis.layout, model, max_abs=self.genesis.bounds.max_abs_value)
        facts = ModelFacts(digest, len(model), Figures(model_norm(vector)))
        try:
            draft = self._prepare(publication, facts, record)
        except DagAcflError:
            if not self.follow():  # perhaps it goes on from what another process has just written
                raise
            draft = self._prepare(publication, facts, record)
        if not draft.is_known:
            # Who has shown that it is; a rotation gives no second quota.
            author = self.acts.authors.first(draft.unsigned.header.author)
            self._quotas.check(author, token)  # before anything is averaged
            figures = self._figures(draft.unsigned.header.parents, facts.figures.norm, vector)
            if figures.step is None:
                raise ParentsStaleError("a parent's model is not here any more; ask for a new selection")
            facts = replace(facts, figures=figures)
            with self.lock:  # before a quota is used and anything is stored
                self.ledger.review(draft.unsigned.id, draft.unsigned.header, figures=figures, slack=0.0)
            self._quotas.take(author, token)
            self.store.prepare_model(digest, model)
            attachment = None if record is None else record.encoded

            def issue(_: Collection[TxId]) -> tuple[Transaction, Node] | None:
                nonlocal draft
                draft = self._prepare(publication, facts, record, verified=draft.unsigned.id)
                if draft.is_known:
                    return None
                transaction = draft.unsigned.issue(
                    self._key,
                    author_signature=publication.signature,
                    # A clock that was set back makes nothing old.
                    received_at_ms=max(self._now_ms(), self.ledger.graph.now_ms),
                    members_version=self.acts.effect.members_version,
                )
                return transaction, draft.node.received(transaction.receipt)

            arrival = _Arrival(
                issue=issue,
                author=draft.unsigned.header.author,
                model=model,
                compared=self._compared(vector),
                attachment=attachment,
                figures=facts.figures,
                on_shown=lambda transaction: self.on_published(transaction, attachment),
            )
            with tracing.span("append"):
                stored = self._append(arrival)
                tracing.describe({"transaction": draft.unsigned.id})
            if stored is not None:
                return PublicationResult(self._view_of(replace(stored, depth=draft.node.depth)), created=True)
        return PublicationResult(self.view(draft.unsigned.id), created=False)

    def _figures(
        self, parents: tuple[TxId, ...], norm: float, vector: Vector32 | None, *, beside: Beside | None = None
    ) -> Figures:
        """What is recorded of a model, given the updates that it names; outside the lock, as it may average them.

        Its step is not where the model, None, or a parent's is not here (any more).
        """
        step: Step | None = None
        beside = beside or Beside()
        if vector is not None:
            with suppress(ModelPrunedError, ModelUnknownError, ModelCorruptError):
                average = self.aggregates.vector(parents, beside=beside)
                step = step_from(average, vector, layout=self.genesis.layout)
        with self.lock:
            return Figures(norm, step, self.node.shares(parents, beside=beside.nodes))

    def _prepare(
        self,
        publication: Publication,
        model: ModelFacts,
        record: SelectionRecord | None,
        *,
        verified: TxId | None = None,
    ) -> Draft:
        with self.lock:
            return self.node.prepare(
                publication,
                model,
                evidence=None if record is None else record.evidence,
                now_ms=self._now_ms(),
                verified=verified,
            )

    # -- what peers have admitted -------------------------------------------------------------------

    def admit_received(self, updates: Sequence[Received]) -> list[bool | BaseException]:
        """Admit what peers have admitted, as it stands, in one database transaction; each is judged for itself.

        Args:
            updates: Each once, parents before children.

        Returns:
            Of each whether it is new here, or why it does not come in: a ModelError or TransactionError where a rule
            is broken, ParentsUnknownError where a parent is not here and does not come in itself, a StoreError where
            it could not be stored.
        """
        beside = Beside()
        outcomes: list[bool | BaseException] = []
        arrivals: dict[int, _Arrival] = {}
        with ExitStack() as spans:
            for place, update in enumerate(updates):
                spans.enter_context(tracing.resumed(update.trace))
                outcomes.append(False)
                try:
                    arrival = self._reviewed(update, beside)
                except Exception as error:  # noqa: BLE001 -- whatever it is, it spoils no other
                    outcomes[place] = error
                    continue
                if arrival is not None:
                    spans.enter_context(tracing.span("append", transaction=update.transaction.id))
                    arrivals[place] = arrival
            written = self._append.together([*arrivals.values()]) if arrivals else ()
        for place, outcome in zip(arrivals, written, strict=True):
            outcomes[place] = outcome if isinstance(outcome, BaseException) else outcome is not None
        return outcomes

    def _reviewed(self, update: Received, beside: Beside) -> _Arrival | None:
        """An update that every rule allows, with those beside it, which it joins; None: it is here already.

        Rules of what a peer has admitted ask of nothing that could change until it is written.

        Raises:
            ModelError, TransactionError: A rule is broken.
            ParentsUnknownError: A parent has not come yet.
            StoreError: Its model is not stored.
        """
        transaction, header, model = update.transaction, update.transaction.header, update.model
        vector: Vector32 | None = None
        if model is None:
            check_attachment(header, update.attachment, genesis=self.genesis)
        else:
            vector = check_payload(
                header,
                genesis=self.genesis,
                model=model,
                attachment=update.attachment,
                model_digest=header.model_digest,
            )
        if self.ledger.graph.find(transaction.id, header) is not None:
            return None
        if update.attachment != ARCHIVED:
            check_parents(header, None if update.attachment is None else parse_evidence(update.attachment))
        ledger = self.ledger.beside(beside.nodes)
        self._require_parents(header.parents, beside.nodes)
        together = [parent for parent in header.parents if parent in beside.nodes]
        norm = update.norm if vector is None else model_norm(vector)
        figures = self._figures(header.parents, norm, vector, beside=beside)
        with self.lock:  # before anything is stored
            answer = ledger.review(
                transaction.id,
                header,
                figures=figures,
                receipt=transaction.receipt,
                slack=math.inf if model is None else NORM_SLACK,
            )
        if not isinstance(answer, Admitted):
            return None
        if model is not None:
            self.store.prepare_model(header.model_digest, model)
        beside.nodes[transaction.id] = answer.node
        if vector is not None and header.author not in self.acts.quarantine.erased:
            beside.vectors[header.model_digest] = vector

        def issue(issued: Collection[TxId]) -> tuple[Transaction, Node] | None:
            if self.ledger.graph.find(transaction.id, header) is not None:
                return None
            self._require_parents(together, issued)  # those that were visible still are
            if header.author in self.acts.quarantine.erased:
                arrival.model = arrival.compared = None
            return transaction, answer.node

        arrival = _Arrival(
            issue=issue,
            author=header.author,
            model=model,
            compared=None if vector is None else self._compared(vector),
            attachment=update.attachment,
            figures=figures,
        )
        return arrival

    def _require_parents(self, parents: Sequence[TxId], beside: Container[TxId]) -> None:
        with self.lock:
            missing = tuple(each for each in parents if each not in beside and each not in self.ledger)
        if missing:
            self.store.transactions(missing)  # where the journal cannot be read, that is the reason
            raise ParentsUnknownError("parents are not known here yet", missing=missing)

    # -- what members decide ------------------------------------------------------------------------

    def go_by_acts(self) -> None:
        """See ``LedgerView.go_by_acts``; what is erased goes soon."""
        super().go_by_acts()
        self.on_decided()

    def forget_pruned(self) -> None:
        """See ``LedgerView.forget_pruned``."""
        super().forget_pruned()
        self.selections.forget_vectors()

    # -- durable, then visible ----------------------------------------------------------------------

    def _append_together(self, batch: Sequence[_Arrival]) -> list[StoredTransaction | DagAcflError | None]:
        """Store in one database transaction, and show, all that the rules still allow; one writer at a time.

        Returns:
            Of each, what was stored, None where it was here already, or why it is refused.
        """
        while (outcomes := self._append_unless_changed(batch)) is None:
            self.follow()
        self._keep_summary()
        return outcomes

    def _keep_summary(self) -> None:
        try:
            self.keep_summary()
        except StoreError as error:  # what was published is acknowledged all the same
            logger.warning("the next start takes longer", extra={"reason": str(error)})

    def _append_unless_changed(self, batch: Sequence[_Arrival]) -> list[StoredTransaction | DagAcflError | None] | None:
        """As ``_append_together``; None, and nothing is stored, where acts are new, which are not to be read here:
        who stores acts holds theirs and waits for the writer's lock.
        """
        outcomes: list[StoredTransaction | DagAcflError | None] = []
        stored: list[tuple[_Arrival, StoredTransaction, Node]] = []
        issued: set[TxId] = set()
        nbytes = sum(len(each.model) for each in batch if each.model is not None)
        with ExitStack() as until_shown:
            with self.store.appending(nbytes) as journal:
                if journal.position.changes != self._changes:
                    return None
                self._take_in(journal.position, len(self.ledger))
                arrivals, now_ms = count(len(self.ledger)), self._now_ms()
                for each in batch:
                    try:
                        answer = each.issue(issued)
                    except DagAcflError as error:
                        outcomes.append(error)
                        continue
                    if answer is None:
                        outcomes.append(None)
                        continue
                    transaction, node = answer
                    issued.add(transaction.id)
                    new = StoredTransaction(next(arrivals), transaction, each.figures.encode(), now_ms)
                    outcomes.append(new)
                    stored.append((each, new, node))
                # Who follows the journal would take what is committed for another's, before it is shown here.
                until_shown.enter_context(self._reading_on)
                if stored and not journal.append([self._entry(each, new) for each, new, _ in stored]):
                    raise StoreInconsistentError("the journal moved on beside the writer's lock")
            for each, new, node in stored:
                each.context.run(self._show, new.transaction, node, each)
                each.context.run(each.on_shown, new.transaction)
        return outcomes

    def _seen(self, node: Node, transaction: Transaction) -> None:
        """See ``LedgerView._seen``; or it is of a commit whose answer was lost. Selections read its model."""
        self.alarms.follow(node, transaction.header)
        if transaction.receipt.issuer == self.public_key:
            self._quotas.count(self.acts.authors.first(transaction.header.author))
        self.on_read(node.id)
        self.listeners.wake()

    def _compared(self, vector: Vector32) -> Vector32:
        """What is compared of a model: a copy, as a view would keep the whole model in memory."""
        return self.node.compared(vector).copy()

    def _entry(self, arrival: _Arrival, new: StoredTransaction) -> Entry:
        compared = arrival.compared if self.node.compares_sketches else None
        sketch = None if compared is None else compared.astype("<f4", copy=False).tobytes()
        return Entry(new, arrival.model, arrival.attachment, sketch)

    def _show(self, transaction: Transaction, node: Node, arrival: _Arrival) -> None:
        """Make visible what is stored; every rule was asked before that, with all before it."""
        header, compared = transaction.header, arrival.compared
        within = self.alarms.copied_within(arrival.figures.step)
        found = None if compared is None else self._copied(compared, header.author, within=within)
        with self.lock:
            nearest: tuple[TxId, float] | None = None
            if compared is not None and found is not None:
                # Whose the vector was may have changed while it was looked at: the distance is measured again.
                distance = self.node.distance(compared, found)
                nearest = None if distance is None else (found, distance)
            self.node.restore(node)
            if compared is not None:
                with suppress(StoreUnavailableError):  # it is stored: who asks next is told, or brings it
                    self.node.bring(transaction.id, compared)
            self._entered(node, transaction)
            self.alarms.see(node, header, nearest=nearest)  # before anybody can read of the update
        if compared is not None:
            self.selections.keep_vector(transaction.id, compared)
        if arrival.model is not None:
            self.models.put(header.model_digest, arrival.model)
        self.listeners.wake()

    def _copied(self, compared: Vector32, author: AuthorId, *, within: float) -> TxId | None:
        """Of the models that other authors published last, the nearest that is so near; measured outside the lock."""
        with self.lock:
            latest = self.node.latest()
        near = [] if latest is None else [*latest.near(compared, within=within)]
        with self.lock:  # few are: whose those are costs less than whose all are
            return next((each.id for each in self.node.nodes_of(near) if each.author != author), None)

    def close(self) -> None:
        """End listeners' streams; the store is its opener's to close."""
        self.listeners.close()
