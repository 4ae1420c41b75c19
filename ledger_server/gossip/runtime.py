"""Gossip, running: the loop around ``fl_core.sync.GossipNode`` that does what it decides.

All of the node's calls come from the event loop, so they never overlap. Requests to peers are tasks; admissions run in
the thread pool, one at a time, by the same ``LedgerService`` that admits what clients publish. A peer that is slow or
gone holds up its own requests and nothing else.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anyio.to_thread import run_sync
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.admission import check_header, check_signatures
from fl_core.dag.transaction import Transaction
from fl_core.errors import DagAcflError, ParentsUnknownError
from fl_core.models import Buffer
from fl_core.sync.checkpoint import Checkpoint, sign_checkpoint
from fl_core.sync.effects import Admit, Ask, DiscardBlob, Effect, Failure, Incident, KeepCursor, Notice, Tell
from fl_core.sync.items import ItemSet
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Announcement,
    BlobComplete,
    BlobCorrupt,
    BlobUnknown,
    GetBlob,
    Request,
    Response,
)
from fl_core.sync.node import GossipNode
from fl_core.sync.serving import Responder
from fl_core.types import Digest, PublicKey, TxId
from ledger_server.gossip.authorities import authorities
from ledger_server.gossip.cursors import CursorFile
from ledger_server.gossip.errors import LinkError
from ledger_server.gossip.incoming import Incoming
from ledger_server.gossip.journal import ServiceJournal
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer
from ledger_server.publishing import LedgerService
from ledger_server.store.errors import StoreError

if TYPE_CHECKING:
    from ledger_server.gossip.link import PeerLink

logger = logging.getLogger(__name__)

POLL_S: Final = 0.1
TOGETHER_BYTES: Final = 1 << 20
"""Small models are fetched several in one request, up to so many bytes: the request costs more than the model."""
MAX_REASONS: Final = 8
"""A peer that is down is often up again with another fault, so each reason is logged once, but not without end."""
SEEK_S: Final = 3.0
"""How long a client waits while peers are asked for its transaction."""
CURSORS_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PeerState:
    """What is known of a peer, for people."""

    peer: Peer
    is_neighbour: bool
    is_reachable: bool
    is_banned: bool
    last_heard_s: float | None
    received_bytes: int
    sent_bytes: int


class Gossip:
    """Keeps this server's ledger equal to its peers'.

    Args:
        service: The ledger.
        key: This server's.
        peers: Whom to speak to.
        others: Servers of the ledger that this one does not speak to: their neighbours do, and pass on what they hold.
        metrics: Where traffic and incidents are counted.
        data_dir: For cursors and models on their way.
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
        peers: Sequence[Peer],
        others: Sequence[Peer] = (),
        metrics: Metrics,
        data_dir: Path,
        limits: GossipLimits | None = None,
        trust: ssl.SSLContext | None = None,
        now_ms: Callable[[], int],
        seed: int | None = None,
    ) -> None:
        self._service, self._metrics, self._now_ms = service, metrics, now_ms
        self.limits = limits = limits or limits_for(service.genesis.layout.nbytes)
        self._key = key
        service.selections.trusted_issuers |= {peer.public_key for peer in (*peers, *others)}
        self._others = tuple(others)
        self._peers = {peer.public_key: peer for peer in peers}
        from ledger_server.gossip.link import PeerLink  # noqa: PLC0415 -- an HTTP client's 4 MB, for those with peers

        trust = trust or authorities(None)
        self._links = {
            peer.public_key: PeerLink(
                peer,
                key=key,
                limits=limits,
                nonce=secrets.token_bytes,
                now_s=lambda: now_ms() / 1000,
                trust=trust,
                moved=self._counter(peer),
            )
            for peer in peers
        }
        self._items = ItemSet((node.depth, node.id) for node in service.ledger)
        self._journal = ServiceJournal(service)
        self._cursors = CursorFile(data_dir / "gossip-cursors.json", epoch=self._journal.epoch)
        self._incoming = Incoming(
            data_dir / "incoming", size=service.genesis.layout.nbytes, here=service.model_in_memory
        )
        self._responder = Responder(
            service.ledger, self._journal, self._items, checkpoint=self.checkpoint, frame_bytes=limits.frame_bytes
        )
        self._node = GossipNode(
            service.ledger,
            self._items,
            checkpoint=self.checkpoint,
            peers=list(self._peers),
            blobs=self._incoming,
            check=self._check,
            rng=random.Random(seed),  # noqa: S311 -- jitter
            now_s=time.monotonic(),
            cursors={peer: cursor for peer, cursor in self._cursors.cursors.items() if peer in self._peers},
            relay=bool(others),
            limits=limits,
        )
        self._heard_s: dict[PublicKey, float] = {}
        self._failing: dict[PublicKey, set[str]] = {}
        """Peers that do not answer, each with the reasons that the log has told since it last did."""
        self._moved: dict[PublicKey, list[int]] = {peer: [0, 0] for peer in self._peers}
        self._sought: dict[TxId, list[asyncio.Event]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._service.on_published = self._published_in_thread
        self._main = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """End: what is on its way is dropped, and asked for again after the next start."""
        self._service.on_published = None
        tasks = [task for task in (self._main, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in self._links.values():
            await link.close()
        self._cursors.flush()
        self._incoming.close()

    async def _run(self) -> None:
        flushed_s = time.monotonic()
        while True:
            now_s = time.monotonic()
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
        small: dict[PublicKey, list[Ask]] = {}
        for effect in effects:
            match effect:
                case Ask(request=GetBlob(start=0, size=size)) if 2 * size <= TOGETHER_BYTES:
                    small.setdefault(effect.peer, []).append(effect)
                case Ask(request=GetBlob()):
                    self._spawn(self._fetch(effect))
                case Ask():
                    self._spawn(self._ask(effect))
                case Tell(peer, announcement):
                    self._spawn(self._tell(peer, announcement))
                case Admit():
                    self._spawn(self._admit(effect))
                case DiscardBlob(digest):
                    self._incoming.discard(digest)
                case KeepCursor(peer, cursor):
                    self._cursors.keep(peer, cursor)
                case Notice():
                    self._note(effect)
        for asks in small.values():
            self._spawn(self._fetch(asks[0]) if len(asks) == 1 else self._fetch_together(asks))

    async def _ask(self, ask: Ask) -> None:
        try:
            response = await self._links[ask.peer].ask(ask.request)
        except LinkError as error:
            self._failed(ask, error)
            return
        self._reached(ask.peer)
        self._then(self._node.answered(ask, response, time.monotonic()))

    async def _fetch(self, ask: Ask) -> None:
        request = ask.request
        assert isinstance(request, GetBlob), "the caller has matched it"
        try:
            pieces = await self._links[ask.peer].blob(request)
            if isinstance(pieces, BlobUnknown):
                self._then(self._node.answered(ask, pieces, time.monotonic()))
                return
            async with contextlib.aclosing(pieces):
                if not self._incoming.begin(request.digest, start=request.start):
                    return
                async for piece in pieces:
                    moved = self._node.blob_progress(ask, time.monotonic())
                    if moved is None or not self._incoming.write(request.digest, piece):
                        return
                    ask = moved
            is_sound = self._incoming.finish(request.digest)
        except LinkError as error:
            self._failed(ask, error)
            return
        except OSError as error:
            logger.warning("a peer's model cannot be kept", extra={"reason": str(error)})
            self._then(self._node.failed(ask, time.monotonic(), kind=Failure.UNREACHABLE))
            return
        self._reached(ask.peer)
        if is_sound is None:
            self._failed(ask, LinkError(Failure.UNREACHABLE, "the model ended too early"))
            return
        end: Response = BlobComplete() if is_sound else BlobCorrupt()
        self._then(self._node.answered(ask, end, time.monotonic()))

    async def _fetch_together(self, asks: list[Ask]) -> None:
        """Several small models in one answer; they are settled together, so that the next are asked for together."""
        waiting = {ask.request.digest: ask for ask in asks if isinstance(ask.request, GetBlob)}
        ended: list[tuple[Ask, Response]] = []
        failure: LinkError | None = None
        try:
            within_s = self.limits.blob_stall_s + TOGETHER_BYTES / self.limits.blob_min_bytes_per_s
            answer = self._links[asks[0].peer].blobs(list(waiting), within_s=within_s)
            async with contextlib.aclosing(answer) as models:
                async for digest, data in models:
                    ended.append((waiting[digest], self._taken(waiting[digest], data)))
                    del waiting[digest]
                    now_s = time.monotonic()
                    waiting = {each: self._node.blob_progress(ask, now_s) or ask for each, ask in waiting.items()}
        except LinkError as error:
            failure = error
        except OSError as error:
            logger.warning("a peer's model cannot be kept", extra={"reason": str(error)})
            failure = LinkError(Failure.UNREACHABLE, "the model cannot be kept")
        else:
            self._reached(asks[0].peer)
        now_s = time.monotonic()
        for ask, response in ended:
            self._then(self._node.answered(ask, response, now_s))
        for ask in waiting.values():
            self._failed(ask, failure or LinkError(Failure.UNREACHABLE, "the answer ended too early"))

    def _taken(self, ask: Ask, data: bytes | BlobUnknown) -> Response:
        """A small model that came whole, or not at all."""
        request = ask.request
        assert isinstance(request, GetBlob), "the caller has matched it"
        if isinstance(data, BlobUnknown):
            return data
        self._incoming.begin(request.digest, start=0)
        is_sound = self._incoming.write(request.digest, data) and self._incoming.finish(request.digest)
        if not is_sound:
            self._incoming.discard(request.digest)
        return BlobComplete() if is_sound else BlobCorrupt()

    async def _tell(self, peer: PublicKey, announcement: Announcement) -> None:
        try:
            await self._links[peer].tell(announcement)
        except LinkError as error:
            logger.debug("announcement lost", extra={"peer": self._peers[peer].name, "reason": str(error)})

    async def _admit(self, effect: Admit) -> None:
        digest = effect.carried.transaction.header.model_digest
        model = self._at_hand(digest)
        try:
            if model is None:
                self._then(self._node.model_gone(effect.id, time.monotonic()))
                return
            await run_sync(self._service.admit_remote, effect.carried, model)
        except (StoreError, ParentsUnknownError) as error:
            logger.warning("a peer's transaction waits", extra={"transaction": effect.id, "reason": str(error)})
            self._then(self._node.deferred(effect.id, time.monotonic()))
        except DagAcflError as error:
            self._then(self._node.refused(effect.id, time.monotonic(), reason=str(error)))
            self._let_go(digest)
        else:
            self._metrics.gossip_admitted.inc()
            self._then(self._node.admitted(effect.id, time.monotonic()))
            self._let_go(digest)
            self._arrived(effect.id)

    def _at_hand(self, digest: Digest) -> Buffer | None:
        """A model that came, unless the disk does not give it back."""
        try:
            return self._incoming.data(digest)
        except OSError as error:
            logger.warning("a peer's model cannot be read", extra={"reason": str(error)})
            self._incoming.discard(digest)
            return None

    def _let_go(self, digest: Digest) -> None:
        """Of an admitted or refused transaction's model, unless another that waits has the same."""
        if not self._node.needs_model(digest):
            self._incoming.discard(digest)

    def _arrived(self, transaction: TxId) -> None:
        for waiting in self._sought.get(transaction, ()):
            waiting.set()

    def _failed(self, ask: Ask, error: LinkError) -> None:
        peer = self._peers[ask.peer]
        if error.kind is not Failure.REFUSED:
            told = self._failing.setdefault(ask.peer, set())
            reason = str(error)
            if reason not in told and len(told) < MAX_REASONS:
                told.add(reason)
                logger.warning("peer does not answer", extra={"peer": peer.name, "reason": reason})
        self._then(self._node.failed(ask, time.monotonic(), kind=error.kind))

    def _reached(self, peer: PublicKey) -> None:
        self._heard_s[peer] = self._now_ms() / 1000
        if peer in self._failing:
            del self._failing[peer]
            logger.info("peer answers again", extra={"peer": self._peers[peer].name})

    def _note(self, notice: Notice) -> None:
        name = self._peers[notice.peer].name
        self._metrics.gossip_incidents.labels(name, notice.incident.value).inc()
        level = logging.ERROR if notice.incident in (Incident.BANNED, Incident.ROLLED_BACK) else logging.INFO
        logger.log(level, "gossip", extra={"peer": name, "incident": notice.incident.value, "detail": notice.detail})

    def _counter(self, peer: Peer) -> Callable[[str, int, int], None]:
        def moved(kind: str, sent: int, received: int) -> None:
            total = self._moved[peer.public_key]
            total[0] += received
            total[1] += sent
            self._metrics.gossip_bytes.labels(peer.name, kind, "sent").inc(sent)
            self._metrics.gossip_bytes.labels(peer.name, kind, "received").inc(received)

        return moved

    # -- the ledger's side ------------------------------------------------------------------------

    def _published_in_thread(self, transaction: Transaction) -> None:
        """A client's transaction became visible; called in a worker's thread."""
        assert self._loop is not None, "start comes first"
        announcement = Announcement.of(transaction)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._published, announcement)

    def _published(self, announcement: Announcement) -> None:
        self._then(self._node.published(announcement, time.monotonic()))
        self._arrived(announcement.id)

    def _check(self, transaction: Transaction) -> None:
        check_header(transaction.header, genesis=self._service.genesis, ledger=self._service.id)
        check_signatures(transaction, genesis=self._service.genesis)

    def checkpoint(self) -> Checkpoint:
        """What this server holds, as of now."""
        count, tips = self._service.tips()
        return Checkpoint(
            ledger=self._service.id,
            server=self._service.public_key,
            epoch=self._journal.epoch,
            count=count,
            tips_digest=self._service.tips_digest(tips),
            set_sum=self._items.total_sum,
            created_at_ms=self._now_ms(),
        )

    # -- what peers ask ---------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """The answer to anything but ``GetBlob``.

        Raises:
            GossipFrameError: A frame breaks a rule.
        """
        return self._responder.answer(request)

    def announced(self, peer: PublicKey, announcement: Announcement) -> None:
        """A peer says that it holds a transaction."""
        self._reached(peer)
        self._then(self._node.announced(peer, announcement, time.monotonic()))

    def heard(self, peer: PublicKey) -> None:
        """A peer asked something: it is reachable."""
        self._reached(peer)
        self._node.heard(peer)

    def knows(self, peer: PublicKey) -> bool:
        """Whether this server speaks to the peer, and has not banned it."""
        return peer in self._peers and not self._node.is_banned(peer)

    def sign(self, checkpoint: Checkpoint) -> bytes:
        """This server's signature of its checkpoint."""
        return sign_checkpoint(self._key, checkpoint)

    def announcement_of(self, transaction: TxId) -> Announcement:
        """What is announced of a transaction that is here.

        Raises:
            TransactionUnknownError: It is not.
        """
        return Announcement.of(self._service.view(transaction).stored.transaction)

    # -- what clients need ------------------------------------------------------------------------

    async def seek(self, transaction: TxId) -> bool:
        """Ask the peers for a transaction that a client names and that is not here; whether it came in time."""
        came = asyncio.Event()
        self._sought.setdefault(transaction, []).append(came)
        asked = asyncio.create_task(self._is_held_by_a_peer(transaction))
        arrived = asyncio.create_task(came.wait())
        try:
            if transaction in self._service.ledger:  # it came after the client had been told that it is not here
                return True
            async with asyncio.timeout(SEEK_S):
                # It may be on its way already: a peer that is slow to answer holds nobody up.
                await asyncio.wait((asked, arrived), return_when=asyncio.FIRST_COMPLETED)
                return arrived.done() or (await asked and await arrived)
        except TimeoutError:
            return False
        finally:
            asked.cancel()
            arrived.cancel()
            waiting = self._sought[transaction]
            waiting.remove(came)
            if not waiting:
                del self._sought[transaction]

    async def seek_all(self, transactions: Sequence[TxId]) -> bool:
        """As ``seek``, for several at once; whether all came in time."""
        return all(await asyncio.gather(*map(self.seek, transactions)))

    async def _is_held_by_a_peer(self, transaction: TxId) -> bool:
        return any(await asyncio.gather(*(self._holder(link, transaction) for link in self._links.values())))

    async def _holder(self, link: "PeerLink", transaction: TxId) -> bool:
        if not self.knows(link.peer.public_key):
            return False
        try:
            announcement = await link.holds(transaction)
        except LinkError:
            return False
        if announcement is None or announcement.id != transaction:
            return False
        self.announced(link.peer.public_key, announcement)
        return True

    def peers(self) -> list[PeerState]:
        """What is known of each peer, and which servers are left to others."""
        spoken_to = [
            PeerState(
                peer,
                is_neighbour=True,
                is_reachable=key in self._heard_s and key not in self._failing,
                is_banned=self._node.is_banned(key),
                last_heard_s=self._heard_s.get(key),
                received_bytes=self._moved[key][0],
                sent_bytes=self._moved[key][1],
            )
            for key, peer in self._peers.items()
        ]
        return spoken_to + [
            PeerState(
                peer,
                is_neighbour=False,
                is_reachable=False,
                is_banned=False,
                last_heard_s=None,
                received_bytes=0,
                sent_bytes=0,
            )
            for peer in self._others
        ]


def limits_for(model_bytes: int) -> GossipLimits:
    """The bounds for models of this size: as many small ones at a time as fit into one request."""
    usual = GossipLimits()
    return replace(usual, blobs_per_peer=min(max(TOGETHER_BYTES // model_bytes, usual.blobs_per_peer), 64))
