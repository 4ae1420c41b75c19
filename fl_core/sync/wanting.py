"""Which transactions are wanted, which peers say that they have them, and which peer has been asked.

An id is asked of one peer at a time. It stays in the queues of the others that advertised it, so that the
next one is asked when the first does not serve it. Parents found by walking back have a queue of their own.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Final

from fl_core.sync.messages import Peer
from fl_core.types import TxId

MAX_SCANNED: Final = 2000
"""How far a queue is looked through for something to ask; what is asked of others is at its front."""


class Wants:
    """Ids to be asked for, in the order in which each peer advertised them.

    Args:
        peers: Everyone who may advertise.
        max_per_peer: Ids in one peer's queue.
        tries: How often one peer is asked for one id.
    """

    def __init__(self, peers: Iterable[Peer], *, max_per_peer: int, tries: int) -> None:
        self._listed: dict[Peer, dict[TxId, int]] = {peer: {} for peer in peers}
        self._parents: dict[Peer, dict[TxId, int]] = {peer: {} for peer in self._listed}
        self._asked: dict[TxId, Peer] = {}
        self._max_per_peer, self._tries = max_per_peer, tries

    def advertised(self, transaction: TxId, peer: Peer, *, tries: int = 0) -> bool:
        """A peer says that it has a transaction.

        Args:
            transaction: The id.
            peer: Who has it.
            tries: How often it has been asked for it before.

        Returns:
            False when the id is not noted: its queue is full, or it has been tried too often.
        """
        queue = self._listed[peer]
        if transaction not in queue and (len(queue) >= self._max_per_peer or tries >= self._tries):
            return False
        queue.setdefault(transaction, tries)
        return True

    def tries(self, transaction: TxId, peer: Peer) -> int:
        """How often a peer has been asked for an id before."""
        return max(self._listed[peer].get(transaction, 0), self._parents[peer].get(transaction, 0))

    def walk_to(self, parent: TxId, peer: Peer) -> bool:
        """A peer's transaction names this parent, so it must have it. False when it is in its queue already."""
        queue = self._parents[peer]
        if parent in queue or parent in self._listed[peer] or len(queue) >= self._max_per_peer:
            return False
        queue[parent] = 0
        return True

    def is_walked_to(self, transaction: TxId, peer: Peer) -> bool:
        """Whether an id is wanted of a peer because a child of it came from there."""
        return transaction in self._parents[peer]

    def take(self, peer: Peer, limit: int, *, better: Collection[Peer] = ()) -> tuple[TxId, ...]:
        """Ids to ask of a peer; they count as asked from now.

        Args:
            peer: Who is asked.
            limit: How many at most.
            better: Peers that are asked rather than this one for what they list too.
        """
        return self._take(self._listed[peer], peer, limit, better)

    def take_parents(self, peer: Peer, limit: int) -> tuple[TxId, ...]:
        """The same for parents of what it sent."""
        return self._take(self._parents[peer], peer, limit, ())

    def _take(self, queue: dict[TxId, int], peer: Peer, limit: int, better: Collection[Peer]) -> tuple[TxId, ...]:
        chosen: list[TxId] = []
        for transaction in islice(queue, MAX_SCANNED):
            if len(chosen) >= limit:
                break
            is_better_elsewhere = any(transaction in self._listed[other] for other in better)
            if transaction not in self._asked and not is_better_elsewhere:
                chosen.append(transaction)
        self._asked.update((transaction, peer) for transaction in chosen)
        return tuple(chosen)

    def sources(self, transaction: TxId) -> tuple[Peer, ...]:
        """Who says that it has this one."""
        return tuple(peer for peer in self._listed if self.is_source(transaction, peer))

    def is_source(self, transaction: TxId, peer: Peer) -> bool:
        """Whether a peer may still be asked for an id."""
        return transaction in self._listed[peer] or transaction in self._parents[peer]

    def not_served(self, transaction: TxId, peer: Peer, *, for_good: bool) -> bool:
        """An asked id did not come. True when nobody is left to ask.

        Args:
            transaction: The id.
            peer: Who was asked.
            for_good: Never ask this peer again; otherwise it may try a few times.
        """
        self._put_back(transaction, peer)
        for queue in (self._listed[peer], self._parents[peer]):
            if transaction in queue:
                tries = queue.pop(transaction) + 1
                if not for_good and tries < self._tries:
                    queue[transaction] = tries  # at the end: others come first
        return not self.sources(transaction)

    def put_back(self, transactions: Iterable[TxId], peer: Peer) -> None:
        """They were asked for and did not fit into the answer: nobody's fault."""
        for transaction in transactions:
            self._put_back(transaction, peer)

    def _put_back(self, transaction: TxId, peer: Peer) -> None:
        if self._asked.get(transaction) == peer:
            del self._asked[transaction]

    def settled(self, transaction: TxId) -> None:
        """It is here, or never will be: forget it."""
        self._asked.pop(transaction, None)
        for queue in self._queues():
            queue.pop(transaction, None)

    def end_walk(self, peer: Peer) -> tuple[TxId, ...]:
        """Give up a peer's parents; returns those that nobody is asked for."""
        given_up = tuple(parent for parent in self._parents[peer] if parent not in self._asked)
        for parent in given_up:
            del self._parents[peer][parent]
        return given_up

    def forget_peer(self, peer: Peer) -> tuple[TxId, ...]:
        """Drop all that a peer advertised; returns the ids that nobody else has."""
        ids = [*self._listed[peer], *self._parents[peer]]
        self._listed[peer].clear()
        self._parents[peer].clear()
        self.put_back(ids, peer)
        return tuple(transaction for transaction in ids if not self.sources(transaction))

    def is_drained(self, peer: Peer) -> bool:
        """Whether nothing that a peer has advertised is wanted any more."""
        return not self._listed[peer]

    def has_parents(self, peer: Peer) -> bool:
        """Whether a walk back from this peer's transactions has somewhere to go."""
        return any(parent not in self._asked for parent in self._parents[peer])

    def __len__(self) -> int:
        """Entries in all queues."""
        return sum(map(len, self._queues()))

    def _queues(self) -> Iterator[dict[TxId, int]]:
        return chain(self._listed.values(), self._parents.values())
