"""What a running demo has shown so far, heard from the servers' event streams as any listener would."""

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fl_client.client import LedgerClient
from fl_client.errors import TransportError


@dataclass(frozen=True, slots=True)
class Update:
    """A client's published model.

    Attributes:
        id: The transaction.
        client: From 0.
        number: The client's own count, from 1.
        parents: What it was averaged from, genesis and its own among them.
        server: The server that took it, from 0.
        accuracy: Of the average that the client was given, on its own test data.
        at_s: When it was first shown, on this machine's monotonic clock.
    """

    id: str
    client: int
    number: int
    parents: tuple[str, ...]
    server: int
    accuracy: float
    at_s: float


@dataclass(slots=True)
class Progress:
    """All updates that have been heard of.

    Args:
        clusters: Each client's true cluster.
        target: How many updates each client is to publish.
    """

    clusters: Sequence[int]
    target: int
    of_client: list[list[Update]] = field(init=False)
    """Each client's updates, in its order."""
    client_of: dict[str, int] = field(default_factory=dict)
    """Client of each update."""
    shown: dict[str, dict[int, float]] = field(default_factory=dict)
    """When each server showed each update, on this machine's monotonic clock."""

    def __post_init__(self) -> None:
        self.of_client = [[] for _ in self.clusters]

    @property
    def count(self) -> int:
        """Updates of all clients together."""
        return len(self.client_of)

    @property
    def total(self) -> int:
        """Updates that all clients are to publish together."""
        return self.target * len(self.clusters)

    @property
    def updates(self) -> list[Update]:
        """All, by client."""
        return [update for updates in self.of_client for update in updates]

    @property
    def switches(self) -> int:
        """How often a client has published on another server than the time before."""
        return sum(before.server != after.server for updates in self.of_client for before, after in pairwise(updates))

    def hear(self, update: Update, server: int) -> bool:
        """Take in that ``server`` shows an update; whether it is the first to do so."""
        self.shown.setdefault(update.id, {})[server] = update.at_s
        if update.id in self.client_of:
            return False
        self.client_of[update.id] = update.client
        # Events of two servers may cross, and a client may have moved from one to the other.
        mine = self.of_client[update.client]
        mine.append(update)
        mine.sort(key=lambda each: each.number)
        return True

    def approvals(self, client: int) -> tuple[int, int]:
        """How many approvals of others' updates went to the client's own cluster, and to foreign ones."""
        same = foreign = 0
        for update in self.of_client[client]:
            for parent in update.parents:
                other = self.client_of.get(parent)
                if other is None or other == client:
                    continue
                if self.clusters[other] == self.clusters[client]:
                    same += 1
                else:
                    foreign += 1
        return same, foreign


class Listener:
    """Listens to every server's events in threads of this process; ``next`` gives what comes.

    Args:
        urls: The servers.
        keys: Their public keys, by which a transaction names the server that took it.
        clients: Each author's client.
    """

    def __init__(self, urls: Sequence[str], keys: Sequence[str], clients: Mapping[str, int]) -> None:
        self._keys, self._clients = {key: place for place, key in enumerate(keys)}, clients
        self._heard: queue.SimpleQueue[tuple[Update, int]] = queue.SimpleQueue()
        for server, url in enumerate(urls):
            threading.Thread(target=self._listen, args=(server, url), daemon=True, name=f"events {server}").start()

    def next(self, timeout_s: float) -> tuple[Update, int] | None:
        """An update and the server that showed it; None when nothing came in time."""
        try:
            return self._heard.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _listen(self, server: int, url: str) -> None:
        cursor: str | None = None
        while True:
            try:
                with LedgerClient(url) as client:
                    for event in client.events(after=cursor):
                        cursor, shown = event.cursor, event.transaction
                        if shown.author in self._clients:
                            update = Update(
                                id=shown.id,
                                client=self._clients[shown.author],
                                number=shown.sequence + 1,
                                parents=tuple(shown.parents),
                                server=self._keys[shown.receipt.issuer],
                                accuracy=round(shown.metrics["accuracy"], 6),
                                at_s=time.monotonic(),
                            )
                            self._heard.put((update, server))
            except TransportError:
                time.sleep(0.2)  # a killed server comes back
