"""One server's side of gossip: what to ask of whom and when, and what to do with what comes.

Sans I/O: the caller brings the clock, the network, the disk and the ledger's admission, and does what the returned
effects say. Nothing here waits or blocks, and no peer is trusted: nothing is kept before its size, id and signatures
are checked, every queue has a bound per peer, and the ledger admits by the same rules as for a client.

    node = GossipNode(ledger, items, summary=…, peers=[…], models=…, check=…, rng=rng, now_s=now_s)
    for effect in node.poll(now_s): …           # at least every 100 ms, and after every call below
    for effect in node.announced(peer, announcement, now_s): …
    for effect in node.answered(request, response, now_s): …
    for effect in node.failed(request, now_s, kind=Failure.TIMEOUT): …
    for effect in node.published(bundle, now_s): …          # this server admitted it from a client
    for effect in node.admitted(transaction_id, now_s): …   # in answer to an Admit (or read in the journal); or:
    for effect in node.refused(transaction_id, now_s, reason="…"): …
    node.deferred(transaction_id, now_s)                    # the disk is full
    node.model_lost(transaction_id)                         # its model cannot be read
    for effect in node.acts_kept(): …                       # members' acts are new here
    node.joined(peer, now_s)                                # there is one more peer, or
    for effect in node.left(peer, now_s): …                 # one less

There are two ways to catch up: pages of a peer's journal (every ``pull_interval_s``), and the comparison of whole
ledgers (every ``comparison_interval_s``), which finds what cursors missed. Missing parents are asked for by id. Where
every peer has pruned a model, a checkpoint of one of them stands for it (``fl_core.joining``).

Calls must not overlap; the caller holds one lock or owns the node in one thread. Calls are short.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from fl_core.dag.acts import SignedAct
from fl_core.dag.transaction import Transaction
from fl_core.errors import ActInvalidError, DagAcflError, GossipFrameError
from fl_core.joining import ServedCheckpoint
from fl_core.ledger import Ledger
from fl_core.sync.act_set import ActSet
from fl_core.sync.effects import Announce, Effect, Failure, Incident, KeepActs, LogIncident, SaveCursor, SendRequest
from fl_core.sync.inbound import Inbound, IncomingModels
from fl_core.sync.items import ItemSet
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    RESPONSES,
    Acts,
    Announcement,
    Changes,
    CheckpointAnswer,
    CursorUnknown,
    GetActs,
    GetChanges,
    GetCheckpoint,
    GetModel,
    GetSummary,
    GetTransactions,
    ModelComplete,
    ModelCorrupt,
    ModelUnknown,
    Peer,
    ReconcileAnswer,
    ReconcileFrame,
    Request,
    Response,
    SummaryAnswer,
    TransactionBundle,
    Transactions,
)
from fl_core.sync.peer_table import PeerTable, Rng
from fl_core.sync.summary import StateSummary
from fl_core.types import AuthorId, Digest, TxId, is_hex_id

SWEEP_INTERVAL_S: Final = 1.0
"""How often it is looked through for what has waited too long."""

CHECKPOINT_DEADLINE_S: Final = 60.0
"""Seconds for a peer to make a checkpoint and send it: some megabytes for a hundred thousand updates."""

MAX_CURSOR_CHARS: Final = 256


class GossipNode:
    """See the module's docstring.

    Args:
        ledger: What is here; the node only reads it.
        items: The set of the ledger's ids, genesis included; the node adds what is published and admitted.
        acts: The acts that are kept here; the caller adds what it keeps.
        summary: Makes this server's own summary as of now.
        peers: Whom to ask and tell, at first.
        models: Models that the caller holds.
        check: Raises a ``DagAcflError`` for a transaction whose header or signatures break a rule
            (``check_header`` and ``Transaction.verify_signatures``), before anything of it is kept.
        rng: Jitter of intervals and backoff.
        now_s: The clock as of now.
        cursors: Where to go on with each peer, from ``SaveCursor``.
        checkpoints: Those that this server has gone by before.
        is_erased: Whether an author's models are erased here: its updates come without.
        relay: Whether to announce what came from a peer to the others: True unless every server is a peer
            of every other. May be changed.
        limits: Intervals and bounds.

    Attributes:
        leads: Whether to read peers' journals and compare ledgers. Of several processes that serve one ledger one does;
            the others take part in what is announced to them, and published at them. May be changed.
    """

    def __init__(
        self,
        ledger: Ledger,
        items: ItemSet,
        *,
        acts: ActSet,
        summary: Callable[[], StateSummary],
        peers: Sequence[Peer],
        models: IncomingModels,
        check: Callable[[Transaction], None],
        rng: Rng,
        now_s: float,
        cursors: Mapping[Peer, str] | None = None,
        checkpoints: Collection[ServedCheckpoint] = (),
        is_erased: Callable[[AuthorId], bool] = lambda _: False,
        relay: bool = False,
        limits: GossipLimits | None = None,
    ) -> None:
        self._limits = limits = limits or GossipLimits()
        self._ledger, self._items, self._acts, self._summary, self.relay = ledger, items, acts, summary, relay
        self.leads: bool = True
        self._peers = PeerTable(peers, items, rng=rng, now_s=now_s, cursors=cursors or {}, limits=limits)
        self.inbound: Inbound = Inbound(
            ledger,
            self._peers,
            models=models,
            checkpoints=checkpoints,
            check=check,
            is_erased=is_erased,
            now_s=now_s,
            limits=limits,
        )
        self._in_flight: dict[int, SendRequest] = {}
        self._requests_made = 0
        self._swept_s = now_s

    # -- who the peers are ------------------------------------------------------------------------

    def joined(self, peer: Peer, now_s: float, *, cursor: str | None = None) -> None:
        """There is one more peer, or one is back; what was held against it is forgotten."""
        self._peers.add(peer, now_s=now_s, cursor=cursor)
        self._peers[peer].comparison.hurry()  # it may know acts that say who else is a member

    def left(self, peer: Peer, now_s: float) -> list[Effect]:
        """Nothing more is asked of a peer or taken from it; what came of it before stays."""
        self._peers[peer].leave()
        return self.inbound.expect_nothing_of(peer, now_s)

    # -- what is due ------------------------------------------------------------------------------

    def poll(self, now_s: float) -> list[Effect]:
        """What is due: requests, and what has become of those that nobody answered."""
        effects: list[Effect] = []
        for late in [each for each in self._in_flight.values() if each.deadline_s < now_s]:
            effects += self.failed(late, now_s, kind=Failure.TIMEOUT)
        if now_s >= self._swept_s + SWEEP_INTERVAL_S:
            self._swept_s = now_s
            effects += [*self.inbound.drop_overdue(now_s), *self._peers.let_go_of_stalled_pages(now_s)]
        for peer in self._peers.askable(now_s):
            effects += self._requests(peer, now_s)
        return [*effects, *self.inbound.next_admissions(now_s)]

    def _requests(self, peer: Peer, now_s: float) -> list[Effect]:
        entry, deadline_s = self._peers[peer], now_s + self._limits.answer_deadline_s
        effects: list[Effect] = []
        if self.leads and entry.pull.is_due(now_s):
            effects.append(self._request(peer, entry.pull.ask(now_s), deadline_s))
        if entry.comparison.is_due(now_s) and (self.leads or entry.comparison.is_wanted):
            effects.append(self._request(peer, entry.comparison.ask(now_s), deadline_s))
        if not entry.is_asked_for_transactions and (ids := self.inbound.ids_to_ask(peer, now_s)):
            entry.is_asked_for_transactions = True
            effects.append(self._request(peer, GetTransactions(ids), deadline_s))
        if self.inbound.is_checkpoint_due(peer):
            effects.append(self._request(peer, GetCheckpoint(), now_s + CHECKPOINT_DEADLINE_S))
        models = self.inbound.models_to_ask(peer, now_s)
        return [*effects, *(self._request(peer, model, until_s) for model, until_s in models)]

    def _request(self, peer: Peer, request: Request, deadline_s: float) -> SendRequest:
        self._requests_made += 1
        sent = self._in_flight[self._requests_made] = SendRequest(self._requests_made, peer, request, deadline_s)
        return sent

    # -- what peers say ---------------------------------------------------------------------------

    def announced(self, peer: Peer, announcement: Announcement, now_s: float) -> list[Effect]:
        """A peer says that it holds these transactions; none: that acts are new there."""
        effects: list[Effect] = []
        self._peers[peer].heard()
        if announcement == Announcement():
            self._peers[peer].comparison.hurry()
        self._look_up(announcement.bundles, announcement.ids)
        for bundle in announcement.bundles:
            if not self.is_banned(peer):
                effects += self.inbound.announced(peer, bundle, now_s)
        for transaction in announcement.ids:
            if not self.is_banned(peer):
                self.inbound.listed(transaction, peer)
        return effects

    def heard(self, peer: Peer) -> None:
        """A peer sent an authenticated request: it is reachable again, so backing off ends."""
        self._peers[peer].heard()

    @property
    def has_caught_up(self) -> bool:
        """Whether all that some peer holds has been read since the start, or no peer answers."""
        return self._peers.has_caught_up

    def is_banned(self, peer: Peer) -> bool:
        """Whether the peer's requests and announcements are to be refused too."""
        return self._peers[peer].is_banned

    def answered(  # noqa: C901 -- a case per kind of answer
        self, sent: SendRequest, response: Response, now_s: float
    ) -> list[Effect]:
        """A peer's answer. One that comes too late, or for another request, changes nothing."""
        request, peer = sent.request, sent.peer
        if sent.number not in self._in_flight:
            return []
        if not isinstance(response, RESPONSES[type(request)]) or not _is_well_formed(request, response):
            return self.failed(sent, now_s, kind=Failure.MALFORMED)
        if self.is_banned(peer):
            return self.failed(sent, now_s, kind=Failure.UNREACHABLE)
        del self._in_flight[sent.number]
        self._peers[peer].heard()
        effects: list[Effect] = []
        match request, response:
            case GetTransactions(ids), Transactions():
                self._peers[peer].is_asked_for_transactions = False
                self._look_up(response.found, ids)
                effects = self.inbound.came(peer, ids, response, now_s)
            case GetModel(digest), (ModelComplete() | ModelUnknown() | ModelCorrupt()):
                effects = self.inbound.model_ended(peer, digest, response, now_s)
            case _, Changes():
                effects = self._page_came(peer, response, now_s)
            case _, CursorUnknown():
                self._peers[peer].pull.restart()
            case _, SummaryAnswer(summary):
                effects = self._summary_came(peer, summary, now_s)
            case _, ReconcileAnswer(frame):
                effects = self._frame_came(peer, frame, now_s)
            case _, Acts(acts):
                effects = self._acts_came(peer, acts, now_s)
            case _, CheckpointAnswer(served):
                effects = self.inbound.checkpoint_ended(peer, served, now_s)
        return effects

    def failed(self, sent: SendRequest, now_s: float, *, kind: Failure) -> list[Effect]:
        """A request has no answer."""
        if self._in_flight.pop(sent.number, None) is None:
            return []
        entry = self._peers[sent.peer]
        entry.failed(now_s)  # also where the fault is ours: a full disk is full for a while
        pause_s = self._peers.pause_s(self._limits.pull_interval_s)
        effects: list[Effect] = []
        match sent.request:
            case GetChanges():
                entry.pull.failed(now_s, pause_s=pause_s)
            case GetTransactions(ids):
                entry.is_asked_for_transactions = False
                effects += self.inbound.not_served(sent.peer, ids, now_s, kind=kind)
            case GetModel(digest):
                effects += self.inbound.model_failed(sent.peer, digest, now_s, kind=kind)
            case GetSummary() | ReconcileFrame() | GetActs():
                entry.comparison.end(now_s, pause_s=pause_s)
            case GetCheckpoint():
                is_answer = kind in (Failure.REFUSED, Failure.MALFORMED)
                effects += self.inbound.checkpoint_ended(sent.peer, None, now_s, is_answer=is_answer)
        if kind is Failure.MALFORMED:
            effects += self.inbound.invalid(sent.peer, f"a malformed answer to {type(sent.request).__name__}", now_s)
        return effects

    def model_progress(self, sent: SendRequest, now_s: float) -> SendRequest | None:
        """More bytes of a model came: the request with its new deadline; None when they are not wanted any more."""
        if sent.number not in self._in_flight or not isinstance(sent.request, GetModel):
            return None
        deadline_s = self.inbound.fetches.progressed(sent.request.digest, sent.peer, now_s)
        if deadline_s is None:
            return None
        moved = self._in_flight[sent.number] = replace(sent, deadline_s=deadline_s)
        return moved

    # -- catching up ------------------------------------------------------------------------------

    def _look_up(self, bundles: Sequence[TransactionBundle], others: Sequence[TxId]) -> None:
        """Find out at once which of these, and of their parents, are here."""
        parents: list[TxId] = []
        for bundle in bundles:
            with suppress(DagAcflError):  # one that is none is refused when it is its turn
                parents += bundle.transaction.header.parents
        self._ledger.graph.nodes.look_up(dict.fromkeys([*others, *(bundle.id for bundle in bundles), *parents]))

    def _page_came(self, peer: Peer, page: Changes, now_s: float) -> list[Effect]:
        self._look_up((), page.ids)
        open_ids = [transaction for transaction in page.ids if self.inbound.listed(transaction, peer)]
        pause_s = self._peers.pause_s(self._limits.pull_interval_s)
        cursor = self._peers[peer].pull.came(page, open_ids, now_s, pause_s=pause_s)
        return [] if cursor is None else [SaveCursor(peer, cursor)]

    def _summary_came(self, peer: Peer, theirs: StateSummary, now_s: float) -> list[Effect]:
        entry = self._peers[peer]
        effects: list[Effect] = []
        if entry.showed(theirs):
            effects.append(LogIncident(peer, Incident.ROLLED_BACK, f"{theirs.count} transactions, more before"))
        is_pulling = not entry.pull.is_settled(now_s)  # what is being pulled would be found again
        if entry.comparison.compare(self._summary(), theirs, self._acts, acts_only=is_pulling):
            self._end_comparison(peer, now_s, acts_only=is_pulling)
        elif not is_pulling:
            effects.append(LogIncident(peer, Incident.DIFFERS, f"{theirs.count} there, {len(self._ledger)} here"))
        return effects

    def _frame_came(self, peer: Peer, frame: bytes, now_s: float) -> list[Effect]:
        try:
            lacking = self._peers[peer].comparison.reconciled(frame)
        except GossipFrameError as error:
            self._end_comparison(peer, now_s)
            return self.inbound.invalid(peer, str(error), now_s)
        if lacking is not None:
            self._end_comparison(peer, now_s)
            for transaction in lacking:
                self.inbound.listed(transaction, peer)
        return []

    def _acts_came(self, peer: Peer, acts: Sequence[SignedAct], now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        try:
            if new := self._acts.new_among(acts):
                effects = [KeepActs(peer, new)]
        except ActInvalidError as error:
            effects = self.inbound.invalid(peer, str(error), now_s)
        if self._peers[peer].comparison.acts_came():
            self._end_comparison(peer, now_s, acts_only=not self._peers[peer].pull.is_settled(now_s))
        return effects

    def _end_comparison(self, peer: Peer, now_s: float, *, acts_only: bool = False) -> None:
        interval_s = self._limits.pull_interval_s if acts_only else self._limits.comparison_interval_s
        self._peers[peer].comparison.end(now_s, pause_s=self._peers.pause_s(interval_s))

    # -- the ledger's side ------------------------------------------------------------------------

    def published(self, bundle: TransactionBundle, now_s: float) -> list[Effect]:
        """This server made a client's transaction visible."""
        return [*self._entered(bundle.id, now_s), *self._announce(bundle, besides=(), is_new=True)]

    def admitted(self, transaction: TxId, now_s: float) -> list[Effect]:
        """A transaction is durable and visible: by an ``Admit``, or read in the journal. May be said again."""
        held = self.inbound.admission_ended(transaction)
        relayed = (
            self._announce(held.bundle, besides=held.sources, is_new=False) if held is not None and self.relay else []
        )
        return [*self._entered(transaction, now_s), *relayed]

    def refused(self, transaction: TxId, now_s: float, *, reason: str, is_to_blame: bool = True) -> list[Effect]:
        """The ``Admit`` broke a rule of the ledger: never ask for it again, and hold it against its receipt's issuer.

        ``is_to_blame`` is False for a step beyond what the parents' steps allow: a peer that joined by a checkpoint has
        parents whose steps it does not know, and admits what others refuse.
        """
        return self.inbound.refused(transaction, now_s, reason=reason, is_to_blame=is_to_blame)

    def act_forged(self, peer: Peer, now_s: float, *, reason: str) -> list[Effect]:
        """A signature among ``KeepActs``, by somebody whose word counts, does not verify: hold it against the peer."""
        return self.inbound.invalid(peer, reason, now_s)

    def deferred(self, transaction: TxId, now_s: float) -> None:
        """The ``Admit`` failed for this server's own reasons (a full disk), or a parent's did: tried again later."""
        self.inbound.deferred(transaction, now_s)

    def model_lost(self, transaction: TxId) -> None:
        """The ``Admit``'s model cannot be read after all: it is fetched again, and others go on meanwhile."""
        self.inbound.model_lost(transaction)

    def acts_kept(self) -> list[Effect]:
        """Acts are new here: tell the peers to compare, for what members decide should not wait a minute."""
        return [Announce(peer, Announcement(), is_new=False) for peer in self._peers.listeners(besides=())]

    def _entered(self, transaction: TxId, now_s: float) -> list[Effect]:
        entered = self._ledger.graph.get(transaction)
        assert entered is not None, "admitted and published mean that the ledger holds it"
        self._items.add(entered.depth, transaction)
        return self.inbound.entered(transaction, now_s)

    def needs_model(self, digest: Digest) -> bool:
        """Whether a transaction that waits has this model."""
        return self.inbound.needs_model(digest)

    def _announce(self, bundle: TransactionBundle, *, besides: Collection[Peer], is_new: bool) -> list[Effect]:
        announcement = Announcement.of(bundle)
        return [Announce(peer, announcement, is_new) for peer in self._peers.listeners(besides=besides)]


def _is_well_formed(request: Request, response: Response) -> bool:
    """Whether an answer keeps to the request's bounds."""
    match request, response:
        case GetChanges(after, limit), Changes(ids, following, more):
            stands_still = more and following == after
            are_ids = all(map(is_hex_id, ids))
            return len(ids) <= limit and len(following) <= MAX_CURSOR_CHARS and not stands_still and are_ids
        case GetTransactions(ids), Transactions(found, unknown):
            return len(found) <= len(ids) and len(unknown) <= len(ids)
        case _:
            return True
