"""A trial's ledger servers: ``dag-acfl serve``, one or several that are peers, each with a database and a key."""

import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from dag_acfl.trial.processes import Command, TrialError, stop
from fl_client.client import LedgerClient
from fl_client.errors import TransportError
from fl_core.dag.genesis import Genesis, Member
from fl_core.dag.signature import public_key_of
from ledger_server.admin.join import take_genesis
from ledger_server.admin.store_source import StoreSource
from ledger_server.founding import create_ledger
from ledger_server.keys import KEY_FILE, load_or_create_key
from ledger_server.store import open_store

FIRST_PORT: Final = 8900
_START_WITHIN_S: Final = 60.0
_EQUAL_WITHIN_S: Final = 30.0
_TRIES: Final = 3
_ASK_EVERY_S: Final = 0.05


class Servers:
    """The servers of one ledger on this machine.

    Args:
        folder: For their folders and logs.
        genesis: The rules.
        model: The first model, in its canonical bytes.
        count: How many, at least 1.
        port: Of the first; the others follow. 0: any free ones; None: ``FIRST_PORT`` and on if free, else any.
    """

    def __init__(self, folder: Path, genesis: Genesis, model: bytes, *, count: int, port: int | None) -> None:
        names = ["ledger"] if count == 1 else [f"server-{number}" for number in range(1, count + 1)]
        self._folders = [folder / name for name in names]
        self.keys: tuple[str, ...] = _found(self._folders, genesis, model)
        """Public key of each server, as transactions name their issuer."""
        self._port = port
        self.urls: tuple[str, ...] = _urls(free_ports(count, first=port))
        self._commands: list[Command] = []
        self.victim: int | None = None
        """The server that was killed, from 0."""
        self.is_down: bool = False
        """Whether it is not back yet."""
        self._forgotten_bytes = 0
        """Between the victim and its peers in its first life, which its own counters forget."""

    def __len__(self) -> int:
        return len(self._folders)

    def start(self) -> None:
        """Start all; returns once all answer.

        Raises:
            TrialError: One did not start. Ports that nobody asked for are chosen anew before that.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                self._start()
            except TrialError as error:
                self.close()
                if self._port or not tries_left or "already in use" not in str(error):
                    raise
                self.urls = _urls(free_ports(len(self), first=0))
            else:
                return

    def _start(self) -> None:
        self._commands = [self._command(place) for place in range(len(self))]
        until = time.monotonic() + _START_WITHIN_S
        for command, url in zip(self._commands, self.urls, strict=True):
            while not _is_listening(url):
                self.check()
                if time.monotonic() > until:
                    raise TrialError(f"{command.name} did not start; see {command.log}")
                time.sleep(_ASK_EVERY_S)

    def _command(self, place: int) -> Command:
        folder = self._folders[place]
        entries = [f"server-{n}={url}#{key}" for n, (url, key) in enumerate(zip(self.urls, self.keys, strict=True), 1)]
        peers = [word for entry in entries for word in ("--peer", entry)] if len(self) > 1 else []
        return Command(
            "the server" if len(self) == 1 else f"server {place + 1}",
            *("serve", "--data-dir", str(folder.resolve()), "--port", self.urls[place].rpartition(":")[2], *peers),
            log=folder.with_suffix(".log"),
            cwd=folder,  # not where the person's own dag-acfl.toml or .env may name a real database
        )

    def check(self) -> None:
        """Raises TrialError: A server has ended, and not by ``kill``."""
        for place, command in enumerate(self._commands):
            if self._is_up(place) and command.poll() is not None:
                raise command.failure()

    def _is_up(self, place: int) -> bool:
        return not (self.is_down and place == self.victim)

    def kill(self, place: int) -> None:
        """``kill -9`` a server: it has no time to say anything."""
        before = self.peer_bytes()
        self.victim, self.is_down = place, True
        self._commands[place].kill()
        self._commands[place].wait()
        self._forgotten_bytes = before - self.peer_bytes()

    def restart(self) -> None:
        """Start the killed server again, with what its disk holds, on its old address; does not wait for it."""
        assert self.victim is not None, "kill comes first"
        self._commands[self.victim] = self._command(self.victim)
        self.is_down = False

    def wait_until_equal(self, transactions: int, *, within_s: float = _EQUAL_WITHIN_S) -> tuple[str, float]:
        """Ask all servers for their tips until all say the same; gives the tips' digest, and how long that took."""
        started = time.monotonic()
        with ExitStack() as stack:
            clients = [stack.enter_context(LedgerClient(url, timeout=1.0)) for url in self.urls]
            while True:
                self.check()
                held: dict[int, tuple[int, str]] = {}
                for place, client in enumerate(clients):
                    with suppress(TransportError):
                        tips = client.tips()
                        held[place] = (tips.transactions, tips.digest)
                waited_s = time.monotonic() - started
                if len(held) == len(self) and len(set(held.values())) == 1 and held[0][0] == transactions:
                    return held[0][1], waited_s
                if waited_s > within_s:
                    said = [f"{held[n][0]} ({held[n][1][:8]}…)" if n in held else "no answer" for n in range(len(self))]
                    raise TrialError(
                        f"the servers do not hold all {transactions} transactions after {within_s:.0f} s, "
                        f"but {', '.join(said)}"
                    )
                time.sleep(_ASK_EVERY_S)

    def peer_bytes(self) -> int:
        """Bytes between servers since they were started, heads included: each counts the requests that it made."""
        total = self._forgotten_bytes
        for place, url in enumerate(self.urls):
            if self._is_up(place):
                with LedgerClient(url, timeout=10.0) as client:
                    total += sum(peer.received_bytes + peer.sent_bytes for peer in client.peers().items)
        return total

    def client_bytes(self) -> float:
        """Bytes of one client's round as the servers count them, joining and everything else included."""
        nbytes, publications = 0.0, 0
        for url in self.urls:
            with LedgerClient(url, timeout=60.0) as client:
                costs = client.costs()
            nbytes += (costs.bytes_per_client_round or 0.0) * costs.publications
            publications += costs.publications
        return nbytes / max(1, publications)

    def close(self) -> None:
        """Drain and end all."""
        stop(self._commands)


def _found(folders: Sequence[Path], genesis: Genesis, model: bytes) -> tuple[str, ...]:
    """Make the ledger of these members in the first folder, and let the others begin with it; gives their keys."""
    now_ms = time.time_ns() // 1_000_000
    keys = [load_or_create_key(folder / KEY_FILE) for folder in folders]
    members = [Member(public_key_of(key), folder.name) for key, folder in zip(keys, folders, strict=True)]
    rules = replace(genesis, members=tuple(sorted(members, key=lambda member: member.key)))
    with ExitStack() as stack:
        stores = [
            stack.enter_context(open_store(f"sqlite:///{folder / 'ledger.sqlite3'}", data_dir=folder))
            for folder in folders
        ]
        create_ledger(stores[0], rules, model, key=keys[0], now_ms=now_ms)
        source = StoreSource(stores[0])
        for store in stores[1:]:
            take_genesis(source, store, expected=source.ledger, now_ms=now_ms)
    return tuple(member.key for member in members)


def _urls(ports: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"http://127.0.0.1:{port}" for port in ports)


def free_ports(count: int, *, first: int | None) -> list[int]:
    """Ports for ``count`` servers; between now and their start somebody may take one, but hardly.

    Args:
        count: How many.
        first: As for ``Servers``; ports that a person names are not tried here, the servers say it better.
    """
    if first:
        return list(range(first, first + count))
    if first is None:
        with suppress(OSError):
            return _held_once(range(FIRST_PORT, FIRST_PORT + count))
    return _held_once([0] * count)


def _held_once(ports: Iterable[int]) -> list[int]:
    """Listen on these ports, 0 for any, and let them go; gives their numbers. Raises OSError: One is taken."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", port))) for port in ports]
        return [int(each.getsockname()[1]) for each in held]


def _is_listening(url: str) -> bool:
    try:
        with LedgerClient(url, timeout=1.0) as client:
            client.tips()
    except TransportError:
        return False
    return True
