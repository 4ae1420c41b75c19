"""A real server in a thread, for tests that need sockets: ``with run_app(app, settings) as live: live.url``."""

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle, islice

from httpx2 import Client
from starlette.types import ASGIApp

from ledger_server.http.serve import LedgerServer, bind, state_of, url_of
from ledger_server.http.state import ServerState
from ledger_server.settings import Settings

START_S = 90.0
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that nobody else is given before the test's own server begins.

    They lie below those that Linux gives to whoever asks for any, and each of pytest's workers has its own.
    """
    return list(islice(filter(_is_free, _PORTS), count))


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def _ports_of_worker() -> Iterator[int]:
    """All of them again and again, so that one that was given comes up again last."""
    first = 20000 + 1000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 12)
    begin = os.getpid() % 1000  # another run of the tests may have a worker of the same name
    return cycle([*range(first + begin, first + 1000), *range(first, first + begin)])


_PORTS = _ports_of_worker()


def client_of(url: str, *, timeout_s: float = 30.0) -> Client:
    """A client for plain HTTP; httpx's own choice reads all authorities of the world for each client, 50 ms."""
    return Client(base_url=url, timeout=timeout_s, verify=_NO_TLS)


def eventually(holds: Callable[[], bool]) -> None:
    """See that it becomes true within a generous time."""
    deadline_s = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < deadline_s, "not in time"
        time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Live:
    """A running server; ``stop`` begins its drain as SIGTERM would."""

    url: str
    host: str
    port: int
    state: ServerState
    server: LedgerServer

    def stop(self) -> None:
        """Begin the drain."""
        self.server.should_exit = True


@contextmanager
def run_app(
    app: ASGIApp, settings: Settings, *, state: ServerState | None = None, listening: socket.socket | None = None
) -> Iterator[Live]:
    """Serve ``app`` until the block ends: on ``listening``, or on a free port of this machine."""
    state = state or state_of(app) or ServerState(settings)
    listening = listening or bind(settings.model_copy(update={"host": "127.0.0.1", "port": 0}))
    host, port = listening.getsockname()
    url = url_of(listening, tls=settings.tls.certificate is not None)
    started = threading.Event()
    server = LedgerServer(app, state, on_alive=started.set)
    ended: list[BaseException] = []

    def work() -> None:
        try:
            server.run(sockets=[listening])
        except BaseException as error:  # noqa: BLE001 -- told to the test below
            ended.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=work, name="live server", daemon=True)
    thread.start()
    assert started.wait(START_S), "the server did not start in time"
    try:
        assert server.started, f"the server did not start: {ended}"
        yield Live(url, host, port, state, server)
    finally:
        server.should_exit = True
        thread.join(settings.drain_s + START_S)
        listening.close()
        assert not thread.is_alive(), "the server did not stop"
        assert not ended, f"the server died: {ended}"
