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
    for effect in node.deferred(transaction_id, now_s): …   # the disk is full
    for effect in node.model_gone(transaction_id, now_s): … # its model is not in the blob store after all

Calls must not overlap; the caller holds one lock or owns the node in one thread. Calls are short.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fl_core.dag.transaction import Transaction
from fl_core.errors import GossipFrameError
from fl_core.ledger import Ledger
from fl_core.sync.checkpoint import Checkpoint
from fl_core.sync.effects import Ask, Effect, Failure, Incident, KeepCursor, Notice, Tell
from fl_core.sync.intake import HeldBlobs, Intake
from fl_core.sync.items import ItemSet
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    RESPONSES,
    Announcement,
    BlobComplete,
    BlobCorrupt,
    BlobUnknown,
    Changes,
    CheckpointAnswer,
    CursorUnknown,
    GetBlob,
    GetChanges,
    GetCheckpoint,
    GetTransactions,
    Peer,
    ReconcileAnswer,
    ReconcileFrame,
    Request,
    Response,
    Transactions,
)
from fl_core.sync.peers import Rng
from fl_core.sync.roster import Roster
from fl_core.types import Digest, TxId, is_hex_id

SWEEP_INTERVAL_S: Final = 1.0
"""How often it is looked through for what has waited too long."""

MUCH_BETTER: Final = 1.0
"""By how much a peer's score must be lower for it to be asked alone for what both have: one broken promise."""

MAX_CURSOR_CHARS: Final = 256


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
        self._ledger, self._items, self._checkpoint, self._relay = ledger, items, checkpoint, relay
        self._model_size = ledger.genesis.layout.nbytes
        self._roster = Roster(peers, items, rng=rng, now_s=now_s, cursors=cursors or {}, limits=limits)
        self.intake = Intake(ledger, self._roster, blobs=blobs, check=check, now_s=now_s, limits=limits)
        self._in_flight: dict[int, Ask] = {}
        self._asks_made = 0
        self._swept_s = now_s

    # -- what is due ------------------------------------------------------------------------------

    def poll(self, now_s: float) -> list[Effect]:
        """What is due: asks, and what has become of those that nobody answered."""
        effects: list[Effect] = []
        for ask in [ask for ask in self._in_flight.values() if ask.deadline_s < now_s]:
            effects += self._failed(ask, now_s, kind=Failure.TIMEOUT)
        if now_s >= self._swept_s + SWEEP_INTERVAL_S:
            self._swept_s = now_s
            effects += [*self.intake.drop_overdue(now_s), *self._roster.let_go_of_stalled_pages(now_s)]
        effects += self.intake.next_admission(now_s)
        effects = self._with_bans(effects, now_s)
        scores = self._roster.scores(now_s)
        for peer, score in scores.items():
            better = [other for other, others_score in scores.items() if others_score + MUCH_BETTER <= score]
            effects += self._asks(peer, now_s, better)
        return effects

    def _asks(self, peer: Peer, now_s: float, better: Collection[Peer]) -> list[Effect]:
        known, deadline_s = self._roster[peer], now_s + self._limits.ask_deadline_s
        effects: list[Effect] = []
        if known.pull.is_due(now_s):
            effects.append(self._ask(peer, known.pull.ask(now_s), deadline_s))
        if known.audit.is_due(now_s, is_drained=self.intake.wants.is_drained(peer)):
            effects.append(self._ask(peer, known.audit.ask(), deadline_s))
        if not known.has_transactions_asked:
            ids, notices = self.intake.ids_to_ask(peer, now_s, better=better)
            effects += notices
            if ids:
                known.has_transactions_asked = True
                effects.append(self._ask(peer, GetTransactions(ids), deadline_s))
        requests, others = self.intake.blobs_to_ask(peer, now_s, better=better)
        return [*effects, *others, *(self._ask(peer, request, until_s) for request, until_s in requests)]

    def _ask(self, peer: Peer, request: Request, deadline_s: float) -> Ask:
        self._asks_made += 1
        ask = self._in_flight[self._asks_made] = Ask(self._asks_made, peer, request, deadline_s)
        return ask

    # -- what peers say ---------------------------------------------------------------------------

    def announced(self, peer: Peer, announcement: Announcement, now_s: float) -> list[Effect]:
        """A peer says that it holds a transaction."""
        if self.is_banned(peer):
            return []
        self._roster.heard(peer)
        if announcement.model_size != self._model_size:
            wrong = "an announced model has not the size of this ledger's"
            return self._with_bans(self._roster.invalid(peer, wrong), now_s)
        self.intake.advertised(announcement.id, peer)
        return []

    def heard(self, peer: Peer) -> None:
        """A peer sent an authenticated request: it is reachable again, so backing off ends."""
        self._roster.heard(peer)

    def is_banned(self, peer: Peer) -> bool:
        """Whether the peer's requests and announcements are to be refused too."""
        return self._roster[peer].health.is_banned

    def answered(self, ask: Ask, response: Response, now_s: float) -> list[Effect]:
        """A peer's answer. One that comes too late, or for another ask, changes nothing."""
        if ask.number not in self._in_flight:
            return []
        if not isinstance(response, RESPONSES[type(ask.request)]) or not _is_well_formed(ask.request, response):
            return self.failed(ask, now_s, kind=Failure.MALFORMED)
        del self._in_flight[ask.number]
        self._roster.heard(ask.peer)
        match ask.request:
            case GetTransactions(ids):
                assert isinstance(response, Transactions), "RESPONSES pairs them"
                self._roster[ask.peer].has_transactions_asked = False
                effects = self.intake.came(ask.peer, ids, response, now_s)
            case GetBlob(digest):
                assert isinstance(response, BlobComplete | BlobUnknown | BlobCorrupt), "RESPONSES pairs them"
                effects = self.intake.blob_ended(ask.peer, digest, response, now_s)
            case _:
                effects = self._survey_answered(ask.peer, response, now_s)
        return self._with_bans(effects, now_s)

    def failed(self, ask: Ask, now_s: float, *, kind: Failure) -> list[Effect]:
        """An ask has no answer."""
        return self._with_bans(self._failed(ask, now_s, kind=kind), now_s)

    def _failed(self, ask: Ask, now_s: float, *, kind: Failure) -> list[Effect]:
        if self._in_flight.pop(ask.number, None) is None:
            return []
        known = self._roster[ask.peer]
        known.health.failed(now_s)
        pause_s = self._roster.pause_s(self._limits.pull_interval_s)
        effects: list[Effect] = []
        match ask.request:
            case GetChanges():
                known.pull.failed(now_s, pause_s=pause_s)
            case GetTransactions(ids):
                known.has_transactions_asked = False
                effects += self.intake.not_served(ask.peer, ids, now_s, kind=kind)
            case GetBlob(digest):
                effects += self.intake.blob_failed(ask.peer, digest, now_s, kind=kind)
            case GetCheckpoint() | ReconcileFrame():
                known.audit.end(now_s, pause_s=pause_s)
        if kind is Failure.MALFORMED:
            effects += self._roster.invalid(ask.peer, f"a malformed answer to {type(ask.request).__name__}")
        return effects

    def blob_progress(self, ask: Ask, now_s: float) -> Ask | None:
        """More bytes of a ``GetBlob`` came: the ask with its new deadline; None when they are not wanted any more."""
        if ask.number not in self._in_flight or not isinstance(ask.request, GetBlob):
            return None
        deadline_s = self.intake.fetches.progressed(ask.request.digest, ask.peer, now_s)
        if deadline_s is None:
            return None
        moved = self._in_flight[ask.number] = replace(ask, deadline_s=deadline_s)
        return moved

    def _with_bans(self, effects: list[Effect], now_s: float) -> list[Effect]:
        """What follows from the bans that an event brought about."""
        for peer in self._roster.take_banned():
            self._in_flight = {number: ask for number, ask in self._in_flight.items() if ask.peer != peer}
            effects = [*effects, *self.intake.forget_peer(peer, now_s)]
        return effects

    # -- pulls and audits -------------------------------------------------------------------------

    def _survey_answered(self, peer: Peer, response: Response, now_s: float) -> list[Effect]:
        """An answer that says what the peer holds."""
        match response:
            case Changes():
                return self._page_came(peer, response, now_s)
            case CursorUnknown():
                self._roster[peer].pull.restart()
            case CheckpointAnswer(checkpoint):
                return self._checkpoint_came(peer, checkpoint, now_s)
            case ReconcileAnswer(frame):
                return self._frame_came(peer, frame, now_s)
        return []

    def _page_came(self, peer: Peer, page: Changes, now_s: float) -> list[Effect]:
        open_ids = [transaction for transaction in page.ids if self.intake.advertised(transaction, peer)]
        pause_s = self._roster.pause_s(self._limits.pull_interval_s)
        cursor = self._roster[peer].pull.came(page, open_ids, now_s, pause_s=pause_s)
        return [] if cursor is None else [KeepCursor(peer, cursor)]

    def _checkpoint_came(self, peer: Peer, theirs: Checkpoint, now_s: float) -> list[Effect]:
        known = self._roster[peer]
        effects: list[Effect] = []
        if known.health.showed(theirs):
            effects.append(Notice(peer, Incident.ROLLED_BACK, f"{theirs.count} transactions, more before"))
        if not known.pull.is_settled(now_s):
            # What is being pulled would be found again.
            known.audit.end(now_s, pause_s=self._roster.pause_s(self._limits.pull_interval_s))
        elif known.audit.compare(self._checkpoint(), theirs):
            known.health.walk_rounds = 0
            self._end_audit(peer, now_s)
        else:
            effects.append(Notice(peer, Incident.DIFFERS, f"{theirs.count} there, {len(self._ledger)} here"))
        return effects

    def _frame_came(self, peer: Peer, frame: bytes, now_s: float) -> list[Effect]:
        try:
            lacking = self._roster[peer].audit.reconciled(frame)
        except GossipFrameError as error:
            self._end_audit(peer, now_s)
            return self._roster.invalid(peer, str(error))
        if lacking is not None:
            self._end_audit(peer, now_s)
            for transaction in lacking:
                self.intake.advertised(transaction, peer)
        return []

    def _end_audit(self, peer: Peer, now_s: float) -> None:
        self._roster[peer].audit.end(now_s, pause_s=self._roster.pause_s(self._limits.audit_interval_s))

    # -- the ledger's side ------------------------------------------------------------------------

    def published(self, announcement: Announcement, now_s: float) -> list[Effect]:
        """This server made a client's transaction visible."""
        return [*self._entered(announcement.id, now_s), *self._tells(announcement, besides=())]

    def admitted(self, transaction: TxId, now_s: float) -> list[Effect]:
        """The ``Admit`` is done: the transaction is durable and visible (or was here before)."""
        held = self.intake.admission_ended(transaction)
        tells: list[Effect] = []
        if held is not None:
            self._roster[held.from_peer].health.walk_rounds = 0
            for peer in held.sources:
                self._roster[peer].audit.gained()
            if self._relay:
                tells = self._tells(Announcement.of(held.carried.transaction), besides=held.sources)
        return [*self._entered(transaction, now_s), *tells]

    def refused(self, transaction: TxId, now_s: float, *, reason: str) -> list[Effect]:
        """The ``Admit`` broke a rule of the ledger: never ask for it again, and hold it against the peer."""
        return self._with_bans(self.intake.refused(transaction, now_s, reason=reason), now_s)

    def deferred(self, transaction: TxId, now_s: float) -> list[Effect]:
        """The ``Admit`` failed for this server's own reasons (a full disk): nobody's fault, tried again later."""
        self.intake.deferred(transaction, now_s)
        return []

    def model_gone(self, transaction: TxId, now_s: float) -> list[Effect]:
        """The ``Admit``'s model is not in the blob store after all: it is fetched again, and others go on meanwhile."""
        return self.intake.model_gone(transaction, now_s)

    def needs_model(self, digest: Digest) -> bool:
        """Whether a transaction that waits has this model: it stays in the blob store until ``DiscardBlob``."""
        return self.intake.needs_model(digest)

    def _entered(self, transaction: TxId, now_s: float) -> list[Effect]:
        node = self._ledger.graph.get(transaction)
        assert node is not None, "admitted and published mean that the ledger holds it"
        self._items.add(node.depth, transaction)
        return self.intake.entered(transaction, now_s)

    def _tells(self, announcement: Announcement, *, besides: Sequence[Peer]) -> list[Effect]:
        return [Tell(peer, announcement) for peer in self._roster.to_tell(besides)]


def _is_well_formed(request: Request, response: Response) -> bool:
    """Whether an answer keeps to the request's bounds."""
    match request, response:
        case GetChanges(after, limit), Changes(ids, following, more):
            stands_still = more and following == after
            return len(ids) <= limit and len(following) <= MAX_CURSOR_CHARS and not stands_still and _are_ids(ids)
        case GetTransactions(ids), Transactions(found, unknown):
            return len(found) <= len(ids) and len(unknown) <= len(ids)
        case _:
            return True


def _are_ids(ids: tuple[TxId, ...]) -> bool:
    return all(map(is_hex_id, ids))
