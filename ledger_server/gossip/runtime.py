"""The loop around ``fl_core.sync.node.GossipNode`` that does what it decides.

All of the node's calls come from the event loop, so they never overlap. Requests to peers are tasks; admissions run in
the thread pool, a batch at a time, by the same ``LedgerService`` that admits what clients publish. A peer that is slow
or gone holds up its own requests and nothing else. ``downloads`` fetches models.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import ssl
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anyio.to_thread import run_sync
from cachetools import LRUCache
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from opentelemetry.context import Context

from fl_core.dag.acts import ActKind, SignedAct
from fl_core.dag.admission import check_header
from fl_core.dag.transaction import Transaction
from fl_core.errors import (
    CheckpointRefusedError,
    DagAcflError,
    ParentsUnknownError,
    SignatureError,
    StepTooLongError,
    TransactionError,
)
from fl_core.models import Buffer
from fl_core.sync.act_set import ActSet
from fl_core.sync.effects import (
    Admit,
    Announce,
    DiscardModel,
    Effect,
    Failure,
    KeepActs,
    LogIncident,
    SaveCursor,
    SendRequest,
)
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Announcement,
    CheckpointAnswer,
    GetModel,
    GetTransactions,
    Request,
    Response,
    SummaryAnswer,
    TransactionBundle,
    Transactions,
)
from fl_core.sync.node import GossipNode
from fl_core.sync.responder import Responder
from fl_core.sync.summary import StateSummary, sign_summary
from fl_core.types import Digest, PublicKey, TxId, digest_of
from fl_core.wire import gossip_v1 as wire
from ledger_server import tracing
from ledger_server.gossip.authorities import authorities
from ledger_server.gossip.checkpoints import OwnCheckpoint
from ledger_server.gossip.contacts import Contacts, PeerState
from ledger_server.gossip.cursors import CursorFile
from ledger_server.gossip.downloads import TOGETHER_BYTES, Downloads
from ledger_server.gossip.errors import LinkError
from ledger_server.gossip.incoming import Incoming
from ledger_server.gossip.journal import ServiceJournal
from ledger_server.gossip.outbox import Outbox
from ledger_server.gossip.overlay import overlay_neighbours
from ledger_server.gossip.seeking import Seeker
from ledger_server.gossip.unfolding import Unfolding
from ledger_server.gossip.views import PeerViews
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer
from ledger_server.publishing import LedgerService, Received
from ledger_server.store.errors import StoreError

if TYPE_CHECKING:
    from ledger_server.gossip.link import PeerLink

logger: logging.Logger = logging.getLogger(__name__)

Outcome: TypeAlias = bool | BaseException | None
"""Of an admission: as ``LedgerService.admit_received`` says, or None where the model cannot be read any more."""

POLL_S: Final = 0.1
CURSORS_S: Final = 1.0
_TRACES: Final = 1024
"""Announced updates whose trace is remembered until they are admitted."""


class Gossip:
    """Keeps this server's ledger equal to its peers'.

    Args:
        service: The ledger.
        key: This server's.
        peers: The other servers as of now; asked again when members' acts are new here.
        overlay: Whom of them to speak to, a name in ``OVERLAYS``; the neighbours of the others pass on what those hold.
        is_coded: Whether large models are asked for coded.
        on_peers: Told of the peers when they are others than before.
        metrics: Where traffic and incidents are counted.
        data_dir: For cursors and models on their way.
        place: A number of this process's own among those that serve from the folder.
        leader_has_caught_up: Whether the process that leads in place of this one has what peers hold.
        limits: Intervals and bounds.
        trust: Authorities whose certificates are believed where peers speak TLS; None: the system's.
        now_ms: Milliseconds since 1970 UTC.
        seed: Of jitter.
    """

    def __init__(
        self,
        service: LedgerService,
        *,
        key: Ed25519PrivateKey,
        peers: Callable[[], Sequence[Peer]],
        overlay: str = "complete",
        is_coded: bool = False,
        on_peers: Callable[[Sequence[Peer]], None] = lambda _: None,
        metrics: Metrics,
        data_dir: Path,
        place: int = 0,
        leader_has_caught_up: Callable[[], bool] = lambda: False,
        limits: GossipLimits | None = None,
        trust: ssl.SSLContext | None = None,
        now_ms: Callable[[], int],
        seed: int | None = None,
    ) -> None:
        self._service, self._metrics, self._now_ms, self._key = service, metrics, now_ms, key
        limits = limits or limits_for(service.genesis.layout.nbytes)
        self.limits: GossipLimits = limits
        self._find_peers, self._overlay, self._on_peers, self._trust = peers, overlay, on_peers, trust
        self._known: tuple[Peer, ...] = ()
        self._peers: dict[PublicKey, Peer] = {}
        self._contacts = Contacts(metrics=metrics, now_ms=now_ms)
        self._links: dict[PublicKey, PeerLink] = {}
        """Also of peers that have left, closed: something may be under way."""
        self.acts: ActSet = ActSet(service.id)
        """The acts that are kept here."""
        self.acts.merge(service.acts.all())
        self._checkpoint = OwnCheckpoint(service, key=key, now_ms=now_ms)
        self._items = service.items
        self._journal = ServiceJournal(service)
        self._cursors = CursorFile(data_dir / "gossip-cursors.json", epoch=self._journal.epoch)
        size = service.genesis.layout.nbytes
        folder = data_dir / (f"incoming-{place}" if place else "incoming")
        self._incoming = Incoming(folder, size=size, here=service.models.cached)
        self._responder = Responder(self._journal, self._items, self.acts, summary=self.summary)
        self._node = GossipNode(
            service.ledger,
            self._items,
            acts=self.acts,
            summary=self.summary,
            peers=(),
            models=self._incoming,
            check=self._check,
            rng=random.Random(seed),  # noqa: S311 -- jitter
            now_s=time.monotonic(),
            checkpoints=service.acts.checkpoints.values(),
            is_erased=lambda author: author in service.acts.quarantine.erased,
            limits=limits,
        )
        self._downloads = Downloads(
            self._node,
            self._links,
            self._incoming,
            limits=limits,
            unfold=Unfolding(service) if is_coded else None,
            shared=service.store.others_model if service.store.is_shared else None,
            then=self._then,
            failed=self._failed,
        )
        self._seeker = Seeker(
            peers=lambda: [peer for peer in self._peers if self.knows(peer)],
            ask=self._ask_for,
            came=self._sought,
            is_here=service.ledger.__contains__,
        )
        self.views: PeerViews = PeerViews(
            peers=lambda: [peer for key, peer in self._peers.items() if self.knows(key)], ask=self._peers_of
        )
        self._outbox = Outbox(self._links, spawn=self._spawn, model_in_memory=service.models.cached)
        self._traces: LRUCache[Digest, Context] = LRUCache(_TRACES)
        """By the model, which is fetched before the update is admitted."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._has_caught_up, self._leader_has_caught_up = False, leader_has_caught_up
        self._acts_are_new = False
        self._meet(tuple(peers()))

    # -- who the peers are ------------------------------------------------------------------------

    def _meet(self, found: tuple[Peer, ...]) -> None:
        """Begin with the peers that are new, and end with those that have left."""
        if found == self._known:
            return
        self._known = found
        near = overlay_neighbours(self._service.public_key, found, self._overlay)
        before, self._peers = self._peers, {peer.public_key: peer for peer in near}
        others = [peer for peer in found if peer.public_key not in self._peers]
        self._contacts.set_peers(near, others)
        effects: list[Effect] = []
        for key, peer in before.items():
            if self._peers.get(key) != peer:
                effects += self._node.left(key, time.monotonic())
                self._links[key].close()
        for key, peer in self._peers.items():
            if before.get(key) != peer:
                self._links[key] = self._link_to(peer)
                cursors = self._cursors.cursors
                cursor = cursors.get(key) or (None if peer.former is None else cursors.get(peer.former))
                self._node.joined(key, time.monotonic(), cursor=cursor)
        self._node.relay = bool(others)
        issuers = [key for peer in found for key in (peer.public_key, peer.former) if key is not None]
        self._service.selections.trusted_issuers = frozenset([self._service.public_key, *issuers])
        self._on_peers(found)
        if self._loop is not None:  # else it has just been told at the start
            logger.info("peers are others now", extra={"peers": [peer.name for peer in found]})
        self._then(effects)

    def _link_to(self, peer: Peer) -> "PeerLink":
        from ledger_server.gossip.link import PeerLink  # noqa: PLC0415 -- an HTTP client's 4 MB, for those with peers

        if self._trust is None and peer.url.startswith("https:"):
            self._trust = authorities(None)
        return PeerLink(
            peer,
            key=self._key,
            limits=self.limits,
            nonce=secrets.token_bytes,
            now_s=lambda: self._now_ms() / 1000,
            trust=self._trust,
            moved=partial(self._contacts.moved, peer.public_key),
        )

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._service.on_published = self._published_in_thread
        self._service.on_read = self._read_in_thread
        self._service.acts.on_kept = self._act_kept_in_thread
        self._main = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """End: what is on its way is dropped, and asked for again after the next start."""
        self._service.on_published = lambda _, __: None
        self._service.on_read = lambda _: None
        self._service.acts.on_kept = None
        tasks = [task for task in (self._main, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in self._links.values():
            link.close()
        self._cursors.flush()
        self._incoming.close()

    async def _run(self) -> None:
        flushed_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            if self._acts_are_new:
                self._acts_are_new = False
                # In a thread: while an act is being stored, who the members are waits.
                self._meet(tuple(await run_sync(self._find_peers)))
                self._do(self._node.acts_kept())
            self._do(self._node.poll(now_s))
            if now_s >= flushed_s + CURSORS_S:
                flushed_s = now_s
                self._cursors.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._wake.wait()
            self._wake.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None, "start comes first"
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("gossip failed", exc_info=error)

    # -- what the node wants done -----------------------------------------------------------------

    def _then(self, effects: list[Effect]) -> None:
        """Do what a call of the node led to, and ask it at once what is due now."""
        self._do(effects)
        self._wake.set()

    def _do(self, effects: list[Effect]) -> None:  # noqa: C901 -- a case per effect
        small: dict[PublicKey, list[SendRequest]] = {}
        for effect in effects:
            match effect:
                case SendRequest(request=GetModel() as request):
                    if self._downloads.is_small(request):
                        small.setdefault(effect.peer, []).append(effect)
                    else:
                        with tracing.resumed(self._traces.get(request.digest)):
                            self._spawn(self._downloads.fetch(effect))
                case SendRequest():
                    self._spawn(self._request(effect))
                case Announce():
                    self._outbox.put(effect)
                case KeepActs(peer, acts):
                    self._spawn(self._keep_acts(peer, acts))
                case DiscardModel(digest):
                    self._incoming.discard(digest)
                case SaveCursor(peer, cursor):
                    self._cursors.keep(peer, cursor)
                case LogIncident():
                    self._contacts.log(effect)
        for requests in small.values():
            self._spawn(self._downloads.fetch_together(requests))
        if admits := [effect for effect in effects if isinstance(effect, Admit)]:
            self._spawn(self._admit(admits))

    async def _keep_acts(self, peer: PublicKey, acts: tuple[SignedAct, ...]) -> None:
        # In the order of their numbers: who signs the later ones may be made a member by the earlier.
        for signed in sorted(acts, key=lambda each: (each.act.number, each.id)):
            try:
                is_refused = not await run_sync(self._service.acts.admit, signed)  # besides, only strangers signed it
            except SignatureError as error:
                self._then(self._node.act_forged(peer, time.monotonic(), reason=str(error)))
                return
            except (TransactionError, StoreError) as error:
                logger.warning("an act cannot be kept", extra={"act": signed.id, "reason": str(error)})
                # Of an author that rotates itself, the first update can be on its way.
                is_refused = isinstance(error, TransactionError) and signed.act.kind is not ActKind.ROTATE_SELF
            if is_refused:
                self.acts.refuse(signed)

    async def _request(self, sent: SendRequest) -> None:
        try:
            response = await self._links[sent.peer].ask(sent.request)
            if isinstance(response, CheckpointAnswer):
                await self._go_by(sent.peer, response)
        except LinkError as error:
            self._failed(sent, error)
        else:
            self._contacts.answered(sent.peer)
            if isinstance(response, SummaryAnswer):
                self._contacts.showed(sent.peer, response.summary.count)
            self._then(self._node.answered(sent, response, time.monotonic()))

    async def _go_by(self, peer: PublicKey, answer: CheckpointAnswer) -> None:
        """Keep a peer's checkpoint before anything is admitted by it.

        Raises:
            LinkError: This ledger does not go by it, or it cannot be kept.
        """
        found, name = answer.served.checkpoint, self._contacts.name(peer)
        try:
            await run_sync(self._service.acts.go_by, answer.served)
        except CheckpointRefusedError as error:
            logger.warning("a peer's checkpoint is refused", extra={"peer": name, "reason": str(error)})
            raise LinkError(Failure.REFUSED, str(error)) from error
        except StoreError as error:
            raise LinkError(Failure.LOCAL, str(error)) from error
        about = {"peer": name, "updates": found.below.count, "horizon_ms": found.horizon_ms}
        logger.warning("models that nobody serves are taken on a peer's word", extra=about)

    async def _admit(self, batch: list[Admit]) -> None:
        updates: list[tuple[Admit, dict[str, str], Context | None]] = []
        with contextlib.ExitStack() as spans:
            for effect in batch:
                header = effect.bundle.transaction.header
                about = {
                    "transaction": effect.id,
                    "author": header.author,
                    "peer": self._contacts.name(effect.from_peer),
                }
                spans.enter_context(tracing.resumed(self._traces.pop(header.model_digest, None)))
                spans.enter_context(tracing.span("gossip receive", **about))
                updates.append((effect, about, tracing.current()))
            try:
                traced = [(effect, trace) for effect, _, trace in updates]
                outcomes: Sequence[Outcome] = await run_sync(self._admit_in_thread, traced)
            except Exception as error:  # noqa: BLE001 -- else nothing more would be admitted from anybody
                outcomes = [error] * len(batch)
        effects: list[Effect] = []
        for (effect, about, _), outcome in zip(updates, outcomes, strict=True):
            effects += self._admitted(effect, outcome, about)
        self._then(effects)

    def _admitted(self, effect: Admit, outcome: Outcome, about: dict[str, str]) -> list[Effect]:
        """Say what came of an admission."""
        now_s = time.monotonic()
        match outcome:
            case StoreError() | ParentsUnknownError():
                logger.warning("a peer's transaction waits", extra={"transaction": effect.id, "reason": str(outcome)})
                self._node.deferred(effect.id, now_s)
            case DagAcflError():
                is_relative = isinstance(outcome, StepTooLongError)
                return self._node.refused(effect.id, now_s, reason=str(outcome), is_to_blame=not is_relative)
            case BaseException():
                about_it = {"transaction": effect.id}
                logger.error("a peer's transaction could not be admitted", extra=about_it, exc_info=outcome)
                self._node.deferred(effect.id, now_s)
            case None:
                self._incoming.discard(effect.bundle.transaction.header.model_digest)
                self._node.model_lost(effect.id)
            case _:
                self._metrics.gossip_admitted.inc()
                logger.info("update received", extra=about)
                self._seeker.arrived(effect.id)
                return self._node.admitted(effect.id, now_s)
        return []

    def _admit_in_thread(self, batch: list[tuple[Admit, Context | None]]) -> list[Outcome]:
        """Admit peers' transactions, as far as their models can be read."""
        updates: dict[TxId, Received] = {}
        for effect, trace in batch:
            model: Buffer | None = None
            if effect.norm is None:
                try:
                    model = self._incoming.data(effect.bundle.transaction.header.model_digest)
                except OSError as error:
                    logger.warning("a peer's model cannot be read", extra={"reason": str(error)})
                if model is None:
                    continue
            updates[effect.id] = Received(
                transaction=effect.bundle.transaction,
                attachment=effect.bundle.attachment,
                model=model,
                norm=effect.norm or 0.0,
                trace=trace,
            )
        outcomes = dict(zip(updates, self._service.admit_received([*updates.values()]), strict=True))
        return [outcomes.get(effect.id) for effect, _ in batch]

    def _failed(self, sent: SendRequest, error: LinkError) -> None:
        self._contacts.failed(sent.peer, error)
        self._then(self._node.failed(sent, time.monotonic(), kind=error.kind))

    # -- the ledger's side ------------------------------------------------------------------------

    def _published_in_thread(self, transaction: Transaction, attachment: bytes | None) -> None:
        """A client's transaction became visible; called in a worker's thread."""
        assert self._loop is not None, "start comes first"
        bundle = TransactionBundle(transaction, attachment)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._published, bundle)

    def _read_in_thread(self, transaction: TxId) -> None:
        """Another writer's transaction became visible; called in a worker's thread."""
        assert self._loop is not None, "start comes first"
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._entered, transaction)

    def _act_kept_in_thread(self, signed: SignedAct) -> None:
        """An act, or a signature of it, is new here."""
        assert self._loop is not None, "start comes first"
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._act_kept, signed)

    def _act_kept(self, signed: SignedAct) -> None:
        self.acts.merge((signed,))
        self._acts_are_new = True
        self._wake.set()

    def _published(self, bundle: TransactionBundle) -> None:
        self._then(self._node.published(bundle, time.monotonic()))
        self._seeker.arrived(bundle.id)

    def _entered(self, transaction: TxId) -> None:
        self._then(self._node.admitted(transaction, time.monotonic()))
        self._seeker.arrived(transaction)

    def _check(self, transaction: Transaction) -> None:
        check_header(transaction.header, genesis=self._service.genesis, ledger=self._service.id)
        transaction.verify_signatures(keys_only=self._service.genesis.keys_only)

    def summary(self) -> StateSummary:
        """What this server holds, as of now."""
        count, tips = self._service.tips()
        return StateSummary(
            ledger=self._service.id,
            server=self._service.public_key,
            epoch=self._journal.epoch,
            count=count,
            tips_digest=self._service.tips_digest(tips),
            set_sum=self._items.total_sum,
            acts_digest=self.acts.digest,
            created_at_ms=self._now_ms(),
        )

    # -- what peers ask ---------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """The answer to anything but ``GetModel`` and ``GetCheckpoint``.

        Raises:
            GossipFrameError: A frame breaks a rule.
        """
        return self._responder.answer(request)

    def checkpoint(self) -> bytes:
        """This server's checkpoint as it travels; reads the journal.

        Raises:
            StoreError: The journal cannot be read.
        """
        return self._checkpoint.served()

    def announced(self, peer: PublicKey, announcement: Announcement) -> None:
        """A peer says that it holds transactions."""
        self._contacts.heard(peer)
        if announcement.bundles and (trace := tracing.current()) is not None:  # of several, it is the first one's
            self._traces[announcement.bundles[0].transaction.header.model_digest] = trace
        models = ((digest_of(model), model) for model in announcement.models)
        brought = [digest for digest, model in models if self._incoming.take_whole(digest, model)]
        self._then(self._node.announced(peer, announcement, time.monotonic()))
        for digest in brought:
            if not self._node.needs_model(digest):
                self._incoming.discard(digest)

    def heard(self, peer: PublicKey) -> None:
        """A peer asked something: it is reachable."""
        self._contacts.heard(peer)
        self._node.heard(peer)

    @property
    def has_caught_up(self) -> bool:
        """Whether all that some peer holds has come since the start, or no peer answered; once so, for good.

        Of a process that does not lead, for a thread: it asks whether the leader has said so.
        """
        if not self._has_caught_up:
            self._has_caught_up = self._node.has_caught_up or (not self.leads and self._leader_has_caught_up())
        return self._has_caught_up

    @property
    def leads(self) -> bool:
        """Whether this process reads peers' journals; others take part in what is announced to them, and published."""
        return self._node.leads

    @leads.setter
    def leads(self, leads: bool) -> None:
        self._node.leads = leads
        self._wake.set()

    def knows(self, peer: PublicKey) -> bool:
        """Whether this server speaks to the peer, and has not banned it."""
        return peer in self._peers and not self._node.is_banned(peer)

    def signed_summary(self) -> bytes:
        """This server's summary as it travels."""
        return sign_summary(self.summary(), self._key)

    # -- what clients need ------------------------------------------------------------------------

    async def seek(self, transactions: Collection[TxId], *, client: str) -> bool:
        """Ask the peers for what a client names and is not here; whether all of it came in time."""
        return await self._seeker.seek(transactions, client=client)

    async def _ask_for(self, peer: PublicKey, transactions: tuple[TxId, ...]) -> Transactions | None:
        try:
            answer = await self._links[peer].ask(GetTransactions(transactions))
        except LinkError:
            return None
        assert isinstance(answer, Transactions), "what answers GetTransactions"
        return answer

    def _sought(self, peer: PublicKey, answer: Transactions) -> None:
        self.announced(peer, Announcement(answer.found))

    def peers(self) -> list[PeerState]:
        """What is known of each peer, and which servers are left to others."""
        return self._contacts.states(is_banned=self._node.is_banned)

    async def _peers_of(self, peer: PublicKey, within_s: float) -> wire.PeersSeenOut:
        try:
            said = await self._links[peer].peers(within_s=within_s)
        except LinkError as error:
            if error.kind is not Failure.REFUSED:  # as those of an older release do
                self._contacts.failed(peer, error)
            raise
        self._contacts.answered(peer)
        self._contacts.showed(peer, said.transactions)
        return said


def limits_for(model_bytes: int) -> GossipLimits:
    """The bounds for models of this size: as many small ones at a time as fit into one request."""
    usual = GossipLimits()
    return replace(usual, models_per_peer=min(max(TOGETHER_BYTES // model_bytes, usual.models_per_peer), 64))
