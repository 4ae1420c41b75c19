"""A foreign transaction's way into the ledger.

    listed ─ asked for ─┬─ checked ─ orphan ─ connected ─ model here ─ parents here ─ Admit ─ entered
              announced ┘
                        invalid: never again         dropped: perhaps again later

Nothing is kept before its size, id and signatures are checked. What is ready is admitted together, parents before
children, and nothing else until all of it is settled.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from fl_core.dag.transaction import Header, Transaction
from fl_core.errors import DagAcflError, SignatureError, TransactionInvalidError
from fl_core.joining import ServedCheckpoint
from fl_core.ledger import Ledger
from fl_core.sync.effects import Admit, DiscardModel, Effect, Failure, Incident, LogIncident
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    MAX_ATTACHMENT_BYTES,
    MAX_HEADER_BYTES,
    MAX_IDS_PER_CALL,
    GetModel,
    ModelComplete,
    ModelCorrupt,
    ModelUnknown,
    Peer,
    TransactionBundle,
    Transactions,
)
from fl_core.sync.model_fetches import ModelFetches
from fl_core.sync.peer_table import PeerTable
from fl_core.sync.pending import PendingPool, PendingTransaction
from fl_core.sync.request_queue import RequestQueue
from fl_core.types import AuthorId, Digest, TxId

MAX_REFUSED: Final = 10_000
"""Ids of refused transactions that are remembered, so that they are not fetched again."""


class IncomingModels(Protocol):
    """What the node must know of the models that the caller holds."""

    def is_complete(self, digest: Digest) -> bool:
        """Whether the whole model is here, verified: in the ledger's store or come in from a peer."""
        ...

    def bytes_held(self, digest: Digest) -> int:
        """How many bytes of an incomplete model are here; 0 for none. A fetch goes on from there."""
        ...


class Inbound:
    """Everything on its way in.

    Args:
        ledger: What is here; only read.
        peers: The peers.
        models: Models that the caller holds.
        checkpoints: Those that this server goes by.
        check: Header and signatures.
        is_erased: Whether an author's models are erased here: its updates come without.
        now_s: The clock as of now.
        limits: Bounds.
    """

    def __init__(
        self,
        ledger: Ledger,
        peers: PeerTable,
        *,
        models: IncomingModels,
        checkpoints: Iterable[ServedCheckpoint],
        check: Callable[[Transaction], None],
        is_erased: Callable[[AuthorId], bool],
        now_s: float,
        limits: GossipLimits,
    ) -> None:
        self._ledger, self._peers, self._models, self._check, self._limits = ledger, peers, models, check, limits
        self._is_erased = is_erased
        self._model_size = ledger.genesis.layout.nbytes
        self.queue: RequestQueue = RequestQueue()
        self.pending: PendingPool = PendingPool(
            ledger,
            max_count=limits.pending_per_peer,
            max_bytes=limits.pending_bytes_per_peer,
            lifetime_s=limits.orphan_lifetime_s,
        )
        self.fetches: ModelFetches = ModelFetches(limits)
        self._needing: dict[Digest, set[TxId]] = {}
        """Connected transactions by their model."""
        self._checkpoints = {each.checkpoint.member: each for each in checkpoints}
        self._unserved: dict[Digest, set[Peer]] = {}
        """Models that nobody serves, and who has pruned each and may have a checkpoint that stands for it."""
        self._archivists: set[Peer] = set()
        """Who has archived evidence, and may have a checkpoint of the updates that name it."""
        self._checkpoint_asked_of: Peer | None = None
        self._checkpoint_after_s: dict[Peer, float] = {}
        """When each peer that has answered may be asked for its checkpoint again."""
        self._max_ahead = max(limits.models_ahead_bytes // self._model_size, limits.models_per_peer)
        self._is_ahead = False
        self._refused: dict[TxId, None] = {}
        self._ready: dict[TxId, None] = {}
        self._admitting: set[TxId] = set()
        self._most_together = min(max(limits.admitted_together_bytes // self._model_size, 1), MAX_IDS_PER_CALL)
        self._resume_s = now_s

    def header_of(self, digest: Digest) -> Header | None:
        """The header of a transaction that waits for a model; None where none does any more."""
        held = (self.pending.get(each) for each in sorted(self._needing.get(digest, ())))
        return next((each.bundle.transaction.header for each in held if each is not None), None)

    # -- listed and asked for ---------------------------------------------------------------------

    def listed(self, transaction: TxId, peer: Peer) -> bool:
        """A peer says that it holds a transaction. Whether it is still to be settled."""
        if transaction in self._ledger or transaction in self._refused:
            return False
        held = self.pending.get(transaction)
        if held is None:
            return self.queue.add(transaction, peer)
        self._add_source(held, peer)
        return True

    def _add_source(self, held: PendingTransaction, peer: Peer) -> None:
        if peer not in held.sources:
            held.sources.append(peer)
            digest = held.bundle.transaction.header.model_digest
            if digest in self.fetches:
                self.fetches.want(digest, self._model_size, sources=[peer])

    def ids_to_ask(self, peer: Peer, now_s: float) -> tuple[TxId, ...]:
        """The next ids to ask of a peer: no more than there is room for."""
        limit = min(MAX_IDS_PER_CALL, self.pending.space(peer))
        return self.queue.take(peer, limit, rather=self._peers.asked_rather_than(peer, now_s))

    def not_served(self, peer: Peer, ids: Sequence[TxId], now_s: float, *, kind: Failure) -> list[Effect]:
        """Ids that a peer was asked for, and no answer."""
        if kind is Failure.UNREACHABLE:
            self.queue.put_back(ids, peer)
            return []
        effects = self._peers.unserved(peer, f"{len(ids)} transactions, {kind.value}", now_s)
        for transaction in ids:
            effects += self._no_source(transaction, peer, now_s, for_good=False)
        return effects

    def _no_source(self, transaction: TxId, peer: Peer, now_s: float, *, for_good: bool) -> list[Effect]:
        """A peer is no source for an id; the next is asked, and without one the id is given up for now."""
        sources = self.queue.not_served(transaction, peer, for_good=for_good)
        if not sources:
            return self._settled(transaction, now_s, dropped=True)
        if peer not in sources:  # its page must not wait for what others only list
            return self._peers.settled(transaction, now_s, dropped=True, only=peer)
        return []

    def _settled(self, transaction: TxId, now_s: float, *, dropped: bool) -> list[Effect]:
        self.queue.settled(transaction)
        return self._peers.settled(transaction, now_s, dropped=dropped)

    # -- come in ----------------------------------------------------------------------------------

    def announced(self, peer: Peer, bundle: TransactionBundle, now_s: float) -> list[Effect]:
        """A transaction that a peer announced whole."""
        if bundle.id in self.pending or not self.pending.space(peer):
            self.listed(bundle.id, peer)
            return []
        return self._take_in(bundle, peer, now_s)

    def came(self, peer: Peer, asked: Sequence[TxId], answer: Transactions, now_s: float) -> list[Effect]:
        """An answer to ``GetTransactions``."""
        effects: list[Effect] = []
        remaining = dict.fromkeys(asked)
        for bundle in answer.found:
            if bundle.id not in remaining:
                effects += self.invalid(peer, "a transaction that was not asked for", now_s)
            else:
                del remaining[bundle.id]
                effects += self._take_in(bundle, peer, now_s)
                held = self.pending.get(bundle.id)
                if held is not None and not held.is_connected:
                    # More is missing than it: the peer's journal lists it in order.
                    self._peers[peer].pull.hurry()
            if self._peers[peer].is_banned:
                return effects
        for transaction in answer.unknown:
            if transaction in remaining:
                del remaining[transaction]
                effects += self._peers.unserved(peer, f"transaction {transaction[:16]}…, unknown there", now_s)
                effects += self._no_source(transaction, peer, now_s, for_good=True)
        if answer.found or answer.unknown:
            self.queue.put_back(remaining, peer)
        else:
            effects += self.not_served(peer, asked, now_s, kind=Failure.REFUSED)
        return effects

    def _take_in(self, bundle: TransactionBundle, peer: Peer, now_s: float) -> list[Effect]:
        """Check a transaction, then let it wait for what it lacks."""
        transaction = bundle.id
        if transaction in self._ledger or transaction in self.pending or transaction in self._refused:
            self.queue.settled(transaction)
            return []
        if bundle.is_without_evidence and not self._may_lack_evidence(transaction, peer, now_s):
            return self._no_source(transaction, peer, now_s, for_good=True)
        return self._check_and_keep(bundle, peer, now_s)

    def _check_and_keep(self, bundle: TransactionBundle, peer: Peer, now_s: float) -> list[Effect]:
        transaction = bundle.id
        told: list[Effect] = []
        try:
            self._check_bundle(bundle)
            if refused := [parent for parent in bundle.transaction.header.parents if parent in self._refused]:
                # Not held against the peer, which may have taken that in without its model.
                told = [LogIncident(peer, Incident.DROPPED, f"its parent {refused[0][:16]}… is refused here")]
        except SignatureError as error:
            # Signatures are not part of the identity: another peer's copy may be sound.
            return self._bad_copy(transaction, peer, str(error), now_s)
        except DagAcflError as error:
            told = self.invalid(peer, str(error), now_s)
        if told:
            return [*told, *self._refuse(transaction, now_s)]
        if bundle.has_wrong_attachment:
            return self._bad_copy(transaction, peer, "its attachment is not the one that it names", now_s)
        sources = self.queue.sources(transaction)
        connected = self.pending.add(bundle, from_peer=peer, sources=sources, now_s=now_s)
        if connected is None:
            dropped = LogIncident(peer, Incident.DROPPED, f"no room for {transaction[:16]}…")
            return [dropped, *self._no_source(transaction, peer, now_s, for_good=False)]
        self.queue.settled(transaction)
        for parent in self.pending.missing_parents(transaction):
            self.queue.add(parent, peer)  # who holds the child holds its parents
        self._fetch_models(connected)
        return []

    def _may_lack_evidence(self, transaction: TxId, peer: Peer, now_s: float) -> bool:
        """Whether to take an update in whose evidence a peer has archived: nobody else is left to ask, and a checkpoint
        has it below its horizon. One is asked for where it is lacking; until then the peer's journal lists it again.
        """
        if any(each != peer and self._peers[each].is_reachable for each in self.queue.sources(transaction)):
            return False
        if any(transaction in each for each in self._checkpoints.values()):
            return True
        if now_s >= self._checkpoint_after_s.get(peer, now_s):
            self._archivists.add(peer)
        return False

    def _check_bundle(self, bundle: TransactionBundle) -> None:
        header_bytes, attachment_bytes = len(bundle.transaction.header_bytes), len(bundle.attachment or b"")
        if header_bytes > MAX_HEADER_BYTES or attachment_bytes > MAX_ATTACHMENT_BYTES:
            raise TransactionInvalidError(
                f"{header_bytes} bytes of header, {attachment_bytes} of attachment: too large"
            )
        self._check(bundle.transaction)

    def _bad_copy(self, transaction: TxId, peer: Peer, why: str, now_s: float) -> list[Effect]:
        return [*self._no_source(transaction, peer, now_s, for_good=True), *self.invalid(peer, why, now_s)]

    # -- models -----------------------------------------------------------------------------------

    def models_to_ask(self, peer: Peer, now_s: float) -> list[tuple[GetModel, float]]:
        """The next models for a peer, each with its deadline."""
        asks: list[tuple[GetModel, float]] = []
        if self._must_admit_first():
            return asks
        for fetch in self.fetches.take(peer, rather=self._peers.asked_rather_than(peer, now_s)):
            if self._models.is_complete(fetch.digest):
                self._model_came(fetch.digest)
            else:
                start = self._models.bytes_held(fetch.digest)
                deadline_s = self.fetches.began(fetch, start, now_s)
                asks.append((GetModel(fetch.digest, start, fetch.size), deadline_s))
        return asks

    def _must_admit_first(self) -> bool:
        """Whether enough models are here for now; never while none can be admitted, for then nothing would go on."""
        ahead = len(self._needing) - len(self.fetches)
        self._is_ahead = ahead >= (self._max_ahead // 2 + 1 if self._is_ahead else self._max_ahead)
        return self._is_ahead and bool(self._admitting or self._ready)

    def model_ended(
        self, peer: Peer, digest: Digest, end: ModelComplete | ModelUnknown | ModelCorrupt, now_s: float
    ) -> list[Effect]:
        """An answer to ``GetModel``."""
        match end:
            case ModelComplete():
                self._peers.served(peer)
                self._model_came(digest)
                return []
            case ModelUnknown(pruned=True):
                if (fetch := self.fetches.get(digest)) is not None:
                    fetch.pruned_by.add(peer)
                return self._no_model_source(digest, peer, now_s, for_good=True)
            case ModelUnknown():
                effects = self._peers.unserved(peer, f"model {digest[:16]}…, unknown there", now_s)
                return [*effects, *self._no_model_source(digest, peer, now_s, for_good=True)]
            case ModelCorrupt():
                is_to_blame = self.fetches.corrupt(digest, peer)
                effects = self._no_model_source(digest, peer, now_s, for_good=is_to_blame)
                if is_to_blame:
                    effects += self.invalid(peer, f"model {digest[:16]}… does not hash to its digest", now_s)
                return effects

    def model_failed(self, peer: Peer, digest: Digest, now_s: float, *, kind: Failure) -> list[Effect]:
        """A model that a peer was asked for, and no answer or not all of it."""
        fetch = self.fetches.get(digest)
        is_pruned = fetch is not None and bool(fetch.pruned_by)
        if kind is Failure.LOCAL or (kind is Failure.UNREACHABLE and not is_pruned):
            self.fetches.interrupted(digest, peer)
            return []
        effects: list[Effect] = []
        if kind is not Failure.UNREACHABLE:
            effects = self._peers.unserved(peer, f"model {digest[:16]}…, {kind.value}", now_s)
        # Where others have pruned it, who has sent nothing of it has one try: there may be very many such models.
        for_good = fetch is not None and is_pruned and kind is Failure.TIMEOUT and peer not in fetch.suppliers
        return [*effects, *self._no_model_source(digest, peer, now_s, for_good=for_good)]

    def _no_model_source(self, digest: Digest, peer: Peer, now_s: float, *, for_good: bool) -> list[Effect]:
        fetch = self.fetches.not_delivered(digest, peer, for_good=for_good)
        if fetch is None:
            return []
        if not fetch.pruned_by:
            effects: list[Effect] = []
            if not fetch.sources:
                for transaction in sorted(self._needing.get(digest, ())):
                    effects += self._drop(transaction, now_s, why="nobody serves its model")
            return effects
        # Where somebody has pruned it, one that cannot be reached and has sent nothing of it is not waited for.
        if any(each in fetch.suppliers or self._peers[each].is_reachable for each in fetch.sources):
            return []
        if others := self._peers.listeners(besides=fetch.asked):
            self.fetches.want(digest, self._model_size, sources=others)  # one may have kept what it has not listed yet
            return []
        hopes = fetch.pruned_by
        self._unserved[digest] = {each for each in hopes if now_s >= self._checkpoint_after_s.get(each, now_s)}
        return self._go_without(digest, now_s)

    # -- without models or evidence ---------------------------------------------------------------

    def is_checkpoint_due(self, peer: Peer) -> bool:
        """Whether this peer's checkpoint is asked for now; one peer is asked at a time."""
        is_hope = peer in self._archivists or any(peer in hopes for hopes in self._unserved.values())
        if self._checkpoint_asked_of is None and is_hope:
            self._checkpoint_asked_of = peer
            return True
        return False

    def checkpoint_ended(
        self, peer: Peer, served: ServedCheckpoint | None, now_s: float, *, is_answer: bool = True
    ) -> list[Effect]:
        """A peer's checkpoint came, or did not: what it does not stand for may be in another's.

        ``is_answer``: the peer answered, if only that it has none; so it is not asked again for a while.
        """
        if self._checkpoint_asked_of == peer:
            self._checkpoint_asked_of = None
        if is_answer:
            self._checkpoint_after_s[peer] = now_s + self._limits.checkpoint_interval_s
        if served is not None:
            self._checkpoints[served.checkpoint.member] = served
            if peer in self._archivists:
                self._peers[peer].pull.hurry()
        self._archivists.discard(peer)
        effects: list[Effect] = []
        for digest in list(self._unserved):
            if digest in self._unserved:  # no descendant of one that was dropped just now
                self._unserved[digest].discard(peer)
                effects += self._go_without(digest, now_s)
        return effects

    def _go_without(self, digest: Digest, now_s: float) -> list[Effect]:
        """Admit what a checkpoint stands for, and what is erased; the rest waits for one, or is dropped."""
        effects: list[Effect] = []
        for transaction in sorted(self._needing.get(digest, ())):
            held = self.pending.get(transaction)
            if held is None or held.model_is_here:
                continue
            is_erased = self._is_erased(held.bundle.transaction.header.author)
            if is_erased or any(each.stands_for(transaction) for each in self._checkpoints.values()):
                self._goes_without(held)
            elif not self._unserved[digest]:
                why = "nobody serves its model, and no checkpoint stands for it"
                effects += self._drop(transaction, now_s, why=why)
        needing = (self.pending.get(each) for each in self._needing.get(digest, ()))
        if all(held is None or held.model_is_here for held in needing):
            self._unserved.pop(digest, None)
            self.fetches.end(digest)
        return effects

    def _fetch_models(self, connected: Iterable[PendingTransaction]) -> None:
        for held in connected:
            digest = held.bundle.transaction.header.model_digest
            self._needing.setdefault(digest, set()).add(held.id)
            if self._models.is_complete(digest):
                self._has_model(held)
            elif self._is_erased(held.bundle.transaction.header.author):
                self._goes_without(held)
            else:
                self.fetches.want(digest, self._model_size, sources=held.sources)

    def _model_came(self, digest: Digest) -> None:
        self.fetches.end(digest)
        self._unserved.pop(digest, None)
        for transaction in sorted(self._needing.get(digest, ())):
            if (held := self.pending.get(transaction)) is not None:
                self._has_model(held)

    def _goes_without(self, held: PendingTransaction) -> None:
        # Not the norm that a checkpoint's maker says: the bound in its place refuses no honest child.
        held.norm = self._ledger.genesis.bounds.max_norm
        self._has_model(held)

    def _has_model(self, held: PendingTransaction) -> None:
        held.model_is_here = True
        if held.is_ready:
            self._ready[held.id] = None

    # -- admitted ---------------------------------------------------------------------------------

    def next_admissions(self, now_s: float) -> list[Effect]:
        """What can be admitted now, unless some is under way or the last was deferred a moment ago."""
        if self._admitting or now_s < self._resume_s:
            return []
        together: dict[TxId, PendingTransaction] = {}
        following = deque(self._ready)
        while following and len(together) < self._most_together:
            transaction = following.popleft()
            self._ready.pop(transaction, None)
            if (held := self.pending.get(transaction)) is not None:
                together[transaction] = held
                following += [child.id for child in self.pending.complete_with(transaction, together.keys())]
        self._admitting.update(together)
        return [Admit(held.bundle, held.from_peer, held.norm) for held in together.values()]

    def admission_ended(self, transaction: TxId) -> PendingTransaction | None:
        """The caller has answered an ``Admit``. What waited, if it still does."""
        self._admitting.discard(transaction)
        return self.pending.get(transaction)

    def entered(self, transaction: TxId, now_s: float) -> list[Effect]:
        """A transaction is in the ledger now, from wherever it came."""
        effects = self._settled(transaction, now_s, dropped=False)
        if (held := self.pending.get(transaction)) is not None:
            effects += self._release_model(held)
        connected, freed = self.pending.entered_ledger(transaction)
        self._fetch_models(connected)
        for child in freed:
            if child.model_is_here and child.id not in self._admitting:
                self._ready[child.id] = None
        return effects

    def refused(self, transaction: TxId, now_s: float, *, reason: str, is_to_blame: bool) -> list[Effect]:
        """The ledger refused it: it and its descendants never come in, whoever sends them.

        It is held against the server whose receipt it has, which took it in from a client. Who passed it on may have
        gone by a checkpoint or an erasure, without its model.
        """
        held = self.admission_ended(transaction)
        effects: list[Effect] = []
        if held is not None and is_to_blame:
            issuer = held.bundle.transaction.receipt.issuer
            is_peer = issuer in self._peers
            effects = self.invalid(issuer, reason, now_s) if is_peer else [_dropped(held, reason)]
        return [*effects, *self._refuse(transaction, now_s)]

    def deferred(self, transaction: TxId, now_s: float) -> None:
        """The ledger could not take it now: it is first when admissions go on.

        Where a parent before it was not taken, it goes on with that one: nothing else waits for it.
        """
        held = self.admission_ended(transaction)
        if held is not None and held.is_ready:
            self._resume_s = now_s + self._limits.pull_interval_s
            self._ready = {transaction: None, **self._ready}

    def model_lost(self, transaction: TxId) -> None:
        """The model is not here after all: as one that has not come yet, so that it holds up nobody else."""
        if (held := self.admission_ended(transaction)) is not None:
            held.model_is_here, held.norm = False, None
            self._fetch_models([held])

    def needs_model(self, digest: Digest) -> bool:
        """Whether a transaction that waits has this model."""
        return digest in self._needing

    # -- given up ---------------------------------------------------------------------------------

    def drop_overdue(self, now_s: float) -> list[Effect]:
        """Let go of orphans that have waited for too long."""
        effects: list[Effect] = []
        for orphan in self.pending.overdue(now_s):
            effects += self._drop(orphan, now_s, why="its parents did not come")
        return effects

    def invalid(self, peer: Peer, detail: str, now_s: float) -> list[Effect]:
        """A peer sent what no honest server sends. Of one that is banned for it nothing more is expected."""
        effects = self._peers.invalid(peer, detail)
        return [*effects, *self.expect_nothing_of(peer, now_s)] if self._peers[peer].is_banned else effects

    def expect_nothing_of(self, peer: Peer, now_s: float) -> list[Effect]:
        """A peer that is banned or has left serves nothing more; what it brought stays."""
        effects: list[Effect] = []
        for transaction in self.queue.forget(peer):
            effects += self._settled(transaction, now_s, dropped=True)
        for digest in self.fetches.expected_from(peer):
            effects += self._no_model_source(digest, peer, now_s, for_good=True)
        return [*effects, *self.checkpoint_ended(peer, None, now_s)]

    def _drop(self, transaction: TxId, now_s: float, *, why: str) -> list[Effect]:
        """Give up a transaction and its descendants for now; a later page or comparison may bring them again."""
        effects: list[Effect] = []
        for held in self.pending.drop(transaction):
            effects.append(_dropped(held, why))
            effects += self._release_model(held)
            effects += self._settled(held.id, now_s, dropped=True)
        return effects

    def _refuse(self, transaction: TxId, now_s: float) -> list[Effect]:
        """Refuse a transaction and its descendants for good: their bytes break a rule, whoever sends them."""
        effects: list[Effect] = []
        doomed = self.pending.drop(transaction)
        for held in doomed:
            effects += self._release_model(held)
        for identity in dict.fromkeys([transaction, *(held.id for held in doomed)]):
            self._refused[identity] = None
            if len(self._refused) > MAX_REFUSED:
                del self._refused[next(iter(self._refused))]
            effects += self._settled(identity, now_s, dropped=False)
        return effects

    def _release_model(self, held: PendingTransaction) -> list[Effect]:
        """A transaction waits no longer: its model is not needed for it."""
        digest = held.bundle.transaction.header.model_digest
        needing = self._needing.get(digest, set())
        needing.discard(held.id)
        if needing or digest not in self._needing:
            return []
        del self._needing[digest]
        self._unserved.pop(digest, None)
        self.fetches.end(digest)
        return [DiscardModel(digest)]


def _dropped(held: PendingTransaction, why: str) -> LogIncident:
    return LogIncident(held.from_peer, Incident.DROPPED, f"{held.id[:16]}…: {why}")
