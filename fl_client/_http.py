"""One server's connections: every byte that a client sends or receives passes here.

The only module that knows an HTTP library, and it uses two. What a round consists of (small messages and
models) goes through ``http.client``: for a 13 MB model it costs a third of httpx's CPU (1.9 against 5.5 ms
down, 2.6 against 3.6 ms up) and for a small message a third as well (0.08 against 0.29 ms), it reads into a
buffer that is already there, and its socket is ours, so that a deadline is exact even against a server that
drips its header. Reading the ledger and following its events goes through httpx (httpx2 where installed),
which is not even imported before.

Rules for both: no proxy or credentials from the environment, no redirects, no content coding, a bound on every
answer's size, a bound on silence and on the whole call.
"""

import contextlib
import http.client
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from fl_client.errors import AnswerInvalidError, CertificateRefusedError, ConnectionFailedError
from fl_core.errors import ParameterError
from fl_core.models import Buffer

if TYPE_CHECKING:
    import httpx

SLICE_BYTES: Final = 1 << 20
MAX_ANSWER_BYTES: Final = 16 << 20
"""Bound of a JSON answer: a page of 1,000 transactions with 1,024 parents each stays far below."""
_MAX_IDLE: Final = 4
_MAX_IDLE_S: Final = 30.0
_MAX_LINE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a call may take, in seconds; all > 0.

    ``Timeouts(total_s=60)``: a call, its retries included, ends after a minute.
    """

    total_s: float = 300.0
    """One call, with all its attempts, pauses and servers."""
    connect_s: float = 5.0
    """Opening one connection."""
    silence_s: float = 30.0
    """Longest time without a byte moving, the server's own work included."""

    def __post_init__(self) -> None:
        for name in ("total_s", "connect_s", "silence_s"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"timeout {name} must be above 0")


@dataclass(slots=True)
class Traffic:
    """Bytes on the sockets so far, HTTP headers included, TLS's own left out."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Download:
    """Bytes on their way in; survives a cut, so that the next attempt asks for the rest only.

    Args:
        limit: Most bytes accepted.
        etag: What the server must still call the bytes for a resumption.
    """

    limit: int
    etag: str
    buffer: bytearray = field(default_factory=bytearray)
    filled: int = 0

    def restart(self, size: int) -> None:
        """Expect ``size`` bytes from the first one on."""
        if size > self.limit:
            raise AnswerInvalidError(f"the server offers {size} bytes, at most {self.limit} were expected")
        if len(self.buffer) != size:
            self.buffer = bytearray(size)
        self.filled = 0

    @property
    def complete(self) -> bool:
        """Whether every byte has come."""
        return 0 < len(self.buffer) == self.filled


class _Clock:
    """When the call at hand ends, and what its connection has moved; read by the socket at every operation."""

    def __init__(self, timeouts: Timeouts, traffic: Traffic) -> None:
        self._timeouts, self.traffic = timeouts, traffic
        self.deadline = 0.0

    def left(self, bound_s: float | None = None) -> float:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the time for this call is up")
        return min(remaining, self._timeouts.silence_s if bound_s is None else bound_s)

    def connecting(self) -> float:
        return self.left(self._timeouts.connect_s)


class _TimedSocket(socket.socket):
    """A socket whose every operation ends by the clock."""

    clock: _Clock

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(self.clock.left())
        count = super().recv_into(buffer, nbytes, flags)
        self.clock.traffic.received += count
        return count

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(self.clock.left())
        super().sendall(data, flags)
        self.clock.traffic.sent += memoryview(data).nbytes


class _TimedTlsSocket(ssl.SSLSocket):
    """The same under TLS, whose ``sendall`` is a loop over ``send``."""

    clock: _Clock | None = None  # there is none yet while the handshake runs under the connect timeout

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        if self.clock is not None:
            self.settimeout(self.clock.left())
        count = super().recv_into(buffer, nbytes, flags)
        if self.clock is not None:
            self.clock.traffic.received += count
        return count

    def send(self, data: Any, flags: int = 0) -> int:
        if self.clock is not None:
            self.settimeout(self.clock.left())
        count = super().send(data, flags)
        if self.clock is not None:
            self.clock.traffic.sent += count
        return count


class _Connection(http.client.HTTPConnection):
    """A connection that may be used again."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, clock: _Clock) -> None:
        super().__init__(host, port)
        self.clock, self._tls = clock, tls
        self.used = False
        self.idle_since = 0.0

    def connect(self) -> None:
        raw = socket.create_connection((self.host, self.port), timeout=self.clock.connecting())
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            plain = _TimedSocket(raw.family, raw.type, raw.proto, fileno=raw.detach())
            plain.clock = self.clock
            self.sock = plain
            return
        try:
            raw.settimeout(self.clock.connecting())
            wrapped = cast("_TimedTlsSocket", self._tls.wrap_socket(raw, server_hostname=self.host))
        except BaseException:
            raw.close()
            raise
        wrapped.clock = self.clock
        self.sock = wrapped

    def is_stale(self) -> bool:
        """Whether the server has hung up (or said something unasked), or the pause was long."""
        if self.sock is None or time.monotonic() - self.idle_since > _MAX_IDLE_S:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))


class Endpoint:
    """One server: its address and the connections to it. Safe to share between threads.

    Args:
        url: ``http://host:port`` or ``https://…``; a path prefix is kept.
        timeouts: Bounds in time.
        traffic: Where moved bytes are counted.
        token: Sent as ``Authorization: Bearer`` where given.
        ca_file: PEM of the authority that signed the server's certificate; the system's authorities otherwise.

    Raises:
        ParameterError: The address is none.
    """

    def __init__(
        self,
        url: str,
        *,
        timeouts: Timeouts,
        traffic: Traffic,
        token: str | None = None,
        ca_file: Path | None = None,
    ) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise ParameterError(f"server address {url!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ParameterError(f"server address {url!r} must look like http://host:8900")
        if parts.username or parts.query or parts.fragment:
            raise ParameterError(f"server address {parts.hostname!r} takes no user, query or fragment")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ParameterError("the token must be printable ASCII")
        self._host, self._tls_on = parts.hostname, parts.scheme == "https"
        self._port = port or (443 if self._tls_on else 80)
        self._prefix = parts.path.rstrip("/")
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{parts.scheme}://{shown}:{self._port}{self._prefix}"
        self._timeouts, self._traffic = timeouts, traffic
        self._ca_file = ca_file
        self._headers = {
            "accept-encoding": "identity",
            "user-agent": f"dag-acfl/{version('dag-acfl')}",
        }
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []

    def call(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        body: Sequence[Buffer] = (),
        headers: Mapping[str, str] | None = None,
        limit: int = MAX_ANSWER_BYTES,
        repeatable: bool = True,
    ) -> Reply:
        """Send a request, wait for its whole answer.

        Args:
            method: HTTP method.
            path: Route, from ``/`` on.
            deadline: On ``time.monotonic``'s scale.
            body: Pieces, sent one after another without being joined.
            headers: Further header fields.
            limit: Most bytes of the answer.
            repeatable: Whether a used connection that proves dead may be replaced by a new one; without
                it, a new one is taken from the start.

        Raises:
            ConnectionFailedError: No whole answer came.
            CertificateRefusedError: The server is not trusted.
            AnswerInvalidError: The answer is too long or encoded.
        """
        with self._exchange(method, path, deadline, body, headers or {}, fresh=not repeatable) as response:
            return Reply(response.status, _lower(response), _read(response, limit))

    def fetch(self, path: str, download: Download, *, deadline: float) -> Reply | None:
        """Continue a download; None when it is complete, else the server's answer instead of bytes.

        Raises:
            ConnectionFailedError: Cut short; ``download`` keeps what came.
            AnswerInvalidError: Not the bytes that were asked for.
        """
        headers = {}
        if download.filled:
            headers = {"range": f"bytes={download.filled}-", "if-range": download.etag}
        with self._exchange("GET", path, deadline, (), headers, fresh=False) as response:
            if response.status not in (200, 206):
                return Reply(response.status, _lower(response), _read(response, MAX_ANSWER_BYTES))
            _check_identity(response.headers)
            self._place(response, download)
            view = memoryview(download.buffer)
            while download.filled < len(view):
                count = response.readinto(view[download.filled : download.filled + SLICE_BYTES])
                if not count:
                    raise ConnectionFailedError(f"cut after {download.filled} of {len(view)} bytes", sent=True)
                download.filled += count
        return None

    def _place(self, response: http.client.HTTPResponse, download: Download) -> None:
        """Check that what follows is the download's next byte."""
        if response.length is None:
            raise AnswerInvalidError("the server sends a model without its length")
        if response.status == 200:
            download.restart(response.length)
            return
        size = len(download.buffer)
        expected = f"bytes {download.filled}-{size - 1}/{size}"
        if response.headers.get("content-range") != expected or response.length != size - download.filled:
            download.filled = 0
            raise AnswerInvalidError(f"the server sends another range than {expected}")

    @contextlib.contextmanager
    def _exchange(
        self,
        method: str,
        path: str,
        deadline: float,
        body: Sequence[Buffer],
        headers: Mapping[str, str],
        *,
        fresh: bool,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._take(deadline, fresh=fresh)
        keep = False
        try:
            response = self._send(connection, method, path, body, headers)
            if response is None:
                # It was open a moment ago and the server had given it up: no fault, and nothing was answered.
                connection.close()
                connection = self._take(deadline, fresh=True)
                response = self._send(connection, method, path, body, headers)
            assert response is not None, "a new connection answers or raises"
            yield response
            keep = response.isclosed() and not response.will_close
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailedError(_reason(error), sent=True) from error
        finally:
            # An exception of any kind (Ctrl-C too) leaves the connection in an unknown place: it goes.
            if keep:
                self._give_back(connection)
            else:
                connection.close()

    def _send(
        self,
        connection: _Connection,
        method: str,
        path: str,
        body: Sequence[Buffer],
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse | None:
        """Send and read the answer's head; None when a used connection was dead."""
        if connection.sock is None:
            try:
                connection.connect()
            except ssl.SSLCertVerificationError as error:
                raise CertificateRefusedError(
                    f"its certificate is not trusted ({error.verify_message}); name its authority with ca_file"
                ) from error
            except OSError as error:
                raise ConnectionFailedError(_reason(error), sent=False) from error
        used, connection.used = connection.used, True
        try:
            self._write(connection, method, path, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a large body answers before it has read it: the answer counts.
            with contextlib.suppress(OSError, http.client.HTTPException):
                return connection.getresponse()
            if used:
                return None
            raise
        try:
            return connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            if used:
                return None
            raise

    def _write(
        self,
        connection: _Connection,
        method: str,
        path: str,
        body: Sequence[Buffer],
        headers: Mapping[str, str],
    ) -> None:
        connection.putrequest(method, self._prefix + path, skip_accept_encoding=True)
        for name, value in {**self._headers, **headers}.items():
            connection.putheader(name, value)
        if method == "POST":
            connection.putheader("content-length", str(sum(len(piece) for piece in body)))
        connection.endheaders()
        for piece in body:
            view = memoryview(piece)
            for start in range(0, len(view), SLICE_BYTES):
                connection.send(view[start : start + SLICE_BYTES])

    def _take(self, deadline: float, *, fresh: bool) -> _Connection:
        while not fresh:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if not connection.is_stale():
                connection.clock.deadline = deadline
                return connection
            connection.close()
        clock = _Clock(self._timeouts, self._traffic)
        clock.deadline = deadline
        return _Connection(self._host, self._port, tls=self._tls, clock=clock)

    def _give_back(self, connection: _Connection) -> None:
        connection.idle_since = time.monotonic()
        with self._lock:
            if len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        if not self._tls_on:
            return None
        context = self._tls_context()
        context.sslsocket_class = _TimedTlsSocket
        return context

    def _tls_context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
        except (OSError, ssl.SSLError) as error:
            raise ParameterError(f"certificate file {self._ca_file}: {error}") from error

    # -- httpx: reading and events ----------------------------------------------------------------

    @cached_property
    def _httpx(self) -> "httpx.Client":
        library = _library()
        timeout = library.Timeout(self._timeouts.silence_s, connect=self._timeouts.connect_s)
        client: httpx.Client = library.Client(
            headers=self._headers,
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            verify=self._tls_context() if self._tls_on else False,
        )
        return client

    def read(self, path: str, *, deadline: float, limit: int = MAX_ANSWER_BYTES) -> Reply:
        """GET a small answer.

        Raises:
            ConnectionFailedError, AnswerInvalidError: As ``call``.
        """
        with self._streaming(path, {}) as response:
            _check_identity(response.headers)
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > limit:
                    raise AnswerInvalidError(f"the answer exceeds {limit} bytes")
                if time.monotonic() > deadline:
                    raise ConnectionFailedError("the time for this call is up", sent=True)
            self._traffic.received += len(body)
            return Reply(response.status_code, dict(response.headers), bytes(body))

    @contextlib.contextmanager
    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator["Reply | Iterator[str]"]:
        """A text stream line by line, for as long as the server sends; a refusal instead is a ``Reply``.

        Raises:
            ConnectionFailedError: Cut, or silent for longer than ``silence_s``; also while iterating.
        """
        with self._streaming(path, headers) as response:
            _check_identity(response.headers)
            if response.status_code == 200:
                yield self._lines(response)
                return
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise AnswerInvalidError(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
            yield Reply(response.status_code, dict(response.headers), bytes(body))

    def _lines(self, response: "httpx.Response") -> Iterator[str]:
        rest = b""
        library = _library()
        try:
            for chunk in response.iter_raw():
                self._traffic.received += len(chunk)
                *whole, rest = (rest + chunk).split(b"\n")
                if len(rest) > _MAX_LINE_BYTES:
                    raise AnswerInvalidError(f"a line exceeds {_MAX_LINE_BYTES} bytes")
                for line in whole:
                    yield line.removesuffix(b"\r").decode("utf-8", "replace")
        except (library.TransportError, library.StreamError) as error:  # whoever iterates is outside _streaming
            raise ConnectionFailedError(_reason(error), sent=True) from error

    @contextlib.contextmanager
    def _streaming(self, path: str, headers: Mapping[str, str]) -> Iterator["httpx.Response"]:
        library = _library()
        try:
            with self._httpx.stream("GET", self.url + path, headers=headers) as response:
                yield response
        except (library.TransportError, library.StreamError) as error:
            raise ConnectionFailedError(_reason(error), sent=True) from error

    def close(self) -> None:
        """Close all idle connections; a later call opens new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        if "_httpx" in self.__dict__:
            self._httpx.close()
            del self.__dict__["_httpx"]


def _library() -> Any:
    """httpx2, or httpx where only that is installed: the same names in both. A round of training needs neither."""
    try:
        return import_module("httpx2")
    except ModuleNotFoundError:
        return import_module("httpx")


def _lower(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    _check_identity(response.headers)
    if response.length is not None and response.length > limit:
        raise AnswerInvalidError(f"the answer has {response.length} bytes, at most {limit} are read")
    body = response.read() if response.length is not None else response.read(limit + 1)
    if len(body) > limit:
        raise AnswerInvalidError(f"the answer exceeds {limit} bytes")
    return body


def _check_identity(headers: Any) -> None:
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise AnswerInvalidError(f"the answer is encoded as {coding[:40]!r}, which was not asked for")


def _reason(error: BaseException) -> str:
    """A fault in a few words, without the object's address or a traceback."""
    if isinstance(error, TimeoutError):
        return str(error) if "call" in str(error) else "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, http.client.IncompleteRead):
        return f"cut after {len(error.partial)} bytes"
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
