"""One peer over HTTP: a request of ``fl_core.sync`` out, its response back, signed and bounded.

Nothing that a peer answers is believed beyond its form: sizes are capped while they stream, encodings and redirects
are refused, proxies of the environment are not used. An answer that drips is given up as one that does not come. What
cannot be had is a ``LinkError`` of one of four kinds.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar
from urllib.parse import urlencode

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ValidationError

from fl_core.errors import DagAcflError, GossipFrameError
from fl_core.sync.checkpoint import CHECKPOINT_BYTES, decode_checkpoint, verify_checkpoint
from fl_core.sync.effects import Failure
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Announcement,
    Changes,
    CheckpointAnswer,
    CursorUnknown,
    GetChanges,
    GetCheckpoint,
    GetModel,
    GetTransactions,
    ModelUnknown,
    ReconcileAnswer,
    ReconcileFrame,
    Request,
    Response,
)
from fl_core.sync.responder import MAX_ANSWER_BYTES
from fl_core.types import Digest, TxId
from fl_core.wire import gossip_v1 as wire
from ledger_server.gossip.authorities import authorities
from ledger_server.gossip.errors import LinkError
from ledger_server.gossip.framing import (
    LENGTH,
    MAX_TOGETHER_BYTES,
    NOT_HERE,
    PRUNED,
    TRANSACTIONS_MEDIA_TYPE,
    decode_transactions,
    encode_transactions,
)
from ledger_server.http.peer_signature import NONCE_BYTES, sign_request
from ledger_server.peers import Peer

CONNECT_TIMEOUT_S: Final = 3.0
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_SMALL_ANSWER_BYTES: Final = 1 << 20
_AUTHORITY_UNKNOWN: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's X509_V_ERR_ numbers for a certificate whose authority is not among those that are believed."""

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
        self.peer = peer
        self._key, self._limits, self._nonce, self._now_s = key, limits, nonce, now_s
        self._moved = moved or (lambda *_: None)
        self._http = httpx.AsyncClient(
            base_url=peer.url,
            verify=trust if trust is not None else authorities(None),
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(limits.answer_deadline_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=limits.models_per_peer + 4, keepalive_expiry=10.0),
            headers={"accept-encoding": "identity", "user-agent": "dag-acfl"},
        )

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
            case GetCheckpoint():
                answer = await self._exchange("GET", wire.CHECKPOINT)
                checkpoint = _decoded(lambda: decode_checkpoint(answer[:CHECKPOINT_BYTES]))
                _decoded(lambda: verify_checkpoint(checkpoint, answer[CHECKPOINT_BYTES:]))
                if checkpoint.server != self.peer.public_key:
                    raise LinkError(Failure.MALFORMED, "the checkpoint is another server's")
                return CheckpointAnswer(checkpoint)
            case ReconcileFrame(frame):
                return ReconcileAnswer(await self._exchange("POST", wire.RECONCILIATION, frame, content_type=_BYTES))
            case GetModel():
                raise AssertionError("models are streamed by model()")

    async def _changes(self, after: str | None, limit: int) -> Changes | CursorUnknown:
        query = {"limit": str(limit)} | ({} if after is None else {"after": after})
        try:
            answer = await self._exchange("GET", wire.CHANGES, query=query, gone="cursor-unknown")
        except _Gone:
            return CursorUnknown()
        page = _parsed(wire.ChangesOut, answer)
        return Changes(tuple(map(TxId, page.ids)), page.next, page.more)

    async def announce(self, announcement: Announcement) -> None:
        """Send an announcement.

        Raises:
            LinkError: The peer was not reached, or refused it.
        """
        body = encode_transactions(announcement.bundles, announcement.ids)
        await self._exchange("POST", wire.ANNOUNCEMENTS, body, content_type=TRANSACTIONS_MEDIA_TYPE)

    async def model(self, request: GetModel) -> AsyncGenerator[bytes, None] | ModelUnknown:
        """A model's bytes from ``request.start`` on, as they come; or that the peer does not have it.

        Raises:
            LinkError: Here or while iterating: no bytes, or no more.
        """
        target = wire.model_path(request.digest)
        fields = {"range": f"bytes={request.start}-"} if request.start else {}
        stream = self._open("GET", target, b"", fields=fields)
        response = await stream.__aenter__()
        wanted = httpx.codes.PARTIAL_CONTENT if request.start else httpx.codes.OK
        if response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.GONE):
            await stream.__aexit__(None, None, None)
            return ModelUnknown(pruned=response.status_code == httpx.codes.GONE)
        if response.status_code != wanted:
            await stream.__aexit__(None, None, None)
            raise LinkError(Failure.REFUSED, f"status {response.status_code}")

        async def pieces() -> AsyncGenerator[bytes, None]:
            received = 0
            try:
                # As they come: who iterates decides by each piece whether the next is still wanted.
                async for piece in response.aiter_raw():
                    received += len(piece)
                    if request.start + received > request.size:
                        raise LinkError(Failure.MALFORMED, "more bytes than the model has")
                    yield piece
            except httpx.TransportError as error:
                raise LinkError(Failure.UNREACHABLE, _reason(error)) from error
            finally:
                await stream.__aexit__(None, None, None)
                self._moved("model", _head_bytes(response.request.headers), received + _head_bytes(response.headers))

        return pieces()

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
        received = bytearray()
        total = 0
        wanted = iter(digests)
        digest = next(wanted, None)
        until_s = time.monotonic() + within_s
        async with self._open("POST", wire.MODELS, body, fields={"content-type": _JSON}) as response:
            if response.status_code != httpx.codes.OK:
                raise LinkError(Failure.REFUSED, f"status {response.status_code}")
            try:
                async for piece in response.aiter_raw():
                    received += piece
                    total += len(piece)
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
            except httpx.TransportError as error:
                raise LinkError(Failure.UNREACHABLE, _reason(error)) from error
            finally:
                sent = len(body) + _head_bytes(response.request.headers)
                self._moved("model", sent, total + _head_bytes(response.headers))

    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        query: dict[str, str] | None = None,
        limit: int = _SMALL_ANSWER_BYTES,
        content_type: str = _JSON,
        gone: str | None = None,
    ) -> bytes:
        """A whole answer of at most ``limit`` bytes; ``_Gone`` for a problem of the code ``gone``."""
        try:
            async with asyncio.timeout(self._limits.answer_deadline_s):
                return await self._exchange_at_leisure(
                    method, path, body, query=query, limit=limit, content_type=content_type, gone=gone
                )
        except TimeoutError:
            raise LinkError(
                Failure.TIMEOUT, f"an answer that takes longer than {self._limits.answer_deadline_s:g} s"
            ) from None

    async def _exchange_at_leisure(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        query: dict[str, str] | None,
        limit: int,
        content_type: str,
        gone: str | None,
    ) -> bytes:
        target = f"{path}?{urlencode(query)}" if query else path
        async with self._open(method, target, body, fields={"content-type": content_type} if body else {}) as response:
            answer = bytearray()
            try:
                async for piece in response.aiter_raw():
                    answer += piece
                    if len(answer) > limit:
                        raise LinkError(Failure.MALFORMED, f"an answer of more than {limit} bytes")
            except httpx.TransportError as error:
                raise LinkError(Failure.UNREACHABLE, _reason(error)) from error
        kind = path.rsplit("/", 1)[-1]
        sent, came = len(body) + _head_bytes(response.request.headers), len(answer) + _head_bytes(response.headers)
        self._moved(_KINDS.get(kind, "transactions"), sent, came)
        if response.is_success:
            return bytes(answer)
        if gone is not None and response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.GONE):
            raise _Gone
        raise LinkError(Failure.REFUSED, f"{method} {path}: status {response.status_code}")

    @asynccontextmanager
    async def _open(
        self, method: str, target: str, body: bytes, *, fields: dict[str, str]
    ) -> AsyncIterator[httpx.Response]:
        signed = sign_request(
            self._key,
            method=method,
            target=target,
            body=body,
            recipient=self.peer.public_key,
            created_s=int(self._now_s()),
            nonce=self._nonce(NONCE_BYTES),
        )
        try:
            async with self._http.stream(method, target, content=body, headers={**fields, **signed}) as response:
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise LinkError(Failure.MALFORMED, "an encoded answer")
                yield response
        except (httpx.TransportError, httpx.InvalidURL, OSError) as error:
            kind = Failure.TIMEOUT if isinstance(error, httpx.ReadTimeout) else Failure.UNREACHABLE
            raise LinkError(kind, _reason(error)) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class _Gone(Exception):  # noqa: N818 -- no error: an answer that says no
    """The peer does not have it."""


_KINDS: Final = {
    "announcements": "announcement",
    "changes": "changes",
    "checkpoint": "checkpoint",
    "reconciliation": "reconciliation",
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


def _head_bytes(headers: httpx.Headers) -> int:
    """What a head takes, to within its first line."""
    return sum(len(name) + len(value) + 4 for name, value in headers.raw) + 64


def _reason(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:  # httpx and httpcore wrap what OpenSSL said, each once
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = "; put its authority into the file of the setting peers_ca_file"
            is_unknown = cause.verify_code in _AUTHORITY_UNKNOWN
            return f"its certificate is not trusted ({cause.verify_message}){advice if is_unknown else ''}"
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
