"""A foreign transaction's way into the ledger: wanted, asked for, checked, waiting, complete, admitted.

    advertised ─ asked ─ taken in ─ grounded ─ model here ─ free ─ Admit ─ entered
                   │         │          │     ╲ parked ─ granted ╱
                 unserved  invalid   dropped: perhaps again later; refused: never again

*Parked* is a transaction whose model every peer says to have pruned, or to lack while one says so; *granted*, when what
has come in above it shows that retention lets the model go (``fl_core.sync.prunable``).

Nothing is kept that was not asked for, and nothing before its size, id and signatures are checked. One
admission is under way at a time; what is admitted has its parents in the ledger, so the order is topological.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from fl_core.dag.transaction import Transaction
from fl_core.errors import DagAcflError, ParentsError, SignatureError, TransactionInvalidError
from fl_core.ledger import Ledger
from fl_core.sync.effects import Admit, DiscardBlob, Effect, Failure, Incident, Notice, Vet
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
from fl_core.sync.prunable import Coming, admissible
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


_LOOKED_AT_PER_S: Final = 4000
"""How many that wait are looked at in a second for what may come in bare: some tenth of what one CPU can."""


@dataclass(slots=True)
class _PrunedModel:
    """A model of which a peer says that it was pruned, while others may still have it."""

    asked: set[Peer] = field(default_factory=set)
    """Who does not have it, for whatever reason."""
    unasked: set[Peer] = field(default_factory=set)
    """Who is asked although it has not said that it has the transaction: it broke no promise."""


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
            max_parked=limits.max_parked,
            max_parked_bytes=limits.max_parked_bytes,
            max_resting=min(limits.max_parked, limits.max_resting_model_bytes // self._model_size),
        )
        self.fetches = BlobFetches(limits)
        self._needing: dict[Digest, set[TxId]] = {}
        self._max_ahead = max(limits.max_ahead_bytes // self._model_size, limits.blobs_per_peer)
        self._is_ahead = False
        self._refused: dict[TxId, None] = {}
        self._ready: dict[TxId, None] = {}
        self._admitting: TxId | None = None
        self._pruned: dict[Digest, _PrunedModel] = {}
        self._to_vet: dict[TxId, None] = {}
        self._vetting: TxId | None = None
        self._has_news = False
        """Whether something has come since it was last asked what may come in bare."""
        self._witnesses: frozenset[TxId] = frozenset()
        """What a grant rests on: kept until it is in the ledger, whatever becomes of its sender."""
        self._brought_s: dict[Peer, float] = {}
        """When something of each peer last got on."""
        self._away_s: dict[Peer, float] = {}
        """Since when peers have been failing that are."""
        self._look_s = now_s
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
            self._ask_again(held, peer)
            digest = held.carried.transaction.header.model_digest
            if digest in self.fetches:
                self.fetches.want(digest, self._model_size, sources=[peer])
        return True

    def _ask_again(self, held: Held, peer: Peer) -> None:
        """A peer that did not have a model may have it, now that it says that it has the transaction."""
        pruned = self._pruned.get(held.carried.transaction.header.model_digest)
        if pruned is not None:
            pruned.asked.discard(peer)

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
        self._got_on(peer, now_s)
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
                effects = []
                if pruned:
                    self._pruned.setdefault(digest, _PrunedModel())
                elif digest not in self._pruned or peer not in self._pruned[digest].unasked:
                    effects += self._roster.unserved(peer, f"model {digest[:16]}…, unknown there", now_s)
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
        pruned = self._pruned.get(digest)
        if pruned is not None and peer not in self.fetches.sources(digest):
            pruned.asked.add(peer)
        return self._give_up_model(digest, now_s) if is_forsaken else []

    def _give_up_model(self, digest: Digest, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        pruned = self._pruned.get(digest)
        if pruned is not None and (others := self._may_have(pruned, now_s)):
            # Whoever may have it is asked, also who has not said so: a page may not have come that far.
            pruned.unasked.update(others)
            self.fetches.want(digest, self._model_size, sources=others)
            return effects
        for transaction in sorted(self._needing.get(digest, ())):
            held = self.waiting.get(transaction)
            if pruned is not None and held is not None:
                effects += self._park(held, now_s)
            else:
                effects += self._drop(transaction, now_s, why="nobody serves its model")
        return effects

    def _fetch_models(self, grounded: Iterable[Held], now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        for held in grounded:
            digest = held.carried.transaction.header.model_digest
            self._needing.setdefault(digest, set()).add(held.id)
            if self._blobs.is_complete(digest):
                self._has_model(held)
            elif digest in self._pruned and digest not in self.fetches:
                self.fetches.want(digest, self._model_size, sources=self._may_have(self._pruned[digest], now_s))
                if not self.fetches.sources(digest):
                    effects += self._park(held, now_s)
            else:
                self.fetches.want(digest, self._model_size, sources=held.sources)
        return [*effects, *self.next_admission(now_s)]

    def _model_came(self, digest: Digest, now_s: float) -> list[Effect]:
        self.fetches.end(digest)
        for transaction in sorted(self._needing.get(digest, ())):
            if (held := self.waiting.get(transaction)) is not None:
                self._has_model(held)
                self._got_on(held.from_peer, now_s)
        self._pruned.pop(digest, None)
        return self.next_admission(now_s)

    def _has_model(self, held: Held) -> None:
        held.model_is_here = True
        if held.is_parked:
            self.waiting.unpark(held)
        if held.is_free:
            self._ready[held.id] = None

    # -- pruned everywhere ------------------------------------------------------------------------

    def _may_have(self, pruned: _PrunedModel, now_s: float) -> tuple[Peer, ...]:
        """Who has not been asked for a model yet; one that is away is waited for, but not for ever."""
        over_s = now_s - self._limits.pruned_patience_s
        return tuple(
            peer
            for peer in self._roster
            if peer not in pruned.asked
            and not self._roster[peer].health.is_banned
            and self._away_s.get(peer, now_s) >= over_s
        )

    def _park(self, held: Held, now_s: float) -> list[Effect]:
        digest = held.carried.transaction.header.model_digest
        self.fetches.end(digest)
        if held.is_parked:
            return []
        if not self.waiting.park(held):
            return self._drop(held.id, now_s, why="its model is pruned everywhere, and there is no room to wait")
        self._has_news = True
        return []

    def _got_on(self, peer: Peer, now_s: float) -> None:
        self._brought_s[peer] = now_s
        self._has_news = True

    def tend_pruned(self, now_s: float) -> list[Effect]:
        """What is due for models that peers say to have pruned; to be called about every second."""
        effects: list[Effect] = []
        failing = [peer for peer in self._roster if self._roster[peer].health.is_failing]
        self._away_s = {peer: self._away_s.get(peer, now_s) for peer in failing}
        for digest, pruned in list(self._pruned.items()):
            if digest not in self._pruned:
                continue  # it went with another
            sources = self.fetches.sources(digest)
            others = self._may_have(pruned, now_s)
            if not sources and others:  # somebody is back
                for transaction in self._needing.get(digest, ()):
                    held = self.waiting.get(transaction)
                    if held is not None and held.is_parked and not held.is_granted:
                        self.waiting.unpark(held)
                        self.fetches.want(digest, self._model_size, sources=others)
            for peer in set(sources) - set(others):
                if self.fetches.not_delivered(digest, peer, for_good=True):
                    effects += self._give_up_model(digest, now_s)
        if self.waiting.has_parked:
            self._read_on(now_s)
            effects += [*self._let_in_bare(now_s), *self._next_vet(), *self._drop_parked(now_s)]
        return effects

    def _read_on(self, now_s: float) -> None:
        """What stands still because of pruned models must not keep the pages from coming that prove them so."""
        for held in self.waiting.grounded():
            if held.is_parked or held.model_is_here:
                self._roster.held_up(held.id, now_s)
                if held.norm is None and held.model_is_here and not held.is_free:
                    self._to_vet[held.id] = None

    def _next_vet(self) -> list[Effect]:
        while self._vetting is None and self._to_vet:
            transaction = next(iter(self._to_vet))
            del self._to_vet[transaction]
            held = self.waiting.get(transaction)
            if held is not None and held.model_is_here and held.norm is None and transaction != self._admitting:
                self._vetting = transaction
                return [Vet(held.carried)]
        return []

    def vetted(self, transaction: TxId, norm: float, now_s: float) -> list[Effect]:
        """A witness's model is sound."""
        self.unvetted(transaction)
        if (held := self.waiting.get(transaction)) is not None:
            held.norm = norm
            self._got_on(held.from_peer, now_s)
        return self._next_vet()

    def unvetted(self, transaction: TxId) -> None:
        """A witness's model could not be looked at; the next look decides whether it is needed still."""
        if self._vetting == transaction:
            self._vetting = None

    def _let_in_bare(self, now_s: float) -> list[Effect]:
        if not self._has_news or now_s < self._look_s:
            return []
        self._has_news = False
        self._look_s = now_s + len(self.waiting) / _LOOKED_AT_PER_S
        known = [held for held in self.waiting.grounded() if held.is_parked or held.norm is not None]
        found = admissible(self._ledger, map(_coming, known), keep_generations=self._limits.bare_beyond_generations)
        granted = [held for held in known if held.is_parked and held.id in found]
        for held in granted:
            held.is_granted = True
            if held.can_be_admitted:
                self._ready[held.id] = None
        if granted:
            self._witnesses = found
        return self.next_admission(now_s)

    def _drop_parked(self, now_s: float) -> list[Effect]:
        """Let go of what nothing justifies although its sender has had time to show it."""
        effects: list[Effect] = []
        over_s = now_s - self._limits.orphan_lifetime_s
        for held in list(self.waiting.grounded()):
            if (
                held.is_parked
                and not held.is_granted
                and held.id in self.waiting
                and held.id not in self._witnesses
                and max(self._brought_s.get(peer, held.since_s) for peer in held.sources) < over_s
            ):
                what = f"model {held.carried.transaction.header.model_digest[:16]}…, pruned too early"
                effects += self._roster.unserved(held.from_peer, what, now_s)
                effects += self._drop(
                    held.id, now_s, why="its model is pruned everywhere, and nothing shows that it may be"
                )
        return effects

    # -- admitted ---------------------------------------------------------------------------------

    def next_admission(self, now_s: float) -> list[Effect]:
        """The next ``Admit``, unless one is under way or the last was deferred a moment ago."""
        while self._admitting is None and self._ready and now_s >= self._resume_s:
            transaction = next(iter(self._ready))
            del self._ready[transaction]
            if (held := self.waiting.get(transaction)) is not None:
                self._admitting = transaction
                return [Admit(held.carried, held.from_peer, is_bare=not held.model_is_here)]
        return []

    def admission_ended(self, transaction: TxId) -> Held | None:
        """The caller has answered an ``Admit``. What waited, if it still does."""
        if self._admitting == transaction:
            self._admitting = None
        return self.waiting.get(transaction)

    def entered(self, transaction: TxId, now_s: float) -> list[Effect]:
        """A transaction is in the ledger now, from wherever it came."""
        effects = self._settled(transaction, now_s, dropped=False)
        self._has_news = True
        if (held := self.waiting.get(transaction)) is not None:
            # A client may have published here what was still being fetched.
            effects += self._needs_no_more(held, discard=not held.model_is_here)
        grounded, freed = self.waiting.entered_ledger(transaction)
        effects += self._fetch_models(grounded, now_s)
        for child in freed:
            if child.can_be_admitted:
                self._ready[child.id] = None
        return [*effects, *self.next_admission(now_s)]

    def refused(self, transaction: TxId, now_s: float, *, reason: str) -> list[Effect]:
        """The ledger refused it: it and its descendants never come in, whoever sends them."""
        held = self.admission_ended(transaction)
        self.unvetted(transaction)
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
            if transaction != self._admitting and transaction not in self._witnesses:
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
        self._pruned.pop(digest, None)
        self.fetches.end(digest)
        return [DiscardBlob(digest)] if discard else []


def _coming(held: Held) -> Coming:
    header = held.carried.transaction.header
    norm = None if held.is_parked else held.norm
    return Coming(held.id, header.parents, header.author, header.sequence, norm)


def _has_foreign_attachment(carried: CarriedTransaction) -> bool:
    if carried.attachment is None:
        return carried.lacks_attachment
    return digest_of(carried.attachment) != carried.transaction.header.attachment_digest
