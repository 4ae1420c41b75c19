"""Transactions that have come and cannot be admitted yet: what they wait for, and for how long.

A transaction is *connected* when each parent is in the ledger or connected here: it lacks nothing but models, and its
own is fetched. One that is not is an *orphan*: nothing is fetched for it but its parents, so that a chain of ancestors
without end costs headers only, and few of them. It is *ready* when all parents are in the ledger and its model is here.

Each peer has so much room, so that it cannot take the place of another's transactions. What is dropped takes its
descendants along: they cannot come in without it.
"""

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

from fl_core.sync.messages import Peer, TransactionBundle
from fl_core.types import TxId


class HoldsIds(Protocol):
    """A ledger, as far as waiting goes."""

    def __contains__(self, transaction: TxId, /) -> bool: ...


@dataclass(slots=True, eq=False)
class PendingTransaction:
    """A transaction that waits.

    Attributes:
        bundle: The transaction.
        from_peer: Who sent it: it takes up this peer's room.
        sources: Who holds it, so who can serve its model; the sender first.
        since_s: When it came.
        absent: Parents that are not in the ledger.
        unconnected: Parents that are neither in the ledger nor connected here.
        model_is_here: Whether its model is complete, or is not needed.
        norm: A bound of the norm of a model that is not needed, as a checkpoint stands for it.
    """

    bundle: TransactionBundle
    from_peer: Peer
    sources: list[Peer]
    since_s: float
    absent: set[TxId]
    unconnected: set[TxId]
    model_is_here: bool = False
    norm: float | None = None

    @property
    def id(self) -> TxId:
        """The transaction's id."""
        return self.bundle.id

    @property
    def is_connected(self) -> bool:
        """Whether a path of transactions leads to the ledger from each parent."""
        return not self.unconnected

    @property
    def is_ready(self) -> bool:
        """Whether it can be admitted."""
        return self.model_is_here and not self.absent


@dataclass(slots=True)
class _Room:
    """What one peer takes up: of orphans (0) and of connected ones (1)."""

    count: list[int] = field(default_factory=lambda: [0, 0])
    nbytes: list[int] = field(default_factory=lambda: [0, 0])


class PendingPool:
    """All that wait, bounded per peer.

    Args:
        ledger: What has been admitted.
        max_count: Connected transactions of one peer; as many orphans may be here at the same time.
        max_bytes: Header and attachment bytes of either.
        lifetime_s: How long an orphan may wait.
    """

    def __init__(self, ledger: HoldsIds, *, max_count: int, max_bytes: int, lifetime_s: float) -> None:
        self._ledger, self._max_count, self._max_bytes, self._lifetime_s = ledger, max_count, max_bytes, lifetime_s
        self._rooms = defaultdict[Peer, _Room](_Room)
        self._pending: dict[TxId, PendingTransaction] = {}
        self._children: dict[TxId, set[TxId]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, transaction: TxId) -> bool:
        return transaction in self._pending

    def get(self, transaction: TxId) -> PendingTransaction | None:
        """A transaction that waits here."""
        return self._pending.get(transaction)

    def space(self, peer: Peer) -> int:
        """How many more transactions of this peer find room, if they are connected; at least 0."""
        room = self._rooms[peer]
        return 0 if room.nbytes[True] >= self._max_bytes else max(self._max_count - room.count[True], 0)

    def add(
        self, bundle: TransactionBundle, *, from_peer: Peer, sources: Iterable[Peer], now_s: float
    ) -> list[PendingTransaction] | None:
        """Take in a transaction that is neither here nor in the ledger.

        Returns:
            Those that this connected, parents before children: itself, and what waited for it. None when the peer's
            room is full.
        """
        absent = {parent for parent in bundle.transaction.header.parents if parent not in self._ledger}
        unconnected = {
            parent for parent in absent if (held := self._pending.get(parent)) is None or not held.is_connected
        }
        others = [peer for peer in sources if peer != from_peer]
        new = PendingTransaction(bundle, from_peer, [from_peer, *others], now_s, absent, unconnected)
        room, kind, size = self._rooms[from_peer], new.is_connected, bundle.nbytes
        # An orphan that becomes connected needs no new room, so the sum of both kinds is bounded too.
        if (
            room.count[kind] >= self._max_count
            or room.nbytes[kind] + size > self._max_bytes
            or sum(room.count) >= 2 * self._max_count
            or sum(room.nbytes) + size > 2 * self._max_bytes
        ):
            return None
        self._pending[new.id] = new
        for parent in absent:
            self._children.setdefault(parent, set()).add(new.id)
        self._charge(new, 1)
        return [new, *self._connect_children(new.id)] if new.is_connected else []

    def _charge(self, pending: PendingTransaction, sign: int) -> None:
        room, kind = self._rooms[pending.from_peer], pending.is_connected
        room.count[kind] += sign
        room.nbytes[kind] += sign * pending.bundle.nbytes

    def _connect_children(self, transaction: TxId) -> list[PendingTransaction]:
        """What becomes connected because this one is, breadth first."""
        connected: list[PendingTransaction] = []
        reached = [transaction]
        for parent in reached:
            for child_id in sorted(self._children.get(parent, ())):
                child = self._pending[child_id]
                if parent in child.unconnected:
                    self._charge(child, -1)
                    child.unconnected.discard(parent)
                    self._charge(child, 1)
                    if child.is_connected:
                        connected.append(child)
                        reached.append(child_id)
        return connected

    def complete_with(self, transaction: TxId, others: AbstractSet[TxId]) -> list[PendingTransaction]:
        """The children of one of ``others`` that lack nothing but those, ascending."""
        children = (self._pending[child] for child in sorted(self._children.get(transaction, ())))
        return [child for child in children if child.model_is_here and child.absent <= others]

    def missing_parents(self, transaction: TxId) -> tuple[TxId, ...]:
        """Parents of one that waits here that are neither in the ledger nor here, ascending."""
        return tuple(sorted(parent for parent in self._pending[transaction].absent if parent not in self._pending))

    def entered_ledger(self, transaction: TxId) -> tuple[list[PendingTransaction], list[PendingTransaction]]:
        """A transaction is in the ledger now, from wherever it came.

        Returns:
            Those that became connected, and its children that lack no parent any more; both in ascending order.
        """
        self._remove(transaction)
        connected = self._connect_children(transaction)
        freed: list[PendingTransaction] = []
        for child_id in sorted(self._children.pop(transaction, ())):
            child = self._pending[child_id]
            child.absent.discard(transaction)
            if not child.absent:
                freed.append(child)
        return connected, freed

    def _remove(self, transaction: TxId) -> PendingTransaction | None:
        held = self._pending.pop(transaction, None)
        if held is None:
            return None
        self._charge(held, -1)
        for parent in held.absent:
            children = self._children.get(parent, set())
            children.discard(held.id)
            if not children:
                self._children.pop(parent, None)
        return held

    def drop(self, transaction: TxId) -> list[PendingTransaction]:
        """Take out a transaction and all that descends from it; returns what was here of them."""
        dropped: list[PendingTransaction] = []
        going = [transaction]
        for identity in going:
            going += sorted(self._children.get(identity, ()))
            if (held := self._remove(identity)) is not None:
                dropped.append(held)
        return dropped

    def overdue(self, now_s: float) -> tuple[TxId, ...]:
        """Orphans that have waited for longer than their lifetime."""
        return tuple(
            held.id
            for held in self._pending.values()
            if not held.is_connected and now_s - held.since_s > self._lifetime_s
        )
