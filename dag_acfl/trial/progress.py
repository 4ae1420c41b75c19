"""What a running trial has shown so far, heard from the servers' event streams as any listener would."""

import math
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from fl_client.client import LedgerClient
from fl_client.errors import TransportError


@dataclass(frozen=True, slots=True)
class Update:
    """A client's published model.

    Attributes:
        id: The transaction.
        client: Its site, from 0.
        number: The client's own count, from 1.
        parents: What it was averaged from, genesis and its own among them.
        server: The server that took it, from 0.
        figure: Accuracy or loss of the average that the client was given, on its own test data.
    """

    id: str
    client: int
    number: int
    parents: tuple[str, ...]
    server: int
    figure: float


Shown: TypeAlias = tuple[Update, int, float]
"""An update, the server that showed it, and when, on this machine's monotonic clock."""


class Progress:
    """All updates that have been heard of.

    Args:
        clusters: Each client's cluster; one for all as long as nobody knows.
        target: How many updates each client is to publish.
    """

    def __init__(self, clusters: Sequence[int], target: int) -> None:
        self.clusters: Sequence[int] = clusters
        self.target: int = target
        self.figure = "accuracy"
        """The metric that is followed, ``accuracy`` or ``loss``."""
        self.of_client: list[list[Update]] = [[] for _ in clusters]
        """Each client's updates, in its order."""
        self.client_of: dict[str, int] = {}
        """Client of each update."""
        self.shown: dict[str, dict[int, float]] = {}
        """When each server showed each update."""

    @property
    def count(self) -> int:
        """Updates of all clients together."""
        return len(self.client_of)

    @property
    def total(self) -> int:
        """Updates that all clients are to publish together."""
        return self.target * len(self.clusters)

    @property
    def switches(self) -> int:
        """How often a client has published on another server than the time before."""
        return sum(before.server != after.server for updates in self.of_client for before, after in pairwise(updates))

    def hear(self, update: Update, server: int, at_s: float) -> bool:
        """Take in that ``server`` shows an update; whether it is the first to do so."""
        self.shown.setdefault(update.id, {})[server] = at_s
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
        parents = [self.client_of.get(parent) for update in self.of_client[client] for parent in update.parents]
        others = [self.clusters[each] for each in parents if each is not None and each != client]
        same = others.count(self.clusters[client])
        return same, len(others) - same


def listen(
    urls: Sequence[str], keys: Sequence[str], clients: Mapping[str, int], *, figure: str, ended: threading.Event
) -> "queue.SimpleQueue[Shown]":
    """Listen to every server's events, each in a thread of this process, until ``ended``; gives where they arrive."""
    heard: queue.SimpleQueue[Shown] = queue.SimpleQueue()

    def follow(server: int) -> None:
        cursor: str | None = None
        with LedgerClient(urls[server]) as ledger:
            ledger.be_patient(0)  # asked again below, which ends with the trial
            while not ended.is_set():
                try:
                    for event in ledger.events(after=cursor):
                        cursor, shown = event.cursor, event.transaction
                        if shown.author in clients:
                            update = Update(
                                id=shown.id,
                                client=clients[shown.author],
                                number=shown.sequence + 1,
                                parents=tuple(shown.parents),
                                server=keys.index(shown.receipt.issuer),
                                figure=round(shown.metrics.get(figure, math.nan), 6),  # only finite ones are
                            )
                            heard.put((update, server, time.monotonic()))
                except TransportError:
                    ended.wait(0.2)  # a killed server comes back

    for server in range(len(urls)):
        threading.Thread(target=follow, args=(server,), daemon=True).start()
    return heard
