"""One peer over HTTP: a request of ``fl_core.sync`` out, its response back, signed and bounded.

What an answer may look like is decided here, how it travels in ``channel``. A request without a usable answer is a
``LinkError``.
"""

import ssl
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar
from urllib.parse import urlencode

from anyio.to_thread import run_sync
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ValidationError

from fl_core.dag.acts import decode_signed_acts
from fl_core.errors import DagAcflError, GossipFrameError
from fl_core.joining import ServedCheckpoint
from fl_core.sync.act_set import MAX_ANSWER_ACTS
from fl_core.sync.effects import Failure
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
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
    ModelUnknown,
    ReconcileAnswer,
    ReconcileFrame,
    Request,
    Response,
    SummaryAnswer,
)
from fl_core.sync.node import CHECKPOINT_DEADLINE_S
from fl_core.sync.responder import MAX_ANSWER_BYTES
from fl_core.sync.summary import open_summary
from fl_core.types import Digest, TxId
from fl_core.wire import gossip_v1 as wire
from fl_core.wire.v1 import MODEL_MEDIA_TYPE, STEP_MEDIA_TYPE
from ledger_server.gossip.authorities import authorities
from ledger_server.gossip.channel import PeerChannel, Stream
from ledger_server.gossip.errors import LinkError
from ledger_server.gossip.framing import (
    LENGTH,
    MAX_TOGETHER_BYTES,
    NOT_HERE,
    PRUNED,
    TRANSACTIONS_MEDIA_TYPE,
    decode_transactions,
    encode_announcement,
)
from ledger_server.peers import Peer

_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_SMALL_ANSWER_BYTES: Final = 1 << 20
MAX_CHECKPOINT_BYTES: Final = 1 << 26
"""Some two million updates below the horizon."""

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class PeerLink:
    """Requests to one peer, over kept connections.

    Args:
        peer: Whom.
        key: This server's; it signs every request.
        limits: Bounds of answers.
        now_s: Seconds since 1970 UTC.
        nonce: Random bytes of a length.
        trust: Authorities whose certificates are believed; None: the system's.
        moved: Told kind, bytes sent and bytes received, bodies and heads, after every exchange.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        key: Ed25519PrivateKey,
        limits: GossipLimits,
        nonce: Callable[[int], bytes],
        now_s: Callable[[], float] = time.time,
        trust: ssl.SSLContext | None = None,
        moved: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.peer: Peer = peer
        self._limits = limits
        self._moved = moved or (lambda *_: None)
        self._channel = PeerChannel(
            peer,
            key=key,
            silence_s=limits.answer_deadline_s,
            connections=limits.models_per_peer + 4,
            nonce=nonce,
            now_s=now_s,
            trust=authorities(None) if trust is None and peer.url.startswith("https:") else trust,
            moved=self._exchanged,
        )

    def _exchanged(self, target: str, sent: int, received: int) -> None:
        route = target.removeprefix("/v1/gossip/").partition("?")[0].partition("/")[0]
        self._moved(_KINDS.get(route, "transactions"), sent, received)

    async def ask(self, request: Request) -> Response:
        """The response to anything but ``GetModel``.

        Raises:
            LinkError: There is none.
        """
        match request:
            case GetChanges(after, limit):
                return await self._changes(after, limit)
            case GetTransactions(ids):
                body = wire.TransactionsRequest(ids=list(ids)).model_dump_json().encode()
                answer = await self._exchange("POST", wire.TRANSACTIONS, body, limit=2 * MAX_ANSWER_BYTES)
                return _decoded(lambda: decode_transactions(answer))
            case GetSummary():
                answer = await self._exchange("GET", wire.SUMMARY)
                summary = _decoded(lambda: open_summary(answer))
                if summary.server not in (self.peer.public_key, self.peer.former):
                    raise LinkError(Failure.MALFORMED, "the summary is another server's")
                return SummaryAnswer(summary)
            case ReconcileFrame(frame):
                return ReconcileAnswer(await self._exchange("POST", wire.RECONCILIATION, frame, content_type=_BYTES))
            case GetActs(known):
                body = b"".join(map(bytes.fromhex, known))
                answer = await self._exchange("POST", wire.ACTS, body, content_type=_BYTES)
                return _decoded(lambda: Acts(decode_signed_acts(answer, most=MAX_ANSWER_ACTS)))
            case GetCheckpoint():
                answer = await self._exchange(
                    "GET", wire.CHECKPOINT, limit=MAX_CHECKPOINT_BYTES, within_s=CHECKPOINT_DEADLINE_S
                )
                maker = self.peer.public_key
                # In a thread: it hashes an id for each update.
                return await run_sync(_decoded, lambda: CheckpointAnswer(ServedCheckpoint(answer, maker=maker)))
            case GetModel():
                raise AssertionError("models are streamed by model()")

    async def _changes(self, after: str | None, limit: int) -> Changes | CursorUnknown:
        query = {"limit": str(limit)} | ({} if after is None else {"after": after})
        try:
            answer = await self._exchange("GET", f"{wire.CHANGES}?{urlencode(query)}")
        except LinkError as error:
            if error.status == 410:
                return CursorUnknown()
            raise
        page = _parsed(wire.ChangesOut, answer)
        return Changes(tuple(map(TxId, page.ids)), page.next, page.more)

    async def peers(self, *, within_s: float) -> wire.PeersSeenOut:
        """How many transactions the peer holds, and its own peers as it sees them.

        Raises:
            LinkError: It does not say.
        """
        return _parsed(wire.PeersSeenOut, await self._exchange("GET", wire.PEERS, within_s=within_s))

    async def announce(self, announcement: Announcement) -> None:
        """Send an announcement.

        Raises:
            LinkError: The peer was not reached, or refused it.
        """
        body = encode_announcement(announcement)
        await self._exchange("POST", wire.ANNOUNCEMENTS, body, content_type=TRANSACTIONS_MEDIA_TYPE)

    async def model(self, request: GetModel, *, base: Digest | None = None) -> Stream | ModelUnknown:
        """A model's bytes from ``request.start`` on, as they come; or that the peer does not have it.

        Args:
            request: Which.
            base: By which model it may come coded; the stream's media type says whether it does.

        Raises:
            LinkError: Here or while iterating: no bytes, or no more.
        """
        fields = {"range": f"bytes={request.start}-"} if request.start else {}
        if base is not None:
            fields["accept"] = f"{STEP_MEDIA_TYPE}; base={base}, {MODEL_MEDIA_TYPE}"
        target = wire.model_path(request.digest)
        # In pieces: who iterates decides by each whether the next is still wanted.
        stream = await self._channel.stream("GET", target, fields=fields, limit=request.size - request.start)
        if stream.status == (206 if request.start else 200):
            return stream
        await stream.aclose()
        if stream.status in (404, 410):
            return ModelUnknown(pruned=stream.status == 410)
        raise LinkError.refused(stream.status)

    async def models(
        self, digests: Sequence[Digest], *, within_s: float
    ) -> AsyncGenerator[tuple[Digest, bytes | ModelUnknown], None]:
        """Several small models in one answer, each as it comes; or that the peer does not have it.

        Args:
            digests: Which.
            within_s: When the whole answer must have come.

        Raises:
            LinkError: Here or while iterating: no models, or no more.
        """
        body = wire.ModelsRequest(digests=list(digests)).model_dump_json().encode()
        limit = len(digests) * (LENGTH.size + MAX_TOGETHER_BYTES)
        until_s = time.monotonic() + within_s
        stream = await self._channel.stream("POST", wire.MODELS, body, fields={"content-type": _JSON}, limit=limit)
        async with aclosing(stream):
            if stream.status != 200:
                raise LinkError.refused(stream.status)
            received = bytearray()
            wanted = iter(digests)
            digest = next(wanted, None)
            async for piece in stream:
                received += piece
                if time.monotonic() > until_s:
                    raise LinkError(Failure.TIMEOUT, f"models that take longer than {within_s:.0f} s")
                while digest is not None and len(received) >= LENGTH.size:
                    size = LENGTH.unpack_from(received)[0]
                    if size in (NOT_HERE, PRUNED):
                        del received[: LENGTH.size]
                        yield digest, ModelUnknown(pruned=size == PRUNED)
                        digest = next(wanted, None)
                        continue
                    if size > MAX_TOGETHER_BYTES:
                        raise LinkError(Failure.MALFORMED, f"a model of {size} bytes among small ones")
                    if len(received) < LENGTH.size + size:
                        break
                    data = bytes(received[LENGTH.size : LENGTH.size + size])
                    del received[: LENGTH.size + size]
                    yield digest, data
                    digest = next(wanted, None)
                if digest is None and received:
                    raise LinkError(Failure.MALFORMED, "more models than were asked for")

    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        limit: int = _SMALL_ANSWER_BYTES,
        within_s: float | None = None,
        content_type: str = _JSON,
    ) -> bytes:
        """A whole answer of at most ``limit`` bytes."""
        status, answer = await self._channel.send(
            method,
            path,
            body,
            fields={"content-type": content_type} if body else {},
            limit=limit,
            within_s=within_s or self._limits.answer_deadline_s,
        )
        if 200 <= status < 300:
            return answer
        raise LinkError.refused(status, answer)

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()


_KINDS: Final = {
    "announcements": "announcement",
    "changes": "changes",
    "summary": "summary",
    "models": "model",
    "reconciliation": "reconciliation",
    "acts": "acts",
    "checkpoint": "checkpoint",
    "peers": "peers",
}


def _decoded(read: Callable[[], T]) -> T:
    try:
        return read()
    except (GossipFrameError, DagAcflError, ValueError) as error:
        raise LinkError(Failure.MALFORMED, str(error)) from error


def _parsed(message: type[M], answer: bytes) -> M:
    try:
        return message.model_validate_json(answer)
    except ValidationError as error:
        raise LinkError(Failure.MALFORMED, f"not a {message.__name__}") from error
