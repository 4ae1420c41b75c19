"""Which transactions to ask for, and of whom.

Each peer has a queue of the ids that it lists, in its order. An id is asked of one peer at a time and stays in the
queues of the others, so that the next one is asked when the first does not serve it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from fl_core.sync.messages import Peer
from fl_core.types import TxId

MAX_TRIES: Final = 3
"""How often one peer is asked for one thing before it counts as not serving it."""

MAX_LISTED: Final = 100_000
"""Ids in one peer's queue."""

MAX_SCANNED: Final = 2000
"""How far a queue is looked through for something to ask; what is asked of others is at its front."""


class RequestQueue:
    """The queues of all peers."""

    def __init__(self) -> None:
        self._listed = defaultdict[Peer, dict[TxId, int]](dict)
        """By peer: its ids, and how often it was asked for each."""
        self._asked: dict[TxId, Peer] = {}

    def __len__(self) -> int:
        """Entries in all queues."""
        return sum(map(len, self._listed.values()))

    def add(self, transaction: TxId, peer: Peer) -> bool:
        """A peer holds this transaction. False when its queue is full."""
        queue = self._listed[peer]
        if transaction not in queue and len(queue) >= MAX_LISTED:
            return False
        queue.setdefault(transaction, 0)
        return True

    def take(self, peer: Peer, limit: int, *, rather: Collection[Peer] = ()) -> tuple[TxId, ...]:
        """At most ``limit`` ids to ask of a peer, and none that ``rather`` list; they count as asked from now."""
        chosen: list[TxId] = []
        for transaction in islice(self._listed[peer], MAX_SCANNED):
            if len(chosen) >= limit:
                break
            if transaction not in self._asked and not any(transaction in self._listed[each] for each in rather):
                chosen.append(transaction)
        self._asked.update((transaction, peer) for transaction in chosen)
        return tuple(chosen)

    def sources(self, transaction: TxId) -> tuple[Peer, ...]:
        """Who may still be asked for it."""
        return tuple(peer for peer, queue in self._listed.items() if transaction in queue)

    def not_served(self, transaction: TxId, peer: Peer, *, for_good: bool) -> tuple[Peer, ...]:
        """An asked id did not come.

        Args:
            transaction: The id.
            peer: Who was asked.
            for_good: Never ask this peer for it again; otherwise ``MAX_TRIES`` times.

        Returns:
            Who may still be asked.
        """
        self.put_back([transaction], peer)
        queue = self._listed[peer]
        if transaction in queue:
            tries = queue.pop(transaction) + 1
            if not for_good and tries < MAX_TRIES:
                queue[transaction] = tries  # at the end: others come first
        return self.sources(transaction)

    def put_back(self, transactions: Iterable[TxId], peer: Peer) -> None:
        """They were asked for and did not fit into the answer, or the link broke: nobody's fault."""
        for transaction in transactions:
            if self._asked.get(transaction) == peer:
                del self._asked[transaction]

    def settled(self, transaction: TxId) -> None:
        """It is here, or never will be: forget it."""
        self._asked.pop(transaction, None)
        for queue in self._listed.values():
            queue.pop(transaction, None)

    def forget(self, peer: Peer) -> tuple[TxId, ...]:
        """Ask a peer for nothing more. Returns the ids that nobody else lists."""
        listed, self._listed[peer] = tuple(self._listed[peer]), {}
        self.put_back(listed, peer)
        return tuple(transaction for transaction in listed if not self.sources(transaction))
