"""The guard of every request, as plain ASGI around the application.

In this order: an id, in and out (``X-Request-Id``); while draining, ``/readyz`` is 503; the client's rate (429);
the server's concurrency (503); encoded bodies (415: nothing is ever inflated); declared size (413, nothing read);
size as it streams (413 at the first byte too many). Every answer gets security headers, one access-log event and
its metrics. An exception that reaches this far is a bug: logged once, answered 500 without a trace.

Place it outermost among an application's middleware.
"""

import asyncio
import logging
import re
import secrets
import time
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ledger_server.http.access import AccessGate, caller_of
from ledger_server.http.problems import Problem, unexpected
from ledger_server.http.routes import RouteRule, RouteTable
from ledger_server.http.state import Edge
from ledger_server.logs import logging_request

logger = logging.getLogger("ledger_server.access")

CLIENT_GONE: Final = 499
"""Logged and counted for a request whose client left; never sent."""

UNMATCHED: Final = "(none)"
"""Route label of requests that match no route."""

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_MAX_LOGGED_PATH: Final = 200
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_NOTHING_ACTIVE: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


class EdgeMiddleware:
    """Guards one application.

    Args:
        app: What is guarded.
        edge: The server's limits, metrics and state.
        routes: What requests may cost.
        gate: Who may call what; None: nothing is to be checked.
    """

    def __init__(self, app: ASGIApp, edge: Edge, routes: RouteTable, gate: AccessGate | None = None) -> None:
        self._app, self._edge, self._routes, self._gate = app, edge, routes, gate
        http = edge.settings.http
        self._rates = Rates(http.rate_per_client_s, http.rate_burst) if http.rate_per_client_s else None
        self._hsts = edge.settings.tls.certificate is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rule = self._routes.rule_for(scope["method"], scope["path"])
        exchange = _Exchange(scope, receive, send, edge=self._edge, rule=rule, hsts=self._hsts)
        scope.setdefault("state", {})["request_id"] = exchange.request_id
        with logging_request(exchange.request_id):
            await self._guarded(exchange)

    async def _guarded(self, exchange: "_Exchange") -> None:
        edge = self._edge
        edge.metrics.in_progress.inc()
        edge.in_progress += exchange.rule.counted
        try:
            problem = self._refusal(exchange)
            if problem is not None:
                edge.metrics.refusals.labels(problem.code).inc()
                await exchange.refuse(problem)
            else:
                await self._answer(exchange)
        except asyncio.CancelledError:
            exchange.status = exchange.status or CLIENT_GONE
            raise
        finally:
            edge.in_progress -= exchange.rule.counted
            edge.metrics.in_progress.dec()
            exchange.record()

    async def _answer(self, exchange: "_Exchange") -> None:
        try:
            receive: Receive = exchange.receive
            if self._gate is not None:
                receive = await self._gate.admit(exchange.scope, receive)
            endpoint = exchange.rule.endpoint
            if endpoint is None:
                await self._app(exchange.scope, receive, exchange.send)
            else:
                response = await endpoint(Request(exchange.scope, receive, exchange.send))
                await response(exchange.scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = exchange.status or CLIENT_GONE
        except Problem as raised:
            if not exchange.started:
                await exchange.refuse(raised)
        except Exception as error:  # noqa: BLE001 -- the seam: what gets here is a bug, and becomes a 500
            problem = unexpected(error)
            # An answer that has begun cannot be taken back: returning without its end makes the server cut
            # the connection, so that the client sees that something is missing.
            if not exchange.started:
                await exchange.refuse(problem)

    def _refusal(self, exchange: "_Exchange") -> Problem | None:
        scope, rule, http = exchange.scope, exchange.rule, self._edge.settings.http
        if self._edge.draining and scope["path"] == "/readyz":
            return Problem(503, "draining", "the server is shutting down")
        if rule.counted and self._rates is not None:
            wait_s = self._rates.take(client_of(scope), now_s=time.monotonic())
            if wait_s > 0:
                return Problem(
                    429,
                    "too-many-requests",
                    "this address asks more often than the server allows",
                    headers={"retry-after": str(int(wait_s) + 1)},
                )
        if rule.counted and self._edge.in_progress > http.max_concurrent_requests:
            return Problem(503, "too-busy", "the server is answering as many requests as it may; try again")
        return exchange.body_refusal()


class _Exchange:
    """One request and its answer: counts bytes, enforces the body's limit, completes headers."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, edge: Edge, rule: RouteRule, hsts: bool) -> None:
        self.scope, self.rule = scope, rule
        self._receive, self._send, self._edge, self._hsts = receive, send, edge, hsts
        self._began_s = time.perf_counter()
        self.encoding, self.declared, self._has_body = b"", 0, False
        wanted_ids: list[bytes] = []
        for name, value in scope["headers"]:
            if name == b"content-length":
                self.declared, self._has_body = int(value), self._has_body or value != b"0"
            elif name == b"transfer-encoding":
                self._has_body = True
            elif name == b"content-encoding":
                self.encoding += value.strip().lower()
            elif name == b"x-request-id":
                wanted_ids.append(value)
        usable = len(wanted_ids) == 1 and _REQUEST_ID.fullmatch(wanted_ids[0])
        self.request_id = wanted_ids[0].decode("ascii") if usable else new_request_id()
        self.status = 0
        self.started = False
        self.bytes_in = self.bytes_out = 0
        self._too_large: Problem | None = None
        self._swallow = False

    def body_refusal(self) -> Problem | None:
        """What the request's head alone says against its body."""
        if self.encoding not in (b"", b"identity"):
            return Problem(
                415,
                "content-encoding-unsupported",
                "bodies are taken as they are, without Content-Encoding",
                headers={"accept-encoding": "identity"},
            )
        return self._size_problem() if self.declared > self.rule.max_body_bytes else None

    def _size_problem(self) -> Problem:
        limit = self.rule.max_body_bytes
        detail = f"a body for this path has at most {limit} bytes"
        return Problem(413, "body-too-large", detail, extensions={"limit": limit})

    async def receive(self) -> Message:
        """The next part of the body; raises the 413 at the first byte too many."""
        if self._too_large is not None:
            raise self._too_large
        message = await self._receive()
        if message["type"] == "http.request":
            self.bytes_in += len(message.get("body", b""))
            if self.bytes_in > self.rule.max_body_bytes:
                self._too_large = self._size_problem()
                self._edge.metrics.refusals.labels(self._too_large.code).inc()
                raise self._too_large
            if not message.get("more_body", False):
                self._has_body = False
        return message

    async def send(self, message: Message) -> None:
        """Pass the answer on; a body that was too large is answered so whatever the application made of it."""
        if self._swallow:
            return
        if self._too_large is not None and not self.started:
            await self.refuse(self._too_large)
            self._swallow = True
            return
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            message = {**message, "headers": self._headers(message.get("headers", ()))}
        elif message["type"] == "http.response.body":
            self.bytes_out += len(message.get("body", b""))
        await self._send(message)

    def _headers(self, given: object) -> list[tuple[bytes, bytes]]:
        assert isinstance(given, list | tuple)
        headers = list(given)
        names = {name.lower() for name, _ in headers}
        html = any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in headers)
        extra = [*_SECURITY_HEADERS, (b"x-request-id", self.request_id.encode("ascii"))]
        if not html:
            extra.append(_NOTHING_ACTIVE)
        if self._hsts:
            extra.append((b"strict-transport-security", b"max-age=31536000"))
        if self._has_body or self._edge.draining:
            # Answered before its body was read: the rest is not worth reading for another request.
            extra.append((b"connection", b"close"))
        return headers + [pair for pair in extra if pair[0] not in names]

    async def refuse(self, problem: Problem) -> None:
        """Answer with a problem."""
        self._too_large = None
        body = problem.body(self.request_id)
        fields = {**problem.response_headers(), "content-length": str(len(body))}
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        await self.send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def record(self) -> None:
        """One event and the metrics of this exchange."""
        scope, metrics = self.scope, self._edge.metrics
        took_s = time.perf_counter() - self._began_s
        status = self.status or CLIENT_GONE
        route = self.rule.template or route_of(scope)
        metrics.requests.labels(scope["method"], route, str(status)).inc()
        metrics.request_s.labels(route).observe(took_s)
        metrics.request_bytes.labels(route).inc(self.bytes_in)
        metrics.response_bytes.labels(route).inc(self.bytes_out)
        level = logging.INFO if self.rule.counted else logging.DEBUG
        if logger.isEnabledFor(level):
            caller = caller_of(scope)
            logger.log(
                level,
                "request",
                extra={
                    "method": scope["method"],
                    "path": scope["path"][:_MAX_LOGGED_PATH],
                    "route": route,
                    "status": status,
                    "bytes_in": self.bytes_in,
                    "bytes_out": self.bytes_out,
                    "took_ms": round(took_s * 1e3, 3),
                    "client": (scope.get("client") or ("",))[0],
                    **({} if caller is None else {"caller": caller}),
                },
            )


def new_request_id() -> str:
    """An id for a request that brought none."""
    return secrets.token_hex(8)


def route_of(scope: Scope) -> str:
    """The template of the route that matched, as the metrics' label: ``/v1/models/{digest}``."""
    context = scope.get("fastapi", {}).get("effective_route_context")
    for route in (context, scope.get("route")):
        path = getattr(route, "path", None)
        if isinstance(path, str):
            return path
    return UNMATCHED


def client_of(scope: Scope) -> str:
    """Who is asking, as the rate limit sees it: an IPv4 address or an IPv6 network of 64 bits."""
    host = str((scope.get("client") or ("",))[0])
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Address(int(address) >> 64 << 64))
    return host


class Rates:
    """A token bucket per client, for as many clients as were seen last.

    Args:
        rate_s: Tokens per second.
        burst: Most tokens that a client can have saved.
        clients: Most buckets kept; the least recently used one is forgotten, and so is full again.
    """

    def __init__(self, rate_s: float, burst: int, *, clients: int = 10_000) -> None:
        self._rate_s, self._burst, self._clients = rate_s, burst, clients
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, *, now_s: float) -> float:
        """Take a token: 0.0, or the seconds after which there will be one."""
        tokens, then_s = self._buckets.pop(client, (float(self._burst), now_s))
        tokens = min(self._burst, tokens + (now_s - then_s) * self._rate_s)
        granted = tokens >= 1
        self._buckets[client] = (tokens - granted, now_s)
        if len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - tokens) / self._rate_s
