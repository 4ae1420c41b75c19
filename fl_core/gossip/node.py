"""One server's side of gossip: what to ask of whom and when, and what to do with what comes.

Sans I/O: the caller brings the clock, the network, the disk and the ledger's admission, and does what the
returned effects say. Nothing here waits or blocks, and no peer is trusted:

* nothing is kept that was not asked for, and nothing before its size, id and signatures are checked;
* every queue has a bound per peer, so a bad peer costs its own share and nobody else's;
* the ledger decides what is admitted, by the same rules as for a client.

    node = GossipNode(ledger, items, checkpoint=…, peers=[…], blobs=…, check=…, rng=rng, now_s=now_s)
    for effect in node.poll(now_s): …           # at least every 100 ms, and after every call below
    for effect in node.answered(ask, response, now_s): …
    for effect in node.failed(ask, now_s, kind=Failure.TIMEOUT): …
    for effect in node.announced(peer, announcement, now_s): …
    for effect in node.published(announcement, now_s): …    # this server admitted it from a client
    for effect in node.admitted(transaction_id, now_s): …   # in answer to Admit
    for effect in node.refused(transaction_id, now_s, reason="…"): …

Calls must not overlap; the caller holds one lock or owns the node in one thread. Calls are short.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from fl_core.dag.transaction import Transaction
from fl_core.errors import DagAcflError, GossipFrameError, ParentsError, SignatureError, TransactionInvalidError
from fl_core.gossip.auditing import Audit
from fl_core.gossip.checkpoint import Checkpoint
from fl_core.gossip.effects import Admit, Ask, DiscardBlob, Effect, Failure, Incident, KeepCursor, Notice, Tell
from fl_core.gossip.fetching import BlobFetches
from fl_core.gossip.items import ItemSet
from fl_core.gossip.limits import GossipLimits
from fl_core.gossip.messages import (
    MAX_IDS_PER_CALL,
    RESPONSES,
    Announcement,
    BlobComplete,
    BlobCorrupt,
    BlobUnknown,
    CarriedTransaction,
    Changes,
    CheckpointAnswer,
    CursorUnknown,
    GetBlob,
    GetChanges,
    GetCheckpoint,
    GetIds,
    GetTransactions,
    Ids,
    Peer,
    ReconcileAnswer,
    ReconcileFrame,
    Request,
    Response,
    Transactions,
)
from fl_core.gossip.peers import PeerHealth, Rng
from fl_core.gossip.pulling import CursorPull
from fl_core.gossip.waiting import Held, WaitingRoom
from fl_core.gossip.wanting import Wants
from fl_core.ledger import Ledger
from fl_core.types import Digest, TxId, digest_of, is_hex_id

SWEEP_INTERVAL_S: Final = 1.0
"""How often the waiting room is looked through for what has waited too long."""

MUCH_BETTER: Final = 1.0
"""By how much a peer's score must be lower for it to be asked alone for what both have: one broken promise."""

MAX_CURSOR_CHARS: Final = 256


class HeldBlobs(Protocol):
    """What the node must know of the caller's blob store."""

    def is_complete(self, digest: Digest) -> bool:
        """Whether the whole model is here, verified."""
        ...

    def bytes_held(self, digest: Digest) -> int:
        """How many bytes of an incomplete model are here; 0 for none. A fetch goes on from there."""
        ...


@dataclass(slots=True)
class _Known:
    """What is kept of one peer."""

    health: PeerHealth
    pull: CursorPull
    audit: Audit
    has_transactions_asked: bool = False


class GossipNode:
    """See the module's docstring.

    Args:
        ledger: What is here; the node only reads it.
        items: The set of the ledger's ids, genesis included; the node adds what is published and admitted.
        checkpoint: Makes this server's own checkpoint as of now.
        peers: Whom to ask and tell.
        blobs: The caller's blob store.
        check: Raises a ``DagAcflError`` for a transaction whose header or signatures break a rule
            (``check_header`` and ``check_signatures``), before anything of it is kept.
        rng: Jitter of intervals and backoff.
        now_s: The clock as of now.
        cursors: Where to go on with each peer, from ``KeepCursor``.
        relay: Whether to announce what came from a peer to the others: True unless every server is a peer
            of every other.
        limits: Intervals and bounds.
    """

    def __init__(
        self,
        ledger: Ledger,
        items: ItemSet,
        *,
        checkpoint: Callable[[], Checkpoint],
        peers: Sequence[Peer],
        blobs: HeldBlobs,
        check: Callable[[Transaction], None],
        rng: Rng,
        now_s: float,
        cursors: Mapping[Peer, str] | None = None,
        relay: bool = False,
        limits: GossipLimits | None = None,
    ) -> None:
        self._limits = limits = limits or GossipLimits()
        self._ledger, self.items, self._checkpoint = ledger, items, checkpoint
        self._blobs, self._check, self._rng, self._relay = blobs, check, rng, relay
        self._model_size = ledger.genesis.layout.nbytes
        self._peers = {
            peer: _Known(
                PeerHealth(limits, rng),
                CursorPull((cursors or {}).get(peer), limits),
                Audit(items, limits, first_s=now_s + limits.audit_interval_s * rng.random()),
            )
            for peer in peers
        }
        self.wants = Wants(peers, max_per_peer=limits.max_wanted_per_peer, tries=limits.tries_per_source)
        self.waiting = WaitingRoom(
            ledger,
            peers,
            max_orphans=limits.max_orphans,
            max_bytes=limits.max_waiting_bytes,
            lifetime_s=limits.orphan_lifetime_s,
        )
        self.fetches = BlobFetches(limits)
        self._needing: dict[Digest, set[TxId]] = {}
        self._refused: dict[TxId, None] = {}
        self._ready: dict[TxId, None] = {}
        self._admitting: TxId | None = None
        self._resume_s = now_s
        self._in_flight: dict[int, Ask] = {}
        self._asks_made = 0
        self._swept_s = now_s

    # -- what is due ------------------------------------------------------------------------------

    def poll(self, now_s: float) -> list[Effect]:
        """What is due: asks, and what has become of those that nobody answered."""
        effects: list[Effect] = []
        for ask in [ask for ask in self._in_flight.values() if ask.deadline_s < now_s]:
            effects += self.failed(ask, now_s, kind=Failure.TIMEOUT)
        effects += self._sweep(now_s)
        effects += self._next_admission(now_s)
        return [*effects, *self._due_asks(now_s)]

    def _sweep(self, now_s: float) -> list[Effect]:
        """Let go of what has waited for too long."""
        if now_s < self._swept_s + SWEEP_INTERVAL_S:
            return []
        self._swept_s = now_s
        effects: list[Effect] = []
        for orphan in self.waiting.overdue(now_s):
            effects += self._drop(orphan, now_s, why="its parents did not come")
        for peer, known in self._peers.items():
            cursor = known.pull.stalled(now_s, pause_s=self._pause_s(self._limits.pull_interval_s))
            effects += [] if cursor is None else [KeepCursor(peer, cursor)]
        return effects

    def _due_asks(self, now_s: float) -> list[Effect]:
        """The best peers first, so that the others are asked for what is left."""
        effects: list[Effect] = []
        scores = {peer: known.health.score(now_s) for peer, known in self._peers.items() if known.health.can_ask(now_s)}
        for peer in sorted(scores, key=scores.__getitem__):
            better = [other for other, score in scores.items() if score + MUCH_BETTER <= scores[peer]]
            effects += self._asks(peer, now_s, better)
        return effects

    def _asks(self, peer: Peer, now_s: float, better: Collection[Peer]) -> list[Effect]:
        known, deadline_s = self._peers[peer], now_s + self._limits.ask_deadline_s
        effects: list[Effect] = []
        if known.pull.is_due(now_s):
            effects.append(self._ask(peer, known.pull.ask(now_s), deadline_s))
        if known.audit.is_due(now_s):
            effects.append(self._ask(peer, known.audit.ask(), deadline_s))
        if not known.has_transactions_asked:
            ids, notices = self._ids_to_ask(peer, now_s, better)
            effects += notices
            if ids:
                known.has_transactions_asked = True
                effects.append(self._ask(peer, GetTransactions(ids), deadline_s))
        for fetch in self.fetches.take(peer, better=better):
            if self._blobs.is_complete(fetch.digest):
                effects += self._model_came(fetch.digest, now_s)
            else:
                start = self._blobs.bytes_held(fetch.digest)
                request = GetBlob(fetch.digest, start, fetch.size)
                effects.append(self._ask(peer, request, self.fetches.began(fetch, start, now_s)))
        return effects

    def _ask(self, peer: Peer, request: Request, deadline_s: float) -> Ask:
        self._asks_made += 1
        ask = self._in_flight[self._asks_made] = Ask(self._asks_made, peer, request, deadline_s)
        return ask

    def _ids_to_ask(self, peer: Peer, now_s: float, better: Collection[Peer]) -> tuple[tuple[TxId, ...], list[Effect]]:
        known = self._peers[peer]
        limit = min(MAX_IDS_PER_CALL, self.waiting.space(peer))
        if ids := self.wants.take(peer, limit, better=better):
            return ids, []
        # A peer's log lists parents before children, so a pull finds most of what a walk would.
        if not known.pull.is_idle(now_s) or not self.wants.has_parents(peer):
            return (), []
        if known.health.walk_rounds >= self._limits.max_walk_rounds:
            given_up = self.wants.end_walk(peer)
            return (), [Notice(peer, Incident.WALK_ENDED, f"{len(given_up)} parents beyond the bound")]
        known.health.walk_rounds += 1
        return self.wants.take_parents(peer, limit), []

    def _pause_s(self, interval_s: float) -> float:
        return interval_s * (0.75 + 0.5 * self._rng.random())

    # -- what peers say ---------------------------------------------------------------------------

    def announced(self, peer: Peer, announcement: Announcement, now_s: float) -> list[Effect]:
        """A peer says that it holds a transaction."""
        if self.is_banned(peer):
            return []
        self.heard(peer)
        if announcement.model_size != self._model_size:
            return self._invalid(peer, "an announced model has not the size of this ledger's", now_s)
        self._advertised(announcement.id, peer)
        return []

    def heard(self, peer: Peer) -> None:
        """A peer sent an authenticated request: it is reachable again, so backing off ends."""
        if self._peers[peer].health.reached():
            self._peers[peer].pull.hurry()

    def _advertised(self, transaction: TxId, peer: Peer) -> bool:
        """Note who has it. Whether it is still to be settled."""
        if transaction in self._ledger or transaction in self._refused:
            return False
        held = self.waiting.get(transaction)
        if held is None:
            return self.wants.advertised(transaction, peer)
        if peer not in held.sources:
            held.sources.append(peer)
            digest = held.carried.transaction.header.model_digest
            if digest in self.fetches:
                self.fetches.want(digest, self._model_size, sources=[peer])
        return True

    def answered(self, ask: Ask, response: Response, now_s: float) -> list[Effect]:
        """A peer's answer. One that comes too late, or for another ask, changes nothing."""
        if ask.number not in self._in_flight:
            return []
        if not isinstance(response, RESPONSES[type(ask.request)]) or not _is_well_formed(ask.request, response):
            return self.failed(ask, now_s, kind=Failure.MALFORMED)
        del self._in_flight[ask.number]
        self.heard(ask.peer)
        match ask.request:
            case GetTransactions(ids):
                assert isinstance(response, Transactions), "RESPONSES pairs them"
                self._peers[ask.peer].has_transactions_asked = False
                return self._transactions_came(ask.peer, ids, response, now_s)
            case GetBlob(digest):
                assert isinstance(response, BlobComplete | BlobUnknown | BlobCorrupt), "RESPONSES pairs them"
                return self._blob_ended(ask.peer, digest, response, now_s)
            case _:
                return self._survey_answered(ask.peer, response, now_s)

    def _survey_answered(self, peer: Peer, response: Response, now_s: float) -> list[Effect]:
        """An answer that says what the peer holds."""
        match response:
            case Changes():
                return self._page_came(peer, response, now_s)
            case CursorUnknown():
                self._peers[peer].pull.restart()
            case CheckpointAnswer(checkpoint):
                return self._checkpoint_came(peer, checkpoint, now_s)
            case Ids():
                self._ids_came(peer, response, now_s)
            case ReconcileAnswer(frame):
                return self._frame_came(peer, frame, now_s)
        return []

    def failed(self, ask: Ask, now_s: float, *, kind: Failure) -> list[Effect]:
        """An ask has no answer."""
        if self._in_flight.pop(ask.number, None) is None:
            return []
        known = self._peers[ask.peer]
        known.health.failed(now_s)
        pause_s = self._pause_s(self._limits.pull_interval_s)
        effects: list[Effect] = []
        match ask.request:
            case GetChanges():
                known.pull.failed(now_s, pause_s=pause_s)
            case GetTransactions(ids):
                known.has_transactions_asked = False
                effects += self._not_served(ask.peer, ids, now_s, kind=kind)
            case GetBlob(digest):
                effects += self._blob_failed(ask.peer, digest, now_s, kind=kind)
            case GetCheckpoint() | GetIds() | ReconcileFrame():
                known.audit.end(now_s, pause_s=pause_s)
        if kind is Failure.MALFORMED:
            effects += self._invalid(ask.peer, f"a malformed answer to {type(ask.request).__name__}", now_s)
        return effects

    # -- pulls and audits -------------------------------------------------------------------------

    def _page_came(self, peer: Peer, page: Changes, now_s: float) -> list[Effect]:
        open_ids = [transaction for transaction in page.ids if self._advertised(transaction, peer)]
        pause_s = self._pause_s(self._limits.pull_interval_s)
        cursor = self._peers[peer].pull.came(page, open_ids, now_s, pause_s=pause_s)
        return [] if cursor is None else [KeepCursor(peer, cursor)]

    def _settled(self, transaction: TxId, now_s: float, *, dropped: bool) -> list[Effect]:
        """An id needs nothing more, or nothing for now: forget it, and move the cursors that waited for it."""
        self.wants.settled(transaction)
        effects: list[Effect] = []
        for peer, known in self._peers.items():
            pause_s = self._pause_s(self._limits.pull_interval_s)
            cursor = known.pull.settled(transaction, now_s, pause_s=pause_s, dropped=dropped)
            if cursor is not None:
                effects.append(KeepCursor(peer, cursor))
        return effects

    def _checkpoint_came(self, peer: Peer, theirs: Checkpoint, now_s: float) -> list[Effect]:
        known = self._peers[peer]
        effects: list[Effect] = []
        if known.health.showed(theirs):
            effects.append(Notice(peer, Incident.ROLLED_BACK, f"it showed more than {theirs.count} before"))
        if not known.pull.is_idle(now_s):
            # What is being pulled would be found again.
            known.audit.end(now_s, pause_s=self._pause_s(self._limits.pull_interval_s))
        elif known.audit.compare(self._checkpoint(), theirs):
            known.health.walk_rounds = 0
            known.audit.end(now_s, pause_s=self._pause_s(self._limits.audit_interval_s))
        else:
            effects.append(Notice(peer, Incident.DIFFERS, f"{theirs.count} there, {len(self._ledger)} here"))
        return effects

    def _ids_came(self, peer: Peer, page: Ids, now_s: float) -> None:
        audit = self._peers[peer].audit
        if not audit.listed(page):
            audit.end(now_s, pause_s=self._pause_s(self._limits.audit_interval_s))
        for transaction in page.ids:
            self._advertised(transaction, peer)

    def _frame_came(self, peer: Peer, frame: bytes, now_s: float) -> list[Effect]:
        audit = self._peers[peer].audit
        try:
            lacking = audit.reconciled(frame)
        except GossipFrameError as error:
            audit.end(now_s, pause_s=self._pause_s(self._limits.audit_interval_s))
            return self._invalid(peer, str(error), now_s)
        if lacking is not None:
            audit.end(now_s, pause_s=self._pause_s(self._limits.audit_interval_s))
            for transaction in lacking:
                self._advertised(transaction, peer)
        return []

    # -- transactions -----------------------------------------------------------------------------

    def _transactions_came(
        self, peer: Peer, asked: tuple[TxId, ...], answer: Transactions, now_s: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        remaining = dict.fromkeys(asked)
        for carried in answer.found:
            if carried.transaction.id in remaining:
                del remaining[carried.transaction.id]
                effects += self._take_in(carried, peer, now_s)
            else:
                effects += self._invalid(peer, "a transaction that was not asked for", now_s)
            if self.is_banned(peer):
                return effects
        for transaction in answer.unknown:
            if transaction in remaining:
                del remaining[transaction]
                self._peers[peer].health.unserved(now_s)
                effects.append(Notice(peer, Incident.UNSERVED, f"transaction {transaction[:16]}… advertised"))
                effects += self._no_source(transaction, peer, now_s, for_good=True)
        if answer.found or answer.unknown:
            self.wants.put_back(remaining, peer)
        else:
            effects += self._not_served(peer, asked, now_s, kind=Failure.REFUSED)
        return effects

    def _not_served(self, peer: Peer, ids: tuple[TxId, ...], now_s: float, *, kind: Failure) -> list[Effect]:
        if kind is Failure.UNREACHABLE:
            self.wants.put_back(ids, peer)
            return []
        self._peers[peer].health.unserved(now_s)
        effects: list[Effect] = [Notice(peer, Incident.UNSERVED, f"{len(ids)} transactions, {kind.value}")]
        for transaction in ids:
            effects += self._no_source(transaction, peer, now_s, for_good=False)
        return effects

    def _no_source(self, transaction: TxId, peer: Peer, now_s: float, *, for_good: bool) -> list[Effect]:
        """A peer is no source for an id; the next is asked, and without one the id is given up for now."""
        if self.wants.not_served(transaction, peer, for_good=for_good):
            return self._settled(transaction, now_s, dropped=True)
        return []

    def _take_in(self, carried: CarriedTransaction, peer: Peer, now_s: float) -> list[Effect]:
        """A transaction that was asked for: check it, then let it wait for what it lacks."""
        transaction = carried.transaction.id
        if transaction in self._ledger or transaction in self.waiting or transaction in self._refused:
            self.wants.settled(transaction)
            return []
        try:
            self._check_carried(carried)
        except SignatureError as error:
            # Signatures are not part of the identity: another peer's copy may be sound.
            return self._bad_copy(transaction, peer, str(error), now_s)
        except DagAcflError as error:
            return [*self._invalid(peer, str(error), now_s), *self._never(transaction, now_s)]
        if _has_foreign_attachment(carried):
            return self._bad_copy(transaction, peer, "its attachment is not the one that it names", now_s)
        sources, tries = self.wants.sources(transaction), self.wants.tries(transaction, peer)
        added = self.waiting.add(carried, from_peer=peer, sources=sources, now_s=now_s, tries=tries)
        if added is None:
            notice = Notice(peer, Incident.DROPPED, f"no room for {transaction[:16]}…")
            return [notice, *self._no_source(transaction, peer, now_s, for_good=False)]
        grounded, evicted = added
        self.wants.settled(transaction)
        self._seek_parents(transaction, peer)
        effects = self._fetch_models(grounded, now_s)
        for held in evicted:
            effects += self._evicted(held, now_s)
        return effects

    def _evicted(self, held: Held, now_s: float) -> list[Effect]:
        """An orphan made room for another of its sender's: it is asked for again later, a few times."""
        listed = self.wants.advertised(held.id, held.from_peer, tries=held.tries + 1)
        for peer in held.sources[1:]:
            listed |= self.wants.advertised(held.id, peer)
        for child in self.waiting.waits_for(held.id):
            listed |= child.from_peer != held.from_peer and self.wants.walk_to(held.id, child.from_peer)
        return [] if listed else self._settled(held.id, now_s, dropped=True)

    def _check_carried(self, carried: CarriedTransaction) -> None:
        sizes = (len(carried.transaction.header_bytes), len(carried.attachment or b""))
        if sizes[0] > self._limits.max_header_bytes or sizes[1] > self._limits.max_attachment_bytes:
            raise TransactionInvalidError(f"{sizes[0]} bytes of header, {sizes[1]} of attachment: too large")
        self._check(carried.transaction)
        if refused := [parent for parent in carried.transaction.header.parents if parent in self._refused]:
            raise ParentsError(f"its parent {refused[0][:16]}… is refused here")

    def _bad_copy(self, transaction: TxId, peer: Peer, why: str, now_s: float) -> list[Effect]:
        effects = self._no_source(transaction, peer, now_s, for_good=True)
        return [*effects, *self._invalid(peer, why, now_s)]

    def _seek_parents(self, transaction: TxId, peer: Peer) -> None:
        held = self.waiting.get(transaction)
        assert held is not None, "it has just come in"
        for parent in self.waiting.missing_parents(held):
            if self.wants.walk_to(parent, peer):
                self._peers[peer].pull.hurry()

    # -- models -----------------------------------------------------------------------------------

    def _fetch_models(self, grounded: Sequence[Held], now_s: float) -> list[Effect]:
        for held in grounded:
            digest = held.carried.transaction.header.model_digest
            self._needing.setdefault(digest, set()).add(held.id)
            if self._blobs.is_complete(digest):
                self._has_model(held)
            else:
                self.fetches.want(digest, self._model_size, sources=held.sources)
        return self._next_admission(now_s)

    def _has_model(self, held: Held) -> None:
        held.model_is_here = True
        if held.is_free:
            self._ready[held.id] = None

    def _model_came(self, digest: Digest, now_s: float) -> list[Effect]:
        self.fetches.end(digest)
        for transaction in sorted(self._needing.get(digest, ())):
            held = self.waiting.get(transaction)
            if held is not None:
                self._has_model(held)
        return self._next_admission(now_s)

    def blob_progress(self, ask: Ask, now_s: float) -> Ask | None:
        """More bytes of a ``GetBlob`` came: the ask with its new deadline; None when they are not wanted any more."""
        if ask.number not in self._in_flight or not isinstance(ask.request, GetBlob):
            return None
        deadline_s = self.fetches.progressed(ask.request.digest, ask.peer, now_s)
        if deadline_s is None:
            return None
        moved = self._in_flight[ask.number] = replace(ask, deadline_s=deadline_s)
        return moved

    def _blob_ended(
        self, peer: Peer, digest: Digest, end: BlobComplete | BlobUnknown | BlobCorrupt, now_s: float
    ) -> list[Effect]:
        match end:
            case BlobComplete():
                return self._model_came(digest, now_s)
            case BlobUnknown(pruned):
                effects: list[Effect] = []
                if not pruned:
                    self._peers[peer].health.unserved(now_s)
                    effects.append(Notice(peer, Incident.UNSERVED, f"model {digest[:16]}… advertised"))
                return [*effects, *self._no_blob_source(digest, peer, now_s, for_good=True)]
            case BlobCorrupt():
                is_to_blame = self.fetches.corrupt(digest, peer)
                effects = self._no_blob_source(digest, peer, now_s, for_good=is_to_blame)
                if is_to_blame:
                    effects += self._invalid(peer, f"model {digest[:16]}… does not hash to its digest", now_s)
                return effects

    def _blob_failed(self, peer: Peer, digest: Digest, now_s: float, *, kind: Failure) -> list[Effect]:
        if kind is Failure.UNREACHABLE:
            self.fetches.interrupted(digest, peer)
            return []
        self._peers[peer].health.unserved(now_s)
        notice = Notice(peer, Incident.UNSERVED, f"model {digest[:16]}…, {kind.value}")
        return [notice, *self._no_blob_source(digest, peer, now_s, for_good=False)]

    def _no_blob_source(self, digest: Digest, peer: Peer, now_s: float, *, for_good: bool) -> list[Effect]:
        if not self.fetches.not_delivered(digest, peer, for_good=for_good):
            return []
        return self._give_up_model(digest, now_s)

    def _give_up_model(self, digest: Digest, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        for transaction in sorted(self._needing.get(digest, ())):
            effects += self._drop(transaction, now_s, why="nobody serves its model")
        return effects

    # -- the ledger's side ------------------------------------------------------------------------

    def published(self, announcement: Announcement, now_s: float) -> list[Effect]:
        """This server made a client's transaction visible."""
        effects = self._entered(announcement.id, now_s)
        return [*effects, *self._tells(announcement, besides=())]

    def admitted(self, transaction: TxId, now_s: float) -> list[Effect]:
        """The ``Admit`` is done: the transaction is durable and visible (or was here before)."""
        self._finish_admission(transaction)
        held = self.waiting.get(transaction)
        effects: list[Effect] = []
        if held is not None:
            self._peers[held.from_peer].health.walk_rounds = 0
            if self._relay:
                effects += self._tells(Announcement.of(held.carried.transaction), besides=held.sources)
        return [*self._entered(transaction, now_s), *effects, *self._next_admission(now_s)]

    def refused(self, transaction: TxId, now_s: float, *, reason: str) -> list[Effect]:
        """The ``Admit`` broke a rule of the ledger: never ask for it again, and hold it against the peer."""
        self._finish_admission(transaction)
        held = self.waiting.get(transaction)
        effects: list[Effect] = [] if held is None else self._invalid(held.from_peer, reason, now_s)
        return [*effects, *self._never(transaction, now_s), *self._next_admission(now_s)]

    def deferred(self, transaction: TxId, now_s: float) -> list[Effect]:
        """The ``Admit`` failed for this server's own reasons (a full disk): nobody's fault, tried again later."""
        self._finish_admission(transaction)
        self._resume_s = now_s + self._limits.pull_interval_s
        if transaction in self.waiting:
            self._ready = {transaction: None, **self._ready}
        return []

    def is_banned(self, peer: Peer) -> bool:
        """Whether the peer's requests and announcements are to be refused too."""
        return self._peers[peer].health.is_banned

    def _next_admission(self, now_s: float) -> list[Effect]:
        while self._admitting is None and self._ready and now_s >= self._resume_s:
            transaction = next(iter(self._ready))
            del self._ready[transaction]
            held = self.waiting.get(transaction)
            if held is not None:
                self._admitting = transaction
                return [Admit(held.carried, held.from_peer)]
        return []

    def _finish_admission(self, transaction: TxId) -> None:
        if self._admitting == transaction:
            self._admitting = None

    def _entered(self, transaction: TxId, now_s: float) -> list[Effect]:
        """It is in the ledger, from wherever it came."""
        node = self._ledger.graph.get(transaction)
        assert node is not None, "admitted and published mean that the ledger holds it"
        if (node.depth, transaction) not in self.items:
            self.items.add(node.depth, transaction)
        effects = self._settled(transaction, now_s, dropped=False)
        if (held := self.waiting.get(transaction)) is not None:
            # A client may have published here what was still being fetched.
            effects += self._needs_no_more(held, discard=not held.model_is_here)
        grounded, freed = self.waiting.entered_ledger(transaction)
        effects += self._fetch_models(grounded, now_s)
        for child in freed:
            if child.model_is_here:
                self._ready[child.id] = None
        return [*effects, *self._next_admission(now_s)]

    def _tells(self, announcement: Announcement, *, besides: Sequence[Peer]) -> list[Effect]:
        return [
            Tell(peer, announcement)
            for peer, known in self._peers.items()
            if peer not in besides and not known.health.is_banned and not known.health.is_failing
        ]

    def _needs_no_more(self, held: Held, *, discard: bool) -> list[Effect]:
        """A transaction left the waiting room: its model is not needed for it."""
        digest = held.carried.transaction.header.model_digest
        needing = self._needing.get(digest)
        if needing is None:
            return []
        needing.discard(held.id)
        if needing:
            return []
        del self._needing[digest]
        self.fetches.end(digest)
        return [DiscardBlob(digest)] if discard else []

    def _drop(self, transaction: TxId, now_s: float, *, why: str) -> list[Effect]:
        """Give up a transaction and its descendants for now; a later page or audit may bring them again."""
        effects: list[Effect] = []
        for held in self.waiting.drop(transaction):
            effects.append(Notice(held.from_peer, Incident.DROPPED, f"{held.id[:16]}…: {why}"))
            effects += self._needs_no_more(held, discard=True)
            effects += self._settled(held.id, now_s, dropped=True)
        return effects

    def _never(self, transaction: TxId, now_s: float) -> list[Effect]:
        """Refuse a transaction and its descendants for good: their bytes break a rule, whoever sends them."""
        effects: list[Effect] = []
        doomed = self.waiting.drop(transaction)
        for held in doomed:
            effects += self._needs_no_more(held, discard=True)
        for identity in dict.fromkeys([transaction, *(held.id for held in doomed)]):
            self._refused[identity] = None
            if len(self._refused) > self._limits.max_refused:
                del self._refused[next(iter(self._refused))]
            effects += self._settled(identity, now_s, dropped=False)
        return effects

    def _invalid(self, peer: Peer, detail: str, now_s: float) -> list[Effect]:
        is_ban = self._peers[peer].health.invalid()
        effects: list[Effect] = [Notice(peer, Incident.INVALID, detail)]
        return [*effects, *self._ban(peer, now_s)] if is_ban else effects

    def _ban(self, peer: Peer, now_s: float) -> list[Effect]:
        """Nothing more from this peer, and nothing of what it brought and nobody else vouches for."""
        effects: list[Effect] = [Notice(peer, Incident.BANNED, f"{self._limits.banned_after} invalid messages")]
        self._in_flight = {number: ask for number, ask in self._in_flight.items() if ask.peer != peer}
        for transaction in self.wants.forget_peer(peer):
            effects += self._settled(transaction, now_s, dropped=True)
        for digest in self.fetches.forget_peer(peer):
            effects += self._give_up_model(digest, now_s)
        for transaction in self.waiting.from_peer(peer):
            if transaction != self._admitting:
                effects += self._drop(transaction, now_s, why="its sender is banned")
        return effects


def _is_well_formed(request: Request, response: Response) -> bool:
    """Whether an answer keeps to the request's bounds."""
    match request, response:
        case GetChanges(after, limit), Changes(ids, following, more):
            stands_still = more and following == after
            return len(ids) <= limit and len(following) <= MAX_CURSOR_CHARS and not stands_still and _are_ids(ids)
        case GetIds(_, limit), Ids(ids, _):
            return len(ids) <= limit and _are_ids(ids)
        case GetTransactions(ids), Transactions(found, unknown):
            return len(found) <= len(ids) and len(unknown) <= len(ids)
        case _:
            return True


def _are_ids(ids: tuple[TxId, ...]) -> bool:
    return all(map(is_hex_id, ids))


def _has_foreign_attachment(carried: CarriedTransaction) -> bool:
    if carried.attachment is None:
        return carried.lacks_attachment
    return digest_of(carried.attachment) != carried.transaction.header.attachment_digest
