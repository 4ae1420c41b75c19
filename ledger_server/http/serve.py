"""Running an application: the port, the limits of ``http.limits``, and an orderly end.

SIGTERM and Ctrl-C drain: the port closes, requests in progress get ``drain_s`` to end, and the process exits with 0. A
second Ctrl-C ends it at once. Where something asks ``/readyz``, the port answers for ``drain_delay_s`` after SIGTERM:
a load balancer has seen the 503 before it meets a closed port.
"""

import asyncio
import errno
import logging
import math
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from fl_core.errors import ParameterError
from ledger_server.http.door import Door
from ledger_server.http.limits import LimitedConnection
from ledger_server.http.state import ServerState
from ledger_server.settings import Settings

logger: logging.Logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
WATCHED_S: Final = 60.0
"""Somebody who has asked ``/readyz`` within this time asks again."""


_NOTICE_STEP_S: Final = 0.05
RENEWAL_S: Final = 10
"""How often it is looked whether the certificate's files have changed, and said that the event loop is alive."""
_SWITCH_S: Final = 0.001
"""How long a worker thread may hold the interpreter while the event loop waits for it, and does for every event."""


class LedgerServer(uvicorn.Server):
    """uvicorn's server with our limits, which says that it has started, and lives, and when it begins to stop."""

    def __init__(self, app: ASGIApp, state: ServerState, *, on_alive: Callable[[], object]) -> None:
        super().__init__(_config(app, state))
        self._state, self._on_alive = state, on_alive
        self._signals: list[int] = []
        self._doors: list[Door] = []
        self._certificate_changed = self._certificate_changes()
        self._shown_until_s = self._certificate_end_s()
        state.metrics.measured(state.metrics.certificate_ends_s, lambda: self._shown_until_s - time.time())
        self.config.callback_notify, self.config.timeout_notify = self._look, RENEWAL_S

    def _certificate_changes(self) -> list[int]:
        """When the files of certificate and key were changed; nothing without TLS."""
        tls = self._state.settings.tls
        return [file.stat().st_mtime_ns for file in (tls.certificate, tls.key) if file is not None]

    def _certificate_end_s(self) -> float:
        """When the file's certificate ends, in seconds since 1970; infinity without TLS, or where none can be read."""
        if self._state.settings.tls.certificate is not None:
            from cryptography import x509  # noqa: PLC0415 -- not for those without TLS

            with suppress(OSError, ValueError):
                certificate = x509.load_pem_x509_certificate(self._state.settings.tls.certificate.read_bytes())
                return certificate.not_valid_after_utc.timestamp()
        return math.inf

    async def _look(self) -> None:
        self._on_alive()
        if self._certificate_changed:
            await self.renew_certificate()

    async def renew_certificate(self) -> None:
        """Go on with a certificate that was renewed; connections that are open keep theirs."""
        try:
            changed, tls = self._certificate_changes(), self._state.settings.tls
            if changed == self._certificate_changed:
                return
            assert tls.certificate is not None, "there are files of it"
            assert self.config.ssl is not None, "likewise"
            # Tried apart: of a pair that does not fit, half would stay.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
            self.config.ssl.load_cert_chain(tls.certificate, tls.key)
            self._certificate_changed, self._shown_until_s = changed, self._certificate_end_s()
        except OSError as error:
            logger.error("the certificate cannot be read anew; the old one is shown", extra={"reason": str(error)})  # noqa: TRY400
        else:
            logger.info("certificate renewed", extra={"certificate": str(tls.certificate)})

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to stop came."""
        self._signals.append(sig)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        if self.started:
            of_uvicorn = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
            connection = partial(LimitedConnection, server=self._state, **of_uvicorn)
            certificate = self.config.ssl
            self._doors = [Door(each, connection, certificate=certificate, state=self._state) for each in sockets or ()]
            self._on_alive()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let a load balancer notice, end what would not end by itself, then drain."""
        self._state.draining = True
        now_s = time.monotonic()
        if self._signals == [signal.SIGTERM] and now_s - self._state.readiness_asked_s < WATCHED_S:
            until_s = now_s + self._state.settings.drain_delay_s
            while time.monotonic() < until_s and self._signals == [signal.SIGTERM]:  # noqa: ASYNC110 -- of a signal
                await asyncio.sleep(_NOTICE_STEP_S)
        for end in self._state.on_drain:
            end()
        for door in self._doors:
            door.close()
        await super().shutdown(sockets=sockets)


def serve(
    app: ASGIApp,
    settings: Settings,
    *,
    listening: socket.socket | None = None,
    on_alive: Callable[[], object] | None = None,
) -> None:
    """Serve until a signal; returns when the last answer is out. Prints the URL once the port answers.

    Args:
        app: What answers.
        settings: The server's.
        listening: Where; default: as the settings say.
        on_alive: Called once the port answers, in place of printing, and every 10 s from then on.

    Raises:
        ParameterError: The port cannot be had, or the certificate cannot be read; one line, naming the setting.
        SystemExit: The application's start failed; the log has the reason.
    """
    listening = listening or bind(settings)
    url = url_of(listening, tls=settings.tls.certificate is not None)
    try:
        state = state_of(app) or ServerState(settings)
        server = LedgerServer(app, state, on_alive=on_alive or cache(partial(print_url, url)))
        server.config.load()
    except (ssl.SSLError, OSError) as error:
        listening.close()
        raise ParameterError(f"tls: the certificate or key cannot be read: {error}") from None
    if threading.current_thread() is threading.main_thread():
        # When it has drained, uvicorn raises the signal again; it is not to kill a process that has ended well.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
    sys.setswitchinterval(_SWITCH_S)
    server.run(sockets=[listening])


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


def state_of(app: object) -> ServerState | None:
    """The server's state that an application carries, if it does."""
    state = getattr(getattr(app, "state", None), "server", None)
    return state if isinstance(state, ServerState) else None


def print_url(url: str) -> None:
    """Say where the server answers."""
    sys.stdout.write(f"serving on {url}\n")
    sys.stdout.flush()


def _config(app: ASGIApp, state: ServerState) -> uvicorn.Config:
    settings = state.settings
    tls = settings.tls
    return uvicorn.Config(
        app,
        http="httptools",  # LimitedConnection's base; Door makes the connections
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
        timeout_keep_alive=settings.http.keep_alive_s,
        timeout_graceful_shutdown=settings.drain_s,
        ssl_certfile=tls.certificate,
        ssl_keyfile=tls.key,
    )
