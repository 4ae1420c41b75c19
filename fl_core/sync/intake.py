"""A foreign transaction's way into the ledger: wanted, asked for, checked, waiting, complete, admitted.

    advertised ─ asked ─ taken in ─ grounded ─ model here ─ free ─ Admit ─ entered
                   │         │          │
                 unserved  invalid   dropped: perhaps again later; refused: never again

Nothing is kept that was not asked for, and nothing before its size, id and signatures are checked. One
admission is under way at a time; what is admitted has its parents in the ledger, so the order is topological.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from fl_core.dag.transaction import Transaction
from fl_core.errors import DagAcflError, ParentsError, SignatureError, TransactionInvalidError
from fl_core.ledger import Ledger
from fl_core.sync.effects import Admit, DiscardBlob, Effect, Failure, Incident, Notice
from fl_core.sync.fetching import BlobFetches
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    MAX_IDS_PER_CALL,
    BlobComplete,
    BlobCorrupt,
    BlobUnknown,
    CarriedTransaction,
    GetBlob,
    Peer,
    Transactions,
)
from fl_core.sync.roster import Roster
from fl_core.sync.waiting import Held, WaitingRoom
from fl_core.sync.wanting import Wants
from fl_core.types import Digest, TxId, digest_of


class HeldBlobs(Protocol):
    """What the node must know of the caller's blob store."""

    def is_complete(self, digest: Digest) -> bool:
        """Whether the whole model is here, verified: in the ledger's store or come in from a peer."""
        ...

    def bytes_held(self, digest: Digest) -> int:
        """How many bytes of an incomplete model are here; 0 for none. A fetch goes on from there."""
        ...


class Intake:
    """Everything on its way in.

    Args:
        ledger: What is here; only read.
        roster: The peers.
        blobs: The caller's blob store.
        check: Header and signatures.
        now_s: The clock as of now.
        limits: Bounds.
    """

    def __init__(
        self,
        ledger: Ledger,
        roster: Roster,
        *,
        blobs: HeldBlobs,
        check: Callable[[Transaction], None],
        now_s: float,
        limits: GossipLimits,
    ) -> None:
        self._ledger, self._roster, self._blobs, self._check, self._limits = ledger, roster, blobs, check, limits
        self._model_size = ledger.genesis.layout.nbytes
        self.wants = Wants(roster, max_per_peer=limits.max_wanted_per_peer, tries=limits.tries_per_source)
        self.waiting = WaitingRoom(
            ledger,
            tuple(roster),
            max_orphans=limits.max_orphans,
            max_bytes=limits.max_waiting_bytes,
            lifetime_s=limits.orphan_lifetime_s,
        )
        self.fetches = BlobFetches(limits)
        self._needing: dict[Digest, set[TxId]] = {}
        self._max_ahead = max(limits.max_ahead_bytes // self._model_size, limits.blobs_per_peer)
        self._is_ahead = False
        self._refused: dict[TxId, None] = {}
        self._ready: dict[TxId, None] = {}
        self._admitting: TxId | None = None
        self._resume_s = now_s

    # -- wanted -----------------------------------------------------------------------------------

    def advertised(self, transaction: TxId, peer: Peer) -> bool:
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

    def ids_to_ask(
        self, peer: Peer, now_s: float, *, better: Collection[Peer]
    ) -> tuple[tuple[TxId, ...], list[Effect]]:
        """The next ids for a peer: what it lists, and when there is nothing, parents of what it sent."""
        known = self._roster[peer]
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

    def not_served(self, peer: Peer, ids: Sequence[TxId], now_s: float, *, kind: Failure) -> list[Effect]:
        """Ids that a peer was asked for, and no answer."""
        if kind is Failure.UNREACHABLE:
            self.wants.put_back(ids, peer)
            return []
        effects = self._roster.unserved(peer, f"{len(ids)} transactions, {kind.value}", now_s)
        for transaction in ids:
            effects += self._no_source(transaction, peer, now_s, for_good=False)
        return effects

    def _no_source(self, transaction: TxId, peer: Peer, now_s: float, *, for_good: bool) -> list[Effect]:
        """A peer is no source for an id; the next is asked, and without one the id is given up for now."""
        if self.wants.not_served(transaction, peer, for_good=for_good):
            return self._settled(transaction, now_s, dropped=True)
        return self._unless_source(transaction, peer, now_s)

    def _unless_source(self, transaction: TxId, peer: Peer, now_s: float) -> list[Effect]:
        """A peer that will not be asked for an id again must not wait for those who only say that they have it."""
        if self.wants.is_source(transaction, peer):
            return []
        return self._roster.settled(transaction, now_s, dropped=True, only=peer)

    def _settled(self, transaction: TxId, now_s: float, *, dropped: bool) -> list[Effect]:
        self.wants.settled(transaction)
        return self._roster.settled(transaction, now_s, dropped=dropped)

    # -- taken in ---------------------------------------------------------------------------------

    def came(self, peer: Peer, asked: Sequence[TxId], answer: Transactions, now_s: float) -> list[Effect]:
        """An answer to ``GetTransactions``."""
        effects: list[Effect] = []
        remaining = dict.fromkeys(asked)
        for carried in answer.found:
            if carried.transaction.id in remaining:
                del remaining[carried.transaction.id]
                effects += self._take_in(carried, peer, now_s)
            else:
                effects += self._roster.invalid(peer, "a transaction that was not asked for")
            if self._roster[peer].health.is_banned:
                return effects
        for transaction in answer.unknown:
            if transaction in remaining:
                del remaining[transaction]
                effects += self._roster.unserved(peer, f"transaction {transaction[:16]}…, unknown there", now_s)
                effects += self._no_source(transaction, peer, now_s, for_good=True)
        if answer.found or answer.unknown:
            self.wants.put_back(remaining, peer)
        else:
            effects += self.not_served(peer, asked, now_s, kind=Failure.REFUSED)
        return effects

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
            return [*self._roster.invalid(peer, str(error)), *self._never(transaction, now_s)]
        if _has_foreign_attachment(carried):
            return self._bad_copy(transaction, peer, "its attachment is not the one that it names", now_s)
        return self._let_wait(carried, peer, now_s)

    def _check_carried(self, carried: CarriedTransaction) -> None:
        sizes = (len(carried.transaction.header_bytes), len(carried.attachment or b""))
        if sizes[0] > self._limits.max_header_bytes or sizes[1] > self._limits.max_attachment_bytes:
            raise TransactionInvalidError(f"{sizes[0]} bytes of header, {sizes[1]} of attachment: too large")
        self._check(carried.transaction)
        if refused := [parent for parent in carried.transaction.header.parents if parent in self._refused]:
            raise ParentsError(f"its parent {refused[0][:16]}… is refused here")

    def _bad_copy(self, transaction: TxId, peer: Peer, why: str, now_s: float) -> list[Effect]:
        effects = self._no_source(transaction, peer, now_s, for_good=True)
        return [*effects, *self._roster.invalid(peer, why)]

    def _let_wait(self, carried: CarriedTransaction, peer: Peer, now_s: float) -> list[Effect]:
        transaction = carried.transaction.id
        sources, tries = self.wants.sources(transaction), self.wants.tries(transaction, peer)
        added = self.waiting.add(carried, from_peer=peer, sources=sources, now_s=now_s, tries=tries)
        if added is None:
            notice = Notice(peer, Incident.DROPPED, f"no room for {transaction[:16]}…")
            return [notice, *self._no_source(transaction, peer, now_s, for_good=False)]
        grounded, evicted = added
        is_walk = self.wants.is_walked_to(transaction, peer)
        self.wants.settled(transaction)
        for parent in self.waiting.missing_parents(transaction):
            if self.wants.walk_to(parent, peer) and not is_walk:
                self._roster[peer].pull.hurry()
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
        if not listed:
            return self._settled(held.id, now_s, dropped=True)
        return self._unless_source(held.id, held.from_peer, now_s)

    # -- model here -------------------------------------------------------------------------------

    def blobs_to_ask(
        self, peer: Peer, now_s: float, *, better: Collection[Peer]
    ) -> tuple[list[tuple[GetBlob, float]], list[Effect]]:
        """The next models for a peer, each with its deadline; and what follows from those that are here after all."""
        asks: list[tuple[GetBlob, float]] = []
        effects: list[Effect] = []
        if self._must_admit_first():
            return asks, effects
        for fetch in self.fetches.take(peer, better=better):
            if self._blobs.is_complete(fetch.digest):
                effects += self._model_came(fetch.digest, now_s)
            else:
                start = self._blobs.bytes_held(fetch.digest)
                deadline_s = self.fetches.began(fetch, start, now_s)
                asks.append((GetBlob(fetch.digest, start, fetch.size), deadline_s))
        return asks, effects

    def _must_admit_first(self) -> bool:
        """Whether enough models are here for now; never while none can be admitted, for then nothing would go on."""
        ahead = len(self._needing) - len(self.fetches)
        self._is_ahead = ahead >= (self._max_ahead // 2 + 1 if self._is_ahead else self._max_ahead)
        return self._is_ahead and (self._admitting is not None or bool(self._ready))

    def blob_ended(
        self, peer: Peer, digest: Digest, end: BlobComplete | BlobUnknown | BlobCorrupt, now_s: float
    ) -> list[Effect]:
        """An answer to ``GetBlob``."""
        match end:
            case BlobComplete():
                return self._model_came(digest, now_s)
            case BlobUnknown(pruned):
                why = "pruned there: joining needs one peer that kept its models" if pruned else "unknown there"
                effects = self._roster.unserved(peer, f"model {digest[:16]}…, {why}", now_s)
                return [*effects, *self._no_blob_source(digest, peer, now_s, for_good=True)]
            case BlobCorrupt():
                is_to_blame = self.fetches.corrupt(digest, peer)
                effects = self._no_blob_source(digest, peer, now_s, for_good=is_to_blame)
                if is_to_blame:
                    effects += self._roster.invalid(peer, f"model {digest[:16]}… does not hash to its digest")
                return effects

    def blob_failed(self, peer: Peer, digest: Digest, now_s: float, *, kind: Failure) -> list[Effect]:
        """A model that a peer was asked for, and no answer or not all of it."""
        if kind is Failure.UNREACHABLE:
            self.fetches.interrupted(digest, peer)
            return []
        effects = self._roster.unserved(peer, f"model {digest[:16]}…, {kind.value}", now_s)
        return [*effects, *self._no_blob_source(digest, peer, now_s, for_good=False)]

    def _no_blob_source(self, digest: Digest, peer: Peer, now_s: float, *, for_good: bool) -> list[Effect]:
        is_forsaken = self.fetches.not_delivered(digest, peer, for_good=for_good)
        return self._give_up_model(digest, now_s) if is_forsaken else []

    def _give_up_model(self, digest: Digest, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        for transaction in sorted(self._needing.get(digest, ())):
            effects += self._drop(transaction, now_s, why="nobody serves its model")
        return effects

    def _fetch_models(self, grounded: Iterable[Held], now_s: float) -> list[Effect]:
        for held in grounded:
            digest = held.carried.transaction.header.model_digest
            self._needing.setdefault(digest, set()).add(held.id)
            if self._blobs.is_complete(digest):
                self._has_model(held)
            else:
                self.fetches.want(digest, self._model_size, sources=held.sources)
        return self.next_admission(now_s)

    def _model_came(self, digest: Digest, now_s: float) -> list[Effect]:
        self.fetches.end(digest)
        for transaction in sorted(self._needing.get(digest, ())):
            if (held := self.waiting.get(transaction)) is not None:
                self._has_model(held)
        return self.next_admission(now_s)

    def _has_model(self, held: Held) -> None:
        held.model_is_here = True
        if held.is_free:
            self._ready[held.id] = None

    # -- admitted ---------------------------------------------------------------------------------

    def next_admission(self, now_s: float) -> list[Effect]:
        """The next ``Admit``, unless one is under way or the last was deferred a moment ago."""
        while self._admitting is None and self._ready and now_s >= self._resume_s:
            transaction = next(iter(self._ready))
            del self._ready[transaction]
            if (held := self.waiting.get(transaction)) is not None:
                self._admitting = transaction
                return [Admit(held.carried, held.from_peer)]
        return []

    def admission_ended(self, transaction: TxId) -> Held | None:
        """The caller has answered an ``Admit``. What waited, if it still does."""
        if self._admitting == transaction:
            self._admitting = None
        return self.waiting.get(transaction)

    def entered(self, transaction: TxId, now_s: float) -> list[Effect]:
        """A transaction is in the ledger now, from wherever it came."""
        effects = self._settled(transaction, now_s, dropped=False)
        if (held := self.waiting.get(transaction)) is not None:
            # A client may have published here what was still being fetched.
            effects += self._needs_no_more(held, discard=not held.model_is_here)
        grounded, freed = self.waiting.entered_ledger(transaction)
        effects += self._fetch_models(grounded, now_s)
        for child in freed:
            if child.model_is_here:
                self._ready[child.id] = None
        return [*effects, *self.next_admission(now_s)]

    def refused(self, transaction: TxId, now_s: float, *, reason: str) -> list[Effect]:
        """The ledger refused it: it and its descendants never come in, whoever sends them."""
        held = self.admission_ended(transaction)
        effects = [] if held is None else self._roster.invalid(held.from_peer, reason)
        return [*effects, *self._never(transaction, now_s), *self.next_admission(now_s)]

    def deferred(self, transaction: TxId, now_s: float) -> None:
        """The ledger could not take it now: it is first when admissions go on."""
        self._resume_s = now_s + self._limits.pull_interval_s
        if self.admission_ended(transaction) is not None:
            self._ready = {transaction: None, **self._ready}

    def model_gone(self, transaction: TxId, now_s: float) -> list[Effect]:
        """The model is not here after all: as one that has not come yet, so that it holds up nobody else."""
        held = self.admission_ended(transaction)
        if held is None:
            return self.next_admission(now_s)
        held.model_is_here = False
        return self._fetch_models([held], now_s)

    def needs_model(self, digest: Digest) -> bool:
        """Whether a transaction that waits has this model."""
        return digest in self._needing

    # -- given up ---------------------------------------------------------------------------------

    def drop_overdue(self, now_s: float) -> list[Effect]:
        """Let go of orphans that have waited for too long."""
        effects: list[Effect] = []
        for orphan in self.waiting.overdue(now_s):
            effects += self._drop(orphan, now_s, why="its parents did not come")
        return effects

    def forget_peer(self, peer: Peer, now_s: float) -> list[Effect]:
        """Take nothing more from a banned peer, and keep nothing that it brought."""
        effects: list[Effect] = []
        for transaction in self.wants.forget_peer(peer):
            effects += self._settled(transaction, now_s, dropped=True)
        for digest in self.fetches.forget_peer(peer):
            effects += self._give_up_model(digest, now_s)
        for transaction in self.waiting.from_peer(peer):
            if transaction != self._admitting:
                effects += self._drop(transaction, now_s, why="its sender is banned")
        return effects

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

    def _needs_no_more(self, held: Held, *, discard: bool) -> list[Effect]:
        """A transaction leaves the waiting room: its model is not needed for it."""
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


def _has_foreign_attachment(carried: CarriedTransaction) -> bool:
    if carried.attachment is None:
        return carried.lacks_attachment
    return digest_of(carried.attachment) != carried.transaction.header.attachment_digest
