"""HTTP/1.1 at the socket, guarded: uvicorn's httptools protocol with the limits that it leaves out.

Refused here, before the application hears of a request, each as a problem where an answer can be sent:

* a head or body that does not arrive in time (408), on a clock that stands still while the server itself has
  paused reading, so that a busy server blames no client;
* heads too large (431), targets too long (414), more connections than allowed (503);
* what two parsers could read differently: no Host or two, two Content-Lengths, Content-Length beside
  Transfer-Encoding, other transfer codings, floods of chunk extensions or trailers (400, 501);
* unknown expectations (417), unknown methods (501), other versions than HTTP/1.x (505), other protocols (400).

After a refusal the connection half-closes and drops what still comes for a moment: closing with unread bytes
would make the kernel send a reset, which can destroy the answer before the client has read it. Upgrades,
WebSockets among them, are ignored as RFC 9110 (7.8) allows. Written against uvicorn 0.54 and httptools 0.9.
"""

import asyncio
import enum
import http
import logging
import re
from collections.abc import Callable
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ledger_server.http.middleware import new_request_id
from ledger_server.http.problems import Problem
from ledger_server.http.state import Edge

logger = logging.getLogger(__name__)

METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"})

_PIECE: Final = 8192
"""Bytes parsed at a time where overhead is counted; also by how much a limit can be overshot."""
_MAX_OVERHEAD: Final = 8192
"""Bytes of chunk extensions and trailers that a body may have beyond ``_CHUNK_OVERHEAD`` per chunk."""
_CHUNK_OVERHEAD: Final = 24
"""A chunk's size and line ends: 16 digits, two times CR LF, and some room."""
_STARTED_BYTES: Final = 48
_HOST: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]{1,255}")
_REQUEST_LINE: Final = re.compile(rb"[A-Z][A-Z0-9-]{0,31} [/*h]")


class _Phase(enum.Enum):
    IDLE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()


class LingeringTransport(asyncio.Transport):
    """The socket's transport, except that ``close`` in the middle of a request lets the client hear the answer."""

    def __init__(self, inner: asyncio.Transport, protocol: "GuardedProtocol") -> None:
        super().__init__()
        self._inner, self._protocol = inner, protocol
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See ``asyncio``."""
        return self._inner.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See ``asyncio``; dropped once closed."""
        if not self._closing:
            self._inner.write(data)

    def pause_reading(self) -> None:
        """See ``asyncio``."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """See ``asyncio``."""
        if not self._inner.is_closing():
            self._inner.resume_reading()

    def get_write_buffer_size(self) -> int:
        """See ``asyncio``."""
        return self._inner.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Whether nothing more will be written."""
        return self._closing or self._inner.is_closing()

    def abort(self) -> None:
        """Cut the connection now."""
        self._closing = True
        self._inner.abort()

    def close(self) -> None:
        """Close once everything is written; in the middle of a request, after ``linger_s`` of dropped input."""
        if self._closing:
            return
        self._closing = True
        if self._protocol.between_requests or self._inner.is_closing():
            self._inner.close()
            return
        self._protocol.ignore_input()
        if self._inner.can_write_eof():
            self._inner.write_eof()
        self._timer = self._protocol.loop.call_later(self._protocol.limits.linger_s, self._inner.close)

    def lost(self) -> None:
        """The connection is gone."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()


class _MeteredFlow(FlowControl):
    """Flow control that tells the protocol's clock when the server itself stops and starts reading."""

    def __init__(self, transport: asyncio.Transport, protocol: "GuardedProtocol") -> None:
        super().__init__(transport)
        self._protocol = protocol

    def pause_reading(self) -> None:
        super().pause_reading()
        self._protocol.clock.pause()

    def resume_reading(self) -> None:
        super().resume_reading()
        self._protocol.clock.resume()


class _Clock:
    """Time that the server has waited for a client's bytes; calls back when it exceeds what is allowed.

    Args:
        loop: Gives time and timers.
        allowed_s: The seconds allowed by now; it may grow while the clock runs.
        on_late: Called once when they are exceeded.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, allowed_s: Callable[[], float], on_late: Callable[[], None]
    ) -> None:
        self._loop, self._allowed_s, self._on_late = loop, allowed_s, on_late
        self._waited_s = 0.0
        self._since_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._running = False

    @property
    def running(self) -> bool:
        """Whether a wait is being measured, paused or not."""
        return self._running

    def start(self) -> None:
        """Begin a new wait."""
        self.stop()
        self._running, self._waited_s = True, 0.0
        self.resume()

    def stop(self) -> None:
        """What was waited for has come."""
        self.pause()
        self._running = False

    def pause(self) -> None:
        """The server does not read for now."""
        if self._since_s is not None:
            self._waited_s += self._loop.time() - self._since_s
            self._since_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def resume(self) -> None:
        """The server reads again."""
        if self._running and self._since_s is None:
            self._since_s = self._loop.time()
            self._arm()

    def _arm(self) -> None:
        remaining_s = self._allowed_s() - self._waited_s
        self._timer = self._loop.call_later(max(remaining_s, 0.001), self._check)

    def _check(self) -> None:
        self._timer = None
        assert self._since_s is not None, "the timer runs only while reading"
        now_s = self._loop.time()
        self._waited_s, self._since_s = self._waited_s + now_s - self._since_s, now_s
        if self._waited_s < self._allowed_s():
            self._arm()
        else:
            self.stop()
            self._on_late()


class GuardedProtocol(HttpToolsProtocol):
    """One connection.

    Args:
        edge: The server's limits and metrics.
        config: uvicorn's.
        server_state: uvicorn's.
        app_state: uvicorn's.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        edge: Edge,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.edge, self.limits = edge, edge.settings.http
        self.ws_protocol_class = None
        self.timeout_keep_alive = self.limits.keep_alive_s  # type: ignore[assignment]  # call_later takes floats
        self.clock = _Clock(self.loop, self._allowed_s, self._on_late)
        self._phase = _Phase.IDLE
        self._ignores_input = False
        self._started = b""  # the first bytes of the request, to tell a method from another protocol
        self._head_bytes = 0
        self._body_bytes = 0
        self._overhead_bytes = 0
        self._chunked = False
        self._crossed = False  # the piece being parsed crossed from one phase to another
        self._refusal: Problem | None = None  # raised inside a parser callback
        self._queued: Problem | None = None  # to be sent after the answers that come before it
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0

    @property
    def between_requests(self) -> bool:
        """Whether everything that the client has begun has also ended."""
        return self._phase is _Phase.IDLE and not self._ignores_input

    def ignore_input(self) -> None:
        """Drop whatever comes from now on, without holding the client back."""
        self._ignores_input = True
        self.clock.stop()
        self.flow.resume_reading()

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See ``asyncio``."""
        guarded = LingeringTransport(transport, self)
        super().connection_made(guarded)
        self._guarded = guarded
        self.flow = _MeteredFlow(guarded, self)
        self.edge.metrics.connections.inc()
        self.clock.start()
        if len(self.connections) > self.limits.max_connections:
            self._refuse(Problem(503, "too-many-connections", "the server has as many connections as it may"))

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio``."""
        self.edge.metrics.connections.dec()
        self._ignores_input = True
        self.clock.stop()
        self._unset_stall_timer()
        self._guarded.lost()
        self._unset_keepalive_if_required()
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        self.pipeline.clear()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: close when idle, else after the answers in progress."""
        for cycle, _ in self.pipeline:
            cycle.keep_alive = False
        super().shutdown()

    # Receiving

    def data_received(self, data: bytes) -> None:
        """See ``asyncio``."""
        if self._ignores_input:
            return
        self._unset_keepalive_if_required()
        if self._phase is _Phase.IDLE:
            self._started = b""
        if self._phase is not _Phase.BODY and len(self._started) < _STARTED_BYTES:
            self._started += data[:_STARTED_BYTES]
        ended = False
        view = memoryview(data)
        while len(view) > 0:
            whole = self._phase is _Phase.BODY and not self._chunked
            piece = view if whole else view[:_PIECE]
            view = view[len(piece) :]
            if not self._parse(piece):
                return
            ended = self._crossed
        if (self._phase is not _Phase.IDLE or not ended) and not self.clock.running:
            self.clock.start()
            if self.flow.read_paused:
                self.clock.pause()

    def _parse(self, piece: memoryview) -> bool:
        """Whether to go on."""
        self._crossed = False
        body_before = self._body_bytes
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._ignores_input = True  # an upgrade that we ignore; its answer closes the connection
            return False
        except httptools.HttpParserError as error:
            self._refuse(self._refusal or self._malformed(error))
            return False
        problem = None if self._crossed else self._count(len(piece), self._body_bytes - body_before)
        if problem is not None:
            self._refuse(problem)
        return problem is None

    def _count(self, size: int, body: int) -> Problem | None:
        if self._phase is _Phase.HEAD:
            self._head_bytes += size
            if self._head_bytes > self.limits.max_header_bytes + self.limits.max_url_bytes:
                return self._head_too_large()
        elif self._phase is _Phase.BODY and self._chunked:
            self._overhead_bytes += size - body
            if self._overhead_bytes > _MAX_OVERHEAD:
                return Problem(400, "chunks-malformed", "the chunks carry more overhead than this server reads")
        return None

    def _malformed(self, error: httptools.HttpParserError) -> Problem:
        if isinstance(error, httptools.HttpParserInvalidMethodError) and _REQUEST_LINE.match(self._started):
            return Problem(501, "method-not-implemented", "this server does not know the method")
        if self._phase is _Phase.BODY:
            return Problem(400, "chunks-malformed", "the body's chunks cannot be read")
        return Problem(400, "request-malformed", "this is not an HTTP/1.1 request")

    def _head_too_large(self) -> Problem:
        limits = self.limits
        detail = f"a request's head has at most {limits.max_headers} fields and {limits.max_header_bytes} bytes"
        return Problem(431, "headers-too-large", detail)

    def _raise(self, problem: Problem) -> None:
        """Out of a parser callback; httptools replaces the exception by its own, so keep it."""
        self._refusal = problem
        raise problem

    # Parser callbacks

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self._phase = _Phase.HEAD
        self._head_bytes = self._body_bytes = self._overhead_bytes = 0
        self._fields_bytes = 0
        self._chunked = False

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        if len(self.url) + len(url) > self.limits.max_url_bytes:
            self._raise(Problem(414, "url-too-long", f"a target has at most {self.limits.max_url_bytes} bytes"))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field; trailer fields are dropped, for they must not pass for header fields."""
        if self._phase is _Phase.BODY:
            return
        self._fields_bytes += len(name) + len(value) + 4
        if len(self.headers) >= self.limits.max_headers or self._fields_bytes > self.limits.max_header_bytes:
            self._raise(self._head_too_large())
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is here: check it, then let uvicorn start the application."""
        self._crossed = True
        self.clock.stop()
        problem = self._head_problem()
        if problem is not None:
            self._raise(problem)
        super().on_headers_complete()
        self._phase = _Phase.BODY
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        """A chunk's size: what its frame may cost."""
        self._overhead_bytes -= _CHUNK_OVERHEAD

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request's end."""
        self._crossed = True
        self._phase = _Phase.IDLE
        self.clock.stop()
        super().on_message_complete()

    def _head_problem(self) -> Problem | None:
        fields: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            fields.setdefault(name, []).append(value.strip())
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            return Problem(505, "version-not-supported", "this server speaks HTTP/1.1")
        if self.parser.get_method() not in METHODS:
            return Problem(501, "method-not-implemented", "this server does not know the method")
        hosts = fields.get(b"host", [])
        if len(hosts) > 1 or (version == "1.1" and not hosts) or not all(map(_HOST.fullmatch, hosts)):
            return Problem(400, "host-invalid", "a request has exactly one Host header, with a host's name")
        return (
            _framing_problem(version, fields.get(b"content-length", []), fields.get(b"transfer-encoding", []))
            or self._expectation_problem(fields.get(b"expect", []))
            or self._upgrade_problem(fields)
        )

    def _expectation_problem(self, expectations: list[bytes]) -> Problem | None:
        if any(value.lower() != b"100-continue" for value in expectations):
            return Problem(417, "expectation-failed", "the only expectation known here is 100-continue")
        return None

    def _upgrade_problem(self, fields: dict[bytes, list[bytes]]) -> Problem | None:
        # The parser takes what follows such a head for the other protocol, so a body would be lost.
        has_body = b"transfer-encoding" in fields or fields.get(b"content-length", [b"0"]) != [b"0"]
        if self.parser.should_upgrade() and has_body:
            return Problem(400, "upgrade-with-body", "this server does not upgrade; send the body without Upgrade")
        self._chunked = b"transfer-encoding" in fields
        return None

    # Deadlines

    def _allowed_s(self) -> float:
        limits = self.limits
        if self._phase is not _Phase.BODY:
            return limits.header_timeout_s
        return min(limits.body_timeout_s, limits.body_grace_s + self._body_bytes / limits.body_min_bytes_per_s)

    def _on_late(self) -> None:
        if self._phase is _Phase.IDLE and not self._started.strip():
            self.transport.close()  # never began a request: nothing to answer
            return
        part = "body" if self._phase is _Phase.BODY else "head"
        self._refuse(Problem(408, "request-timeout", f"the request's {part} did not arrive in time"))

    def pause_writing(self) -> None:
        """The client reads its answer more slowly than it is made."""
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._unset_stall_timer()

    def _watch_writing(self) -> None:
        self._unset_stall_timer()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self.limits.send_stall_s, self._check_writing)

    def _check_writing(self) -> None:
        self._stall_timer = None
        if self.transport.get_write_buffer_size() < self._unsent_bytes:
            self._watch_writing()
            return
        logger.warning("client does not read its answer", extra={"client": self._client_host()})
        self._guarded.abort()

    def _unset_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    # Answering

    def on_response_complete(self) -> None:
        """An answer is out: go on with the next request, send what waited for its turn, or close."""
        if self._queued is not None and not self.pipeline:
            self.server_state.total_requests += 1
            problem, self._queued = self._queued, None
            self._send_problem(problem)
            return
        super().on_response_complete()
        if self._phase is not _Phase.IDLE:
            self._unset_keepalive_if_required()
        if self._phase is _Phase.BODY and self.cycle.response_complete:
            self.transport.close()  # answered early: the rest of the body is not worth reading

    def _refuse(self, problem: Problem) -> None:
        """Answer the request that is being received with a problem, after the answers before it; then close."""
        self.edge.metrics.refusals.labels(problem.code).inc()
        logger.info(
            "connection refused",
            extra={"status": problem.status, "code": problem.code, "client": self._client_host()},
        )
        cycle = self.cycle
        if self._phase is _Phase.BODY:
            cycle.disconnected = True
            cycle.message_event.set()
            if self.pipeline and self.pipeline[0][0] is cycle:
                self.pipeline.popleft()  # it has not begun: others are before it
            elif cycle.response_started:
                self.transport.close()  # an answer has begun: cutting it is all that can be said
                return
            else:
                self._send_problem(problem)
                return
        elif cycle is None or (cycle.response_complete and not self.pipeline):
            self._send_problem(problem)
            return
        self._queued = problem
        self.ignore_input()

    def _send_problem(self, problem: Problem) -> None:
        request_id = new_request_id()
        body = problem.body(request_id)
        fields = {
            **problem.response_headers(),
            "content-length": str(len(body)),
            "connection": "close",
            "x-request-id": request_id,
            "x-content-type-options": "nosniff",
        }
        lines = [b"HTTP/1.1 %d %s" % (problem.status, _reason(problem.status))]
        lines += [b"%s: %s" % pair for pair in self.server_state.default_headers]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in fields.items()]
        head = b"\r\n".join([*lines, b"", b""])
        self.ignore_input()
        self.transport.write(head if self._is_head_request() else head + body)
        self.transport.close()

    def _is_head_request(self) -> bool:
        return self._phase is _Phase.BODY and self.scope["method"] == "HEAD"

    def _client_host(self) -> str:
        return self.client[0] if self.client else ""


def _framing_problem(version: str, lengths: list[bytes], codings: list[bytes]) -> Problem | None:
    """Where a body ends must have one answer (RFC 9112, 6.3)."""
    if len(lengths) > 1 or any(not value.isdigit() for value in lengths):
        return Problem(400, "content-length-invalid", "Content-Length stands once and is a number")
    if not codings:
        return None
    if lengths:
        return Problem(400, "framing-ambiguous", "Content-Length and Transfer-Encoding exclude one another")
    if version == "1.0":
        return Problem(400, "framing-ambiguous", "HTTP/1.0 has no Transfer-Encoding")
    if len(codings) > 1 or codings[0].lower() != b"chunked":
        return Problem(501, "transfer-encoding-unsupported", "the only transfer coding known here is chunked")
    return None


def _reason(status: int) -> bytes:
    return http.HTTPStatus(status).phrase.encode("ascii")


def protocol_for(edge: Edge) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn's configuration, bound to one server's edge."""

    class BoundProtocol(GuardedProtocol):
        def __init__(
            self,
            config: Config,
            server_state: ServerState,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> None:
            super().__init__(config, server_state, app_state, _loop, edge=edge)

    return BoundProtocol
