"""The demo's ledger servers: one, or several that are peers of one another, each with a database and a key of its own.

Prepares their folders, chooses their ports, starts and ends them, and waits until they hold the same. What a server
is as a process is ``processes``'; who speaks to which is the clients'.
"""

import errno
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from dag_acfl.demo.events import Equal
from dag_acfl.demo.processes import DemoError, ServerProcess
from fl_client.client import LedgerClient
from fl_client.errors import TransportError
from fl_core.dag.genesis import Genesis

FIRST_PORT: Final = 8900
EQUAL_WITHIN_S: Final = 30.0
"""How long the servers may take until they hold the same after the last publication."""
_TRIES: Final = 3
_ASK_EVERY_S: Final = 0.05


class LedgerServers:
    """The servers of one ledger on this machine.

    Args:
        folder: For their folders and logs.
        count: How many, at least 1.
        port: Of the first; the others follow. 0: any free ones; None: ``FIRST_PORT`` and on if free, else any.
    """

    def __init__(self, folder: Path, *, count: int, port: int | None) -> None:
        self._port = port
        names = ["ledger"] if count == 1 else [f"server-{number}" for number in range(1, count + 1)]
        self._folders = [folder / name for name in names]
        self._logs = [folder / (f"{name}.log" if count > 1 else "server.log") for name in names]
        self._processes: list[ServerProcess] = []
        self.urls: tuple[str, ...] = ()
        self.keys: tuple[str, ...] = ()
        """Public key of each server, as transactions name their issuer."""
        self.killed: int | None = None
        """The server that was killed and is not back yet."""

    def __len__(self) -> int:
        return len(self._folders)

    def create(self, genesis: Genesis, model: bytes) -> None:
        """Make the ledger in the first server's database, and let the others begin with the same genesis."""
        # Loaded here, while the worker that makes the first model loads torch.
        from fl_core.dag.signature import public_key_of  # noqa: PLC0415
        from ledger_server.admin.join import take_genesis  # noqa: PLC0415
        from ledger_server.admin.store_source import StoreSource  # noqa: PLC0415
        from ledger_server.founding import create_ledger  # noqa: PLC0415
        from ledger_server.keys import KEY_FILE, load_or_create_key  # noqa: PLC0415
        from ledger_server.store import open_store  # noqa: PLC0415

        now_ms = time.time_ns() // 1_000_000
        keys: list[str] = []
        with ExitStack() as stack:
            for folder in self._folders:
                folder.mkdir()
                store = stack.enter_context(open_store(_database(folder), data_dir=folder))
                key = load_or_create_key(folder / KEY_FILE)
                if not keys:
                    create_ledger(store, genesis, model, key=key, now_ms=now_ms)
                    source = StoreSource(store)
                else:
                    take_genesis(source, store, expected=source.ledger, now_ms=now_ms)
                keys.append(str(public_key_of(key)))
        self.keys = tuple(keys)

    def start(self) -> tuple[str, ...]:
        """Start all; gives their addresses once all answer.

        Raises:
            DemoError: One did not start. Ports that nobody asked for are chosen anew before that.
        """
        for tries_left in reversed(range(_TRIES)):
            ports = free_ports(len(self), first=self._port)
            try:
                self._start_on(ports)
            except DemoError as error:
                self.stop()
                if self._port or not tries_left or "already in use" not in str(error):
                    raise
            else:
                break
        return self.urls

    def _start_on(self, ports: Sequence[int]) -> None:
        self.urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
        self._processes = []
        for place in range(len(self)):
            self._processes.append(self._process(place))
        for process in self._processes:
            process.wait_until_ready()

    def _process(self, place: int) -> ServerProcess:
        places = zip(self.urls, self.keys, strict=True)
        entries = [f"server-{number}={url}#{key}" for number, (url, key) in enumerate(places, start=1)]
        return ServerProcess(
            self._folders[place],
            name="the server" if len(self) == 1 else f"server {place + 1}",
            log=self._logs[place],
            port=int(self.urls[place].rpartition(":")[2]),
            database_url=_database(self._folders[place]),
            peers=entries if len(self) > 1 else (),
        )

    def check(self) -> None:
        """Raises DemoError: A server has died, and not by ``kill``."""
        for place, process in enumerate(self._processes):
            if place != self.killed:
                process.check()

    def kill(self, place: int) -> None:
        """``kill -9``: the server has no time to say anything."""
        self.killed = place
        self._processes[place].kill()

    def restart(self) -> None:
        """Start the killed server again, with what its disk holds, on its old address; does not wait for it."""
        assert self.killed is not None, "kill comes first"
        self._processes[self.killed].stop()
        self._processes[self.killed] = self._process(self.killed)
        self.killed = None

    def wait_until_equal(self, transactions: int, *, within_s: float = EQUAL_WITHIN_S) -> Equal:
        """Ask all servers for their tips until all say the same.

        Args:
            transactions: That all must hold then, genesis included: what was acknowledged.
            within_s: Patience.

        Raises:
            DemoError: They did not become equal in time.
        """
        started = time.monotonic()
        with ExitStack() as stack:
            clients = [stack.enter_context(LedgerClient(url, timeout=1.0)) for url in self.urls]
            while True:
                self.check()
                held: list[tuple[int, str] | None] = [None] * len(clients)
                for place, client in enumerate(clients):
                    with suppress(TransportError):
                        tips = client.tips()
                        held[place] = (tips.transactions, tips.digest)
                first = held[0]
                waited_s = time.monotonic() - started
                if first is not None and first[0] == transactions and all(each == first for each in held):
                    return Equal(digest=first[1], transactions=first[0], waited_s=waited_s)
                if waited_s > within_s:
                    said = ", ".join("no answer" if each is None else f"{each[0]} ({each[1][:8]}…)" for each in held)
                    raise DemoError(
                        f"the servers do not hold all {transactions} transactions after {within_s:.0f} s, but {said}"
                    )
                time.sleep(_ASK_EVERY_S)

    def peer_bytes(self) -> int:
        """Bytes between servers since they were started, heads included: each counts the requests that it made."""
        total = 0
        for place, url in enumerate(self.urls):
            if place != self.killed:
                with LedgerClient(url, timeout=10.0) as client:
                    total += sum(peer.received_bytes + peer.sent_bytes for peer in client.peers().items)
        return total

    def client_bytes(self) -> float | None:
        """Bytes of one client's round as the servers count them, joining and everything else included."""
        nbytes, publications = 0.0, 0
        for url in self.urls:
            with LedgerClient(url, timeout=60.0) as client:
                costs = client.costs()
            nbytes += (costs.bytes_per_client_round or 0.0) * costs.publications
            publications += costs.publications
        return nbytes / publications if publications else None

    def stop(self) -> None:
        """Drain and end all, side by side."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.stop()


def free_ports(count: int, *, first: int | None) -> list[int]:
    """Ports for ``count`` servers; between now and their start somebody may take one, but hardly.

    Args:
        count: How many.
        first: As for ``LedgerServers``; ports that a person names are not tried here, the servers say it better.
    """
    if first:
        return list(range(first, first + count))
    if first is None and all(_is_free(port) for port in range(FIRST_PORT, FIRST_PORT + count)):
        return list(range(FIRST_PORT, FIRST_PORT + count))
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in held]


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        return False


def _database(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.sqlite3'}"
