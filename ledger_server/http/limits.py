"""What uvicorn lacks against slow and greedy clients: deadlines, and a limit of bytes in flight.

``LimitedConnection`` bounds heads (408, 431), ``TimedExchange`` bodies (408, 503) and answers; ``http.door`` bounds the
number of connections. They rely on methods and the state of uvicorn's class; CI tests the oldest and newest uvicorn.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from fl_core.wire import v1
from ledger_server.http.problems import Problem, new_request_id
from ledger_server.http.state import ServerState
from ledger_server.shares import address_of

logger = logging.getLogger(__name__)
MAX_PENDING_BYTES: Final = 128 * 1024
"""Bytes of which the application has not been given any: a head, and the 64 KiB of body after which uvicorn pauses."""
LINGER_S: Final = 1.0
"""Seconds for which a refused request is still read: closing with unread bytes can destroy the answer on its way."""
_CONNECTION: Final = "dag_acfl_connection"
_CREDENTIALS: Final = frozenset({b"authorization", b"signature-input"})


def too_many_connections() -> Problem:
    """Of what the server, or one address, may have."""
    return Problem("too-many-connections", "there are as many connections, or as many from here, as may be")


class LimitedConnection(HttpToolsProtocol):
    """One connection: uvicorn's, with limits on heads.

    Args:
        server: The server's limits and metrics, and who holds how many connections: this one is counted already.
        app_state: uvicorn's; so are the others.
        holder: Whose it is.
        is_spare: Whether it is for one request of a supervisor.
    """

    def __init__(
        self,
        *,
        server: ServerState,
        app_state: dict[str, Any],
        holder: str | None,
        is_spare: bool,
        **of_uvicorn: Any,
    ) -> None:
        self._shared = {**app_state, _CONNECTION: self}
        super().__init__(app_state=self._shared, **of_uvicorn)
        self._server, self._holder, self.is_spare = server, holder, is_spare
        self._deadline: asyncio.TimerHandle | None = None
        self._is_refused = self._has_left = False
        self.exchange: TimedExchange | None = None
        self.admitted_path: str | None = None
        self.pending_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the clock of the first head."""
        super().connection_made(transport)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self.stop_clock()
        self._shared.clear()  # ends the circle of references
        self.leave()

    def leave(self) -> None:
        """Count it no more."""
        if not self._has_left:
            self._has_left = True
            self._server.connections.give_back(self._holder)
            self._server.metrics.connections.set(self._server.connections.total)

    def belongs_to(self, caller: str) -> None:
        """Count it as the caller's, unless that has its share already."""
        connections = self._server.connections
        if self._holder not in (None, caller) and connections.excess(caller) < 0:
            connections.give_back(self._holder)
            connections.take(caller)
            self._holder = caller

    def data_received(self, data: bytes) -> None:
        """Let uvicorn parse what came, unless it is too much."""
        if self.pending_bytes > MAX_PENDING_BYTES and not self._is_refused:
            self._refuse(Problem("headers-too-large", "a head or a body's framing is too large"), linger_s=LINGER_S)
        if self._is_refused:
            return
        self.pending_bytes += len(data)
        if self.exchange is None and self._deadline is None:
            self._start_clock()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Start the request; fields that come from now on are trailers, which must not pass for the head's."""
        if self._is_refused:
            return
        is_first = self.cycle is None or self.cycle.response_complete  # else it waits for one that is being answered
        if is_first and (problem := self._too_much()) is not None:
            # Who is at its share and does not hang up keeps what it has, rather than to come again at once.
            self._refuse(problem, linger_s=self._server.settings.http.timeout_s)
            return
        before = self.cycle
        super().on_headers_complete()
        if is_first and self.admitted_path is not None and self.cycle is not before:
            # Counted now, as many more heads may be read before the task that was made of this one begins.
            self._server.admission.enter(self.admitted_path, address_of((self.client or ("",))[0]))
        self.headers = []

    def _too_much(self) -> Problem | None:
        """Why a request of no known caller is refused before it costs anything; of others, ``RequestGuard`` says it."""
        path = self.url.partition(b"?")[0].decode("ascii", "replace")
        self.admitted_path = None
        if path in v1.SUPERVISION:
            return None
        if self.is_spare:
            return too_many_connections()
        if self._holder is None or any(name in _CREDENTIALS for name, _ in self.headers):
            return None  # who it is, only its head says
        method = self.parser.get_method().decode("ascii")
        problem = self._server.admission.refusal(method, path, self._holder, is_counted=False)
        self.admitted_path = path if problem is None else None
        return problem

    def on_body(self, body: bytes) -> None:
        """Pass it on, unless the request was refused."""
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Likewise."""
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's signature; its text says no more
        """Answer what the parser cannot read by a problem instead of plain text."""
        if not self._is_refused:
            self._refuse(Problem("request-malformed", "this is not an HTTP/1.1 request"))

    def _start_clock(self) -> None:
        self._deadline = self.loop.call_later(self._server.settings.http.timeout_s, self._on_late)

    def stop_clock(self) -> None:
        """A head is complete. From its answer on, uvicorn's keep-alive clock runs until more bytes come."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_late(self) -> None:
        if self.pending_bytes:
            self._refuse(Problem("request-timeout", "the request's head did not arrive in time"))
        else:
            self.transport.close()

    def _refuse(self, problem: Problem, *, linger_s: float = 0.0) -> None:
        self._is_refused = True
        self.stop_clock()
        self.loop.call_later(linger_s or LINGER_S, self.transport.abort)  # even if the client does not read the answer
        self._server.metrics.rejected.labels(problem.code).inc()
        logger.info("connection refused", extra={"status": problem.status, "code": problem.code})
        if self.exchange is not None and self.exchange.started:
            self.transport.abort()  # an answer has begun: there is no place for another
            return
        response = problem.response(request_id := new_request_id())
        response.headers.update({"connection": "close", "x-request-id": request_id})
        fields = [b"%s: %s\r\n" % field for field in response.raw_headers]
        self.transport.write(b"".join([STATUS_LINE[problem.status], *fields, b"\r\n", response.body]))
        if not linger_s:
            self.transport.close()

    @property
    def is_behind(self) -> bool:
        """Whether uvicorn would wait for the client before it writes more."""
        return self.flow.write_paused

    @property
    def is_drained(self) -> bool:
        """Whether all that was written has left."""
        return not self.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """Wait until it has; uvicorn itself waits only before it writes more."""
        self.transport.set_write_buffer_limits(high=0)
        await self.flow.drain()
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits()


class TimedExchange:
    """A request's ``receive`` and ``send``; its client may be ``http.timeout_s`` behind ``http.min_bytes_per_s``.

    Attributes:
        holder: Whose the request is, for what it may hold of the server: its address, or who has been found to call.
        admitted_path: Of a request that was let in, and counted, at its head; None where nobody has looked.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, server: ServerState) -> None:
        self._receive, self._send, self._server = receive, send, server
        self._behind_s, self.started = 0.0, False
        self.holder: str = address_of((scope.get("client") or ("",))[0])
        self.bytes_in = self.bytes_out = self._held_bytes = self._handed_over = 0
        fields = dict(scope["headers"])
        self.body_ended = b"transfer-encoding" not in fields and fields.get(b"content-length", b"0") == b"0"
        self._connection: LimitedConnection | None = scope["state"].pop(_CONNECTION, None)
        if self._connection is not None:
            self._connection.stop_clock()
            self._connection.exchange, self._connection.pending_bytes = self, 0
        self.is_spare: bool = self._connection is not None and self._connection.is_spare  # closed after one answer
        self.admitted_path: str | None = None
        if self._connection is not None:
            self.admitted_path, self._connection.admitted_path = self._connection.admitted_path, None
        self._is_counted = self.admitted_path is not None
        self._path: str = self.admitted_path or scope["path"]

    def enter(self) -> None:
        """Count it among the requests in progress, where its head has not been."""
        if not self._is_counted:
            self._is_counted = True
            self._server.admission.enter(self._path, self.holder)

    def belongs_to(self, caller: str) -> None:
        """Somebody has shown who calls: what it holds is the caller's from here on, and no more the address's."""
        if self._is_counted:
            self._server.admission.leave(self._path, self.holder)
            self._server.admission.enter(self._path, caller)
        self._server.body_bytes.give_back(self.holder, self._held_bytes)
        self._server.body_bytes.take(caller, self._held_bytes)
        self.holder = caller
        if self._connection is not None:
            self._connection.belongs_to(caller)

    async def receive(self) -> Message:
        """The next part of the body; raises a ``Problem`` when it is late (408) or finds no room (503)."""
        if self.body_ended:
            return await self._receive()  # nothing comes but the news that the client has left
        try:
            message: Message = await self._timed(self._receive(), 0)
        except TimeoutError:
            if self.started:  # it is too late for a problem
                return {"type": "http.disconnect"}
            raise Problem("request-timeout", "the body did not arrive in time") from None
        size = len(message.get("body", b""))
        self.body_ended = not message.get("more_body", False)
        self.bytes_in += size
        self._behind_s = max(0.0, self._behind_s - size / self._server.settings.http.min_bytes_per_s)
        if self._connection is not None:
            self._connection.pending_bytes = 0
        self.hold(size)
        return message

    def hold(self, size: int) -> None:
        """Count bytes of a body, or what they unfold to; raises a ``Problem`` where there is no room for them (503)."""
        self._held_bytes += size
        self._server.body_bytes.take(self.holder, size)
        # A request that is alone is served whatever its size, which its route limits.
        if self._held_bytes < self._server.body_bytes.total and self._server.body_bytes.excess(self.holder) > 0:
            self._release()
            raise Problem("too-busy", "as many bytes are being received as may be; try again")

    async def send(self, message: Message) -> None:
        """Pass the answer on; before its end, drop what still comes of a body that was not read."""
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last and not self.body_ended:
            await self.send({**message, "more_body": True})
            self._release()
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    while (await self._receive()).get("more_body", False):
                        pass
            message = {"type": "http.response.body", "body": b""}
        self.started = True
        try:  # uvicorn takes a message only once most of the one before has left
            if self._connection is None or self._connection.is_behind:
                await self._timed(self._send(message), self._handed_over)
            else:  # it does not wait, and a clock for each message would cost more than the message
                taken_s = self._handed_over / self._server.settings.http.min_bytes_per_s
                self._behind_s = max(0.0, self._behind_s - taken_s)
                await self._send(message)
            self._handed_over = len(message.get("body", b""))
            self.bytes_out += self._handed_over
            if is_last and self._connection is not None:
                self.close()  # the next head on this connection has a clock of its own
                if not self._connection.is_drained:
                    await self._timed(self._connection.drained(), self._handed_over)
        except TimeoutError:
            if self._connection is not None:
                self._connection.transport.abort()
            raise ClientDisconnect from None

    async def _timed(self, step: Awaitable[Any], nbytes: int) -> Any:
        """Wait for the client, which has ``nbytes`` to take; while the server is at work, the clock stands still."""
        limits, loop = self._server.settings.http, asyncio.get_running_loop()
        began_s, due_s = loop.time(), nbytes / limits.min_bytes_per_s
        try:
            async with asyncio.timeout(limits.timeout_s + due_s - self._behind_s):
                return await step
        finally:
            self._behind_s = max(0.0, self._behind_s + loop.time() - began_s - due_s)

    def _release(self) -> None:
        self._server.body_bytes.give_back(self.holder, self._held_bytes)
        self._held_bytes = 0
        if self._is_counted:
            self._is_counted = False
            self._server.admission.leave(self._path, self.holder)

    def close(self) -> None:
        """The request is over."""
        self._release()
        if self._connection is not None and self._connection.exchange is self:
            self._connection.exchange = None
