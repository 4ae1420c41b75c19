"""Running an application: the port, the guarded protocol, and an orderly end.

SIGTERM and Ctrl-C drain: ``/readyz`` turns 503, after ``drain_delay_s`` the port closes, requests in progress get
``drain_s`` to end, and the process exits with 0. A second signal ends it at once.
"""

import asyncio
import contextlib
import errno
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from fl_core.errors import ParameterError
from ledger_server.http.protocol import protocol_for
from ledger_server.http.state import Edge
from ledger_server.settings import Settings

BACKLOG: Final = 1024


class EdgeServer(uvicorn.Server):
    """uvicorn's server with our protocol and our end.

    Args:
        app: The application.
        edge: Its limits, metrics and state.
        on_started: Called when the port answers.
    """

    def __init__(self, app: ASGIApp, edge: Edge, *, on_started: Callable[[], None] | None = None) -> None:
        super().__init__(_config(app, edge))
        self._edge, self._on_started = edge, on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets=sockets)
        if self.started and self._on_started is not None:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say that the server leaves, give that time to be seen, then drain."""
        self._edge.draining = True
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._edge.settings.drain_delay_s
        while loop.time() < until_s and not self.force_exit:  # noqa: ASYNC110 -- a signal handler ends it
            await asyncio.sleep(0.05)
        for end in self._edge.on_drain:
            end()
        await super().shutdown(sockets=sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 -- signal's signature
        """The first signal drains, the second ends."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals without raising them again afterwards: a drained server has ended well."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    app: ASGIApp,
    settings: Settings,
    *,
    edge: Edge | None = None,
    sockets: Sequence[socket.socket] | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal; returns when the last answer is out.

    Args:
        app: The application.
        settings: The server's settings.
        edge: The application's edge; default: ``app.state.edge``, or a new one.
        sockets: Listening sockets; default: bound to ``settings.host`` and ``settings.port``.
        announce: Told the URL once the port answers; default: a line on standard output.

    Raises:
        ParameterError: The port cannot be had, or the certificate cannot be read; one line, naming the setting.
        SystemExit: The application's start failed; the log has the reason.
    """
    edge = edge or edge_of(app) or Edge(settings)
    listening = list(sockets) if sockets is not None else [bind(settings)]
    url = url_of(listening[0], tls=settings.tls.certificate is not None)
    say = announce or _print_url
    try:
        server = EdgeServer(app, edge, on_started=lambda: say(url))
        server.config.load()
    except (ssl.SSLError, OSError) as error:
        for each in listening:
            each.close()
        raise ParameterError(f"tls: the certificate or key cannot be read: {error}") from None
    server.run(sockets=listening)


def bind(settings: Settings) -> socket.socket:
    """A socket listening where the settings say.

    Raises:
        ParameterError: The address or port cannot be had.
    """
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise ParameterError(f"--host {host}: not an address of this machine") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ParameterError(_bind_failure(error, host, port)) from None
    return listening


def _bind_failure(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is already in use; choose another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: not an address of this machine"
    return f"cannot listen on {host}, port {port} (--host, --port): {error.strerror}"


def url_of(listening: socket.socket, *, tls: bool) -> str:
    """The base URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def edge_of(app: object) -> Edge | None:
    """The edge that an application carries, if it does."""
    edge = getattr(getattr(app, "state", None), "edge", None)
    return edge if isinstance(edge, Edge) else None


def _print_url(url: str) -> None:
    sys.stdout.write(f"serving on {url}\n")
    sys.stdout.flush()


def _config(app: ASGIApp, edge: Edge) -> uvicorn.Config:
    settings = edge.settings
    tls = settings.tls
    return uvicorn.Config(
        app,
        http=protocol_for(edge),
        loop="auto",
        ws="none",
        interface="asgi3",
        log_config=None,
        access_log=False,
        workers=1,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=settings.drain_s,
        ssl_certfile=tls.certificate,
        ssl_keyfile=tls.key,
    )
