"""Signed requests to one peer over kept connections (urllib3, ADR 12), called from the event loop.

Each request at hand has a thread. Nothing that a peer answers is believed beyond its form: sizes are bounded while they
come, codings and redirects refused, proxies of the environment not used. Cancelling a request hangs up, which wakes its
thread: a peer that drips holds neither.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeVar

import urllib3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ReadTimeoutError

from fl_core.sync.effects import Failure
from fl_core.types import PublicKey
from ledger_server import tracing
from ledger_server.gossip.errors import LinkError
from ledger_server.http.peer_signature import NONCE_BYTES, sign_request
from ledger_server.peers import Peer

CONNECT_TIMEOUT_S: Final = 3.0
_PIECE_BYTES: Final = 1 << 20
_WRONG_RECIPIENT: Final = 403
"""Of a request that is signed for another key than the receiver's; a ban is answered so, too."""
_AUTHORITY_UNKNOWN: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's X509_V_ERR_ numbers for a certificate whose authority is not among those that are believed."""

T = TypeVar("T")


class _Call:
    """A request at hand, which can be given up from another thread."""

    def __init__(self) -> None:
        self._sock: socket.socket | None = None
        self._is_over = False

    def wait_on(self, sock: socket.socket) -> None:
        """The answer will come here."""
        self._sock = sock
        if self._is_over:
            raise TimeoutError

    def hang_up(self) -> None:
        """Wake the thread that waits."""
        self._is_over = True
        if self._sock is not None:
            with suppress(OSError):  # it is closed
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # below TLS


_call: ContextVar[_Call] = ContextVar("call")


class _Connection(HTTPConnection):
    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3 itself does
        _call.get().wait_on(self.sock)
        return super().getresponse()


class _TlsConnection(HTTPSConnection):
    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3 itself does
        _call.get().wait_on(self.sock)
        return super().getresponse()


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class PeerChannel:
    """Sends requests to one peer.

    Args:
        peer: Whom.
        key: This server's; it signs every request.
        silence_s: Longest wait for a byte.
        connections: Most requests at hand; more wait.
        nonce: Random bytes of a length.
        now_s: Seconds since 1970 UTC.
        trust: Authorities whose certificates are believed; None for plain HTTP, since to read them takes 50 ms.
        moved: Told target, bytes sent and bytes received, heads included, after every exchange.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        key: Ed25519PrivateKey,
        silence_s: float,
        connections: int,
        nonce: Callable[[int], bytes],
        now_s: Callable[[], float],
        trust: ssl.SSLContext | None,
        moved: Callable[[str, int, int], None],
    ) -> None:
        self._peer, self._moved = peer, moved
        self._recipients = [each for each in (peer.former, peer.public_key) if each is not None]
        """Keys that the peer may have, what it had last first: one, or two while it changes from one to the other."""
        self._is_closed = False
        self._key, self._nonce, self._now_s = key, nonce, now_s
        self._silence_s, self._connections, self._trust = silence_s, connections, trust
        self._pool = self._new_pool()
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix=f"peer {peer.name}")

    def _new_pool(self) -> urllib3.HTTPConnectionPool:
        url = urllib3.util.parse_url(self._peer.url)
        assert url.host is not None, "the settings have checked it"
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=self._silence_s)
        if url.scheme == "http":
            return _Pool(url.host, url.port, timeout=timeout, maxsize=self._connections, retries=False)
        return _TlsPool(
            url.host, url.port, timeout=timeout, maxsize=self._connections, retries=False, ssl_context=self._trust
        )

    def _hang_up_idle(self) -> None:
        pool, self._pool = self._pool, self._new_pool()
        pool.close()

    async def send(
        self, method: str, target: str, body: bytes = b"", *, fields: Mapping[str, str], limit: int, within_s: float
    ) -> tuple[int, bytes]:
        """As ``stream``, with the whole body: status and bytes; ``within_s`` bounds all of it.

        Raises:
            LinkError: No whole answer, too long, or too late.
        """
        try:
            async with asyncio.timeout(within_s):
                stream = await self.stream(method, target, body, fields=fields, limit=limit)
                async with aclosing(stream):
                    return stream.status, b"".join([piece async for piece in stream])
        except TimeoutError:
            raise LinkError(Failure.TIMEOUT, f"an answer that takes longer than {within_s:g} s") from None

    async def stream(
        self, method: str, target: str, body: bytes = b"", *, fields: Mapping[str, str], limit: int
    ) -> "Stream":
        """Send a request; its answer, whose body comes in pieces.

        Args:
            method: HTTP method.
            target: Path and query.
            body: Of the request.
            fields: Header fields beside those of the signature.
            limit: Most bytes of the answer's body.

        Raises:
            LinkError: No answer.
        """
        for recipient in tuple(self._recipients):
            stream = await self._stream(method, target, body, fields=fields, limit=limit, recipient=recipient)
            if stream.status != _WRONG_RECIPIENT:
                self._recipients.sort(key=lambda each: each != recipient)
                break
            if recipient != self._recipients[-1]:
                await stream.aclose()
        return stream

    async def _stream(
        self, method: str, target: str, body: bytes, *, fields: Mapping[str, str], limit: int, recipient: PublicKey
    ) -> "Stream":
        signed = sign_request(
            self._key,
            method=method,
            target=target,
            body=body,
            recipient=recipient,
            created_s=int(self._now_s()),
            nonce=self._nonce(NONCE_BYTES),
        )
        known = {"accept-encoding": "identity", "user-agent": "dag-acfl", **tracing.headers()}
        headers = {**known, **fields, **signed}
        call = _Call()

        def open_() -> Stream:
            _call.set(call)
            response = self._pool.urlopen(
                method,
                target,
                body=body or None,
                headers=headers,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            sent = len(body) + _head_bytes(headers)
            return Stream(self, call, response, limit=limit, closed=partial(self._moved, target, sent))

        return await self.in_thread(call, open_)

    async def in_thread(self, call: _Call, work: Callable[[], T]) -> T:
        """What ``work`` returns, done in a thread; being cancelled ends the call.

        Raises:
            LinkError: The connection failed.
        """
        if self._is_closed:
            raise LinkError(Failure.UNREACHABLE, "it is no peer any more")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except asyncio.CancelledError:
            call.hang_up()
            raise
        except (HTTPError, OSError) as error:
            self._hang_up_idle()  # a server that shuts down waits for idle TLS connections to say goodbye
            kind = Failure.TIMEOUT if isinstance(error, ReadTimeoutError) else Failure.UNREACHABLE
            raise LinkError(kind, _reason(error)) from error

    def close(self) -> None:
        """Close idle connections; what is at hand ends by itself, and nothing more begins."""
        self._is_closed = True
        self._pool.close()
        self._threads.shutdown(wait=False)


class Stream(AsyncIterator[bytes]):
    """An answer whose body comes in pieces; close it.

    Raises:
        LinkError: Here or while iterating: encoded, too long, or no more of it.
    """

    def __init__(
        self,
        channel: PeerChannel,
        call: _Call,
        response: urllib3.BaseHTTPResponse,
        *,
        limit: int,
        closed: Callable[[int], None],
    ) -> None:
        self.status, self._received, self._closed = response.status, 0, closed
        self._channel, self._call, self._response, self._limit = channel, call, response, limit
        if response.headers.get("content-encoding", "identity") != "identity":
            response.close()
            raise LinkError(Failure.MALFORMED, "an encoded answer")
        self.media_type: str = response.headers.get("content-type", "")
        self._next = self._read()  # most answers are one piece: it comes with the head

    def _read(self) -> bytes:
        piece = self._response.read1(_PIECE_BYTES)
        if self._response.length_remaining == 0:
            self._response.read1(1)  # nothing: it gives the connection back
        return piece

    async def __anext__(self) -> bytes:
        piece, self._next = self._next, b""
        if not piece and self._response.length_remaining != 0:
            piece = await self._channel.in_thread(self._call, self._read)
        if not piece:
            raise StopAsyncIteration
        self._received += len(piece)
        if self._received > self._limit:
            raise LinkError(Failure.MALFORMED, f"an answer of more than {self._limit} bytes")
        return piece

    async def aclose(self) -> None:
        """Hang up, unless all of the body has come."""
        self._response.close()
        self._closed(self._received + _head_bytes(self._response.headers))


def _head_bytes(headers: Mapping[str, str]) -> int:
    """What a head takes, to within its first line."""
    return sum(len(name) + len(value) + 4 for name, value in headers.items()) + 64


def _reason(error: Exception) -> str:
    root: BaseException = error
    while cause := root.__cause__ or root.__context__:
        root = cause
    if isinstance(root, ssl.SSLCertVerificationError):
        advice = "; put its authority into the file of the setting peers_ca_file"
        is_unknown = root.verify_code in _AUTHORITY_UNKNOWN
        return f"its certificate is not trusted ({root.verify_message}){advice if is_unknown else ''}"
    return " ".join(f"{type(root).__name__}: {root}".split())[:200]
