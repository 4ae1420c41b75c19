"""What every request gets, as plain ASGI around the application.

An id, in and out (``X-Request-Id``); security headers; the limits of ``http.limits``; one log event and its metrics. An
exception that reaches this far is a bug: logged once, answered 500 without a trace. Place it outermost among an
application's middleware.
"""

import asyncio
import logging
import re
import time
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fl_core.wire import v1
from ledger_server.http.access import caller_of, update_of
from ledger_server.http.limits import TimedExchange
from ledger_server.http.problems import new_request_id, problem_of
from ledger_server.http.state import EXCHANGE, ServerState
from ledger_server.logs import logging_request

logger: logging.Logger = logging.getLogger("ledger_server.access")

CLIENT_GONE: Final = 499
"""Logged and counted for a request whose client left; never sent."""
UNMATCHED: Final = "(none)"
"""Route label of requests that match no route."""
_BETWEEN_PEERS: Final = "/v1/gossip/"
"""What peers ask all the time: logged at debug where it is answered; what came of it has lines of its own."""

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_MAX_LOGGED_PATH: Final = 200
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_NOTHING_ACTIVE: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")


class RequestMiddleware:
    """Wraps one application.

    Args:
        app: What answers.
        server: The server's limits, metrics and state.
    """

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app, self._server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, server = time.perf_counter(), self._server
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        scope["state"][EXCHANGE] = exchange = TimedExchange(scope, receive, send, server)
        server.threads.serve(lambda: exchange.holder)
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": self._headers(exchange, request_id, message.get("headers", ()))}
            await exchange.send(message)

        if scope["path"] not in v1.SUPERVISION:
            exchange.enter()
        server.metrics.in_progress.inc()
        with logging_request(request_id):
            try:
                await self._app(scope, exchange.receive, answer)
            except (ClientDisconnect, asyncio.CancelledError) as error:
                status = status or CLIENT_GONE
                if isinstance(error, asyncio.CancelledError):
                    raise
            except Exception as error:  # noqa: BLE001 -- the seam: what gets here is a bug, and becomes a 500
                # An answer that has begun cannot be taken back: returning without its end makes uvicorn cut the
                # connection, so that the client sees that something is missing.
                problem = problem_of(error)
                if not exchange.started:
                    await problem.response(request_id)(scope, receive, answer)
            finally:
                exchange.close()
                del scope["state"][EXCHANGE]  # ends the circle of references
                server.metrics.in_progress.dec()
                self._record(scope, exchange, status or CLIENT_GONE, time.perf_counter() - began_s)

    def _headers(
        self, exchange: TimedExchange, request_id: str, given: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        names = {name.lower() for name, _ in given}
        html = any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in given)
        extra = [*_SECURITY_HEADERS, (b"x-request-id", request_id.encode("ascii"))]
        if not html:
            extra.append(_NOTHING_ACTIVE)
        if self._server.settings.tls.certificate is not None:
            extra.append(_HSTS)
        is_crowded = self._server.connections.total > 0.75 * self._server.settings.http.max_connections
        if not exchange.body_ended or exchange.is_spare or self._server.draining or is_crowded:
            # Answered before its body was read: the rest is not worth reading for another request. In a crowd, who
            # trains keeps no connection that somebody else needs.
            extra.append((b"connection", b"close"))
        return [*given, *(pair for pair in extra if pair[0] not in names)]

    def _record(self, scope: Scope, exchange: TimedExchange, status: int, took_s: float) -> None:
        """One event and the metrics of a request."""
        metrics, route = self._server.metrics, route_of(scope)
        metrics.requests.labels(scope["method"], route, str(status)).inc()
        metrics.request_s.labels(route).observe(took_s)
        metrics.request_bytes.labels(route).inc(exchange.bytes_in)
        metrics.response_bytes.labels(route).inc(exchange.bytes_out)
        is_usual = scope["path"] in v1.SUPERVISION or (status < 400 and scope["path"].startswith(_BETWEEN_PEERS))
        level = logging.DEBUG if is_usual else logging.INFO
        if logger.isEnabledFor(level):
            caller = caller_of(scope)
            fields = {
                "method": scope["method"],
                "path": scope["path"][:_MAX_LOGGED_PATH],
                "route": route,
                "status": status,
                "bytes_in": exchange.bytes_in,
                "bytes_out": exchange.bytes_out,
                "took_ms": round(took_s * 1e3, 3),
                "client": (scope.get("client") or ("",))[0],
                **update_of(scope),
            }
            if (code := scope["state"].get("code")) is not None:
                fields["code"] = code
            logger.log(level, "request", extra=fields if caller is None else {**fields, "caller": caller})


def _request_id(scope: Scope) -> str:
    """The client's id for the request where it sent one that is safe to log, else a new one."""
    given = [value for name, value in scope["headers"] if name == b"x-request-id"]
    usable = len(given) == 1 and _REQUEST_ID.fullmatch(given[0])
    return given[0].decode("ascii") if usable else new_request_id()


def route_of(scope: Scope) -> str:
    """The template of the route that matched, as the metrics' label: ``/v1/models/{digest}``."""
    return str(getattr(scope.get("route"), "path", UNMATCHED))
