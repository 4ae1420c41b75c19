"""HTTP to one server, on urllib3's pool: every answer bounded in size, every silence and every call in time.

The SDK's only module with an HTTP library: no proxies or credentials of the environment, redirects, content codings.
"""

import http.client
import io
import math
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from fl_client import tracing
from fl_client.errors import AnswerInvalidError, CertificateRefusedError, ConnectionFailedError
from fl_core.errors import ParameterError
from fl_core.models import Buffer

MAX_ANSWER_BYTES: Final = 16 << 20
"""Bound of a JSON answer: a page of 1,000 transactions with 1,024 parents each stays far below."""
CONNECT_S: Final = 5.0
SILENCE_S: Final = 30.0
"""Longest time without a byte, the server's own work included."""
_SEND_BYTES: Final = 1 << 16
"""urllib3 gives each piece of a body the connect timeout: in pieces of this size, 13 kB/s are fast enough."""
_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)
"""Of the call at hand: urllib3 hands a connection its timeouts only."""


@dataclass(slots=True)
class ByteCounts:
    """Bytes of bodies so far; heads, some 300 bytes each, are not counted."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer; ``headers`` are looked up without regard to case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Endpoint:
    """One server: its address and the connections to it. Safe to share between threads.

    Args:
        url: ``http://host:port`` or ``https://…``; a path prefix is kept.
        traffic: Where moved bytes are counted.
        token: Sent as ``Authorization: Bearer`` where given.
        ca_file: PEM of the authority that signed the server's certificate; the system's authorities otherwise.

    Raises:
        ParameterError: ``url``, ``token`` or ``ca_file`` cannot be used.
    """

    def __init__(self, url: str, *, traffic: ByteCounts, token: str | None = None, ca_file: Path | None = None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise ParameterError(f"server address {url!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ParameterError(f"server address {url!r} must look like http://host:8900")
        if parts.username or parts.query or parts.fragment:
            raise ParameterError(f"server address {parts.hostname!r} takes no user, query or fragment")
        self._headers = {"accept-encoding": "identity", "user-agent": f"dag-acfl/{version('dag-acfl')}"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
            if not (token.isascii() and token.isprintable()):
                raise ParameterError("the token must be printable ASCII")
        self._traffic = traffic
        host, self._prefix = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname, parts.path.rstrip("/")
        self.url: str = f"{parts.scheme}://{host}:{port}{self._prefix}"
        self._new_pool: Callable[[], urllib3.HTTPConnectionPool] = partial(_Pool, host, port, maxsize=8, retries=False)
        if parts.scheme == "https":
            try:
                tls = ssl.create_default_context(cafile=ca_file)
            except OSError as error:  # ssl.SSLError is one
                raise ParameterError(f"certificate file {ca_file}: {error}") from error
            self._new_pool = partial(_TlsPool, host, port, maxsize=8, retries=False, ssl_context=tls)
        self._pool: urllib3.HTTPConnectionPool = self._new_pool()

    def close(self) -> None:
        """Close all idle connections; a later call opens new ones."""
        pool, self._pool = self._pool, self._new_pool()
        pool.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        body: Sequence[Buffer] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """As ``open``, with the whole body, of at most ``MAX_ANSWER_BYTES``."""
        with self.open(method, path, deadline=deadline, body=body, headers=headers) as response:
            return self.whole(response)

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        body: Sequence[Buffer] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send a request; its answer, whose body is still to be read. Leaving the block before its end hangs up.

        Args:
            method: HTTP method.
            path: Route, from ``/`` on.
            deadline: On ``time.monotonic``'s scale.
            body: Pieces, sent one after another without being joined.
            headers: Further header fields.

        Raises:
            ConnectionFailedError: No answer, or not all of it, in time.
            CertificateRefusedError: The server is not trusted.
            AnswerInvalidError: The answer is encoded, or too long.
        """
        sent = {**self._headers, **tracing.headers(), **(headers or {})}
        if method == "POST":
            sent["content-length"] = str(sum(map(len, body)))
        timeout = urllib3.Timeout(connect=min(CONNECT_S, _left(deadline)), read=SILENCE_S)
        _deadline.set(deadline)
        with faults_mapped():
            response = self._pool.urlopen(
                method,
                self._prefix + path,
                body=self._sliced(body, deadline) if body else None,
                headers=sent,
                timeout=timeout,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                coding = response.headers.get("content-encoding", "identity").strip().lower()
                if coding not in ("", "identity"):
                    raise AnswerInvalidError(f"the answer is encoded as {coding[:40]!r}, which was not asked for")
                yield response
            finally:
                response.close()

    def _sliced(self, body: Sequence[Buffer], deadline: float) -> Iterator[bytes]:
        for view in [memoryview(piece) for piece in body]:
            for start in range(0, len(view), _SEND_BYTES):
                _left(deadline)
                yield view[start : start + _SEND_BYTES]  # type: ignore[misc]  # a socket takes it as it takes bytes
            self._traffic.sent += len(view)

    def pieces(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        """A body as it comes, to its end."""
        while piece := response.read1(1 << 20):
            self._traffic.received += len(piece)
            yield piece

    def whole(self, response: urllib3.BaseHTTPResponse) -> Response:
        """A body to its end."""
        body = bytearray()
        for piece in self.pieces(response):
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise AnswerInvalidError(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
        return Response(response.status, response.headers, bytes(body))


class _TimedReader(io.RawIOBase):
    """What a socket receives until the deadline; the timeout of a socket bounds each read, not their sum."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock, self._raw = sock, raw
        self._silence_s, self._deadline = sock.gettimeout() or 0.0, _deadline.get()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(min(self._silence_s, _left(self._deadline)))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach()))


class _Connection(HTTPConnection):
    response_class = _TimedResponse


class _TlsConnection(HTTPSConnection):
    response_class = _TimedResponse


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise ConnectionFailedError("the time for this call is up")
    return left


@contextmanager
def faults_mapped() -> Iterator[None]:
    """Faults of a connection as ``ConnectionFailedError`` or ``CertificateRefusedError``."""
    try:
        yield
    except (HTTPError, OSError) as error:
        root: BaseException = error
        while cause := root.__cause__ or root.__context__:
            root = cause
        if isinstance(root, ssl.SSLCertVerificationError):
            reason = f"its certificate is not trusted ({root.verify_message}); name its authority with ca_file"
            raise CertificateRefusedError(reason) from error
        short: dict[type, str] = {TimeoutError: "no answer in time", ConnectionRefusedError: "connection refused"}
        reason = short.get(type(root)) or " ".join(f"{type(root).__name__}: {root}".split())[:200]
        raise ConnectionFailedError(reason) from error
