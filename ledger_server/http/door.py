"""Taking connections in: no address has more than its share of them, counted from before a TLS handshake on.

uvicorn sees a connection once its handshake is over, so connections are accepted here, and then handed to uvicorn's
class. One beyond ``http.max_connections``, or beyond the share of its address, is among the few that are kept for a
supervisor's request, or is refused at once.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ledger_server.http.limits import LimitedConnection, too_many_connections
from ledger_server.http.state import ServerState
from ledger_server.shares import address_of

logger: logging.Logger = logging.getLogger(__name__)

SPARE_CONNECTIONS: Final = 16
"""Beyond ``http.max_connections``, for one request of a supervisor each: a full server is no dead one."""
PAUSE_S: Final = 1.0
"""How long nobody is taken in when the process has no file left."""
_AT_ONCE: Final = 16
_NOTHING_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Door:
    """One listening socket, from its creation in the running event loop until ``close``.

    Args:
        listening: The socket; whoever made it closes it, too.
        connection: Makes a ``LimitedConnection``, given whose it is and whether it is a spare one.
        certificate: Of TLS; None for plain HTTP.
        state: The server's limits, metrics, and who holds how many connections.
    """

    def __init__(
        self,
        listening: socket.socket,
        connection: Callable[..., LimitedConnection],
        *,
        certificate: ssl.SSLContext | None,
        state: ServerState,
    ) -> None:
        self._listening = listening.dup()  # as whoever made it may close it first
        self._connection, self._certificate, self._state = connection, certificate, state
        self._proxies = [ip_network(each) for each in state.settings.trusted_proxies]
        self._entering: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._refusal = too_many_connections()
        response = self._refusal.response()
        fields = [b"%s: %s\r\n" % field for field in (*response.raw_headers, (b"connection", b"close"))]
        self._answer = b"".join([STATUS_LINE[self._refusal.status], *fields, b"\r\n", response.body])
        self._listening.setblocking(False)
        self._open()

    def _open(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        """Take nobody in any more."""
        self._is_closed = True
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()

    def _accept(self) -> None:
        """Take some connections in; the event loop asks again while there are more, and serves others in between."""
        try:
            for _ in range(_AT_ONCE):
                self._take(*self._listening.accept())
        except OSError as error:  # else there are no more, or a client has left again
            if error.errno in _NOTHING_LEFT:
                logger.error("no connection can be taken in", extra={"reason": str(error)})  # noqa: TRY400
                self._loop.remove_reader(self._listening.fileno())
                self._loop.call_later(PAUSE_S, self._open)

    def _take(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        """Let one connection in, or refuse it."""
        holder, connections = self._holder(address[0]), self._state.connections
        connections.take(holder)
        excess = connections.excess(holder)
        if excess > SPARE_CONNECTIONS:
            connections.give_back(holder)
            self._refuse(accepted, address[0])
            return
        self._state.metrics.connections.set(connections.total)
        accepted.setblocking(False)
        task = self._loop.create_task(self._enter(accepted, self._connection(holder=holder, is_spare=excess > 0)))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    def _holder(self, host: str) -> str | None:
        """Whose a connection is: a listed proxy's is nobody's, for what it brings is counted by request."""
        address = address_of(host)
        is_proxy = self._proxies and any(ip_address(address) in network for network in self._proxies)
        return None if is_proxy else address

    def _refuse(self, accepted: socket.socket, host: str) -> None:
        """Say why, where that costs no handshake; nobody else waits for it."""
        self._state.metrics.rejected.labels(self._refusal.code).inc()
        logger.debug("connection refused", extra={"client": host, "code": self._refusal.code})
        if self._certificate is None:
            with suppress(OSError):
                accepted.setblocking(False)
                accepted.send(self._answer)
        accepted.close()

    async def _enter(self, accepted: socket.socket, connection: LimitedConnection) -> None:
        """Shake hands where there is TLS, as long as a head may take, and leave the rest to the connection."""
        within_s = None if self._certificate is None else self._state.settings.http.timeout_s
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._certificate, ssl_handshake_timeout=within_s
            )
        except OSError:  # no handshake, or a late one
            connection.leave()
