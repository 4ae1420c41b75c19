"""Transactions that have come and cannot be admitted yet: what they wait for, and for how long.

A transaction is *grounded* when each parent is in the ledger or is grounded here: then it lacks nothing but
models, and they are fetched. One that is not grounded is an *orphan*; nothing is fetched for it but its
parents, so that a chain of ancestors without end costs headers only, and few of them. A transaction is
*free* when all parents are in the ledger.

Each peer has an equal share of the room, so that one peer cannot take the place of another's transactions.

A peer's orphans make room for its newer ones, the oldest first: a queue that came in the wrong order must
not stand still. What is dropped for good takes its descendants along: they cannot come in without it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from fl_core.sync.messages import CarriedTransaction, Peer
from fl_core.types import TxId


class HoldsIds(Protocol):
    """A ledger, as far as waiting goes."""

    def __contains__(self, transaction: TxId, /) -> bool: ...


_ORPHAN, _GROUNDED = range(2)


@dataclass(slots=True, eq=False)
class Held:
    """A transaction in the waiting room."""

    carried: CarriedTransaction
    from_peer: Peer
    sources: list[Peer]
    """Who has it, so who can serve its model; the sender first."""
    since_s: float
    absent: set[TxId]
    """Parents that are not in the ledger."""
    groundless: set[TxId]
    """Parents that are neither in the ledger nor grounded here."""
    tries: int = 0
    """How often it has come and gone before."""
    model_is_here: bool = False

    @property
    def kind(self) -> int:
        """Which part of its peer's share it takes up."""
        return _GROUNDED if self.is_grounded else _ORPHAN

    @property
    def id(self) -> TxId:
        """The transaction's id."""
        return self.carried.transaction.id

    @property
    def is_grounded(self) -> bool:
        """Whether a path of transactions leads to the ledger from each parent."""
        return not self.groundless

    @property
    def is_free(self) -> bool:
        """Whether all parents are in the ledger."""
        return not self.absent


@dataclass(slots=True)
class _Share:
    """What one peer takes up: of orphans, of grounded ones."""

    count: list[int] = field(default_factory=lambda: [0, 0])
    nbytes: list[int] = field(default_factory=lambda: [0, 0])


class WaitingRoom:
    """Bounded, per peer and in all.

    Args:
        ledger: What has been admitted.
        peers: Between whom the room is divided.
        max_orphans: Orphans in all; as many grounded ones may be here at the same time.
        max_bytes: Header and attachment bytes in all, half of them for orphans.
        lifetime_s: How long an orphan may wait.
    """

    def __init__(
        self,
        ledger: HoldsIds,
        peers: Iterable[Peer],
        *,
        max_orphans: int,
        max_bytes: int,
        lifetime_s: float,
    ) -> None:
        self._ledger = ledger
        self._shares = {peer: _Share() for peer in peers}
        n_peers = max(len(self._shares), 1)
        self._max_count, self._max_bytes = max_orphans // n_peers, max_bytes // (2 * n_peers)
        self._lifetime_s = lifetime_s
        self._held: dict[TxId, Held] = {}
        self._children: dict[TxId, set[TxId]] = {}
        self.dropped: Counter[Peer] = Counter()
        """How many transactions of each peer found no room or waited too long."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, transaction: TxId) -> bool:
        return transaction in self._held

    def get(self, transaction: TxId) -> Held | None:
        """A transaction that waits here."""
        return self._held.get(transaction)

    @property
    def nbytes(self) -> int:
        """Header and attachment bytes held."""
        return sum(sum(share.nbytes) for share in self._shares.values())

    def space(self, peer: Peer) -> int:
        """How many more transactions of this peer find room, if they are grounded; at least 0."""
        share = self._shares[peer]
        return 0 if share.nbytes[_GROUNDED] >= self._max_bytes else max(self._max_count - share.count[_GROUNDED], 0)

    def add(
        self, carried: CarriedTransaction, *, from_peer: Peer, sources: Iterable[Peer], now_s: float, tries: int = 0
    ) -> tuple[list[Held], list[Held]] | None:
        """Take in a transaction that is neither here nor in the ledger.

        Returns:
            Those that this made grounded, parents before children: itself and what waited for it; and orphans
            of the same peer that made room for it. None when the peer's share is full all the same.
        """
        header = carried.transaction.header
        absent = {parent for parent in header.parents if parent not in self._ledger}
        groundless = {parent for parent in absent if not self._is_grounded_here(parent)}
        others = [peer for peer in sources if peer != from_peer]
        held = Held(carried, from_peer, [from_peer, *others], now_s, absent, groundless, tries)
        evicted = [] if held.is_grounded else self._make_room(held)
        if not self._fits(held):
            self.dropped[from_peer] += 1
            return None
        self._held[held.id] = held
        for parent in absent:
            self._children.setdefault(parent, set()).add(held.id)
        self._charge(held, 1)
        return ([held, *self._ground_children(held.id)] if held.is_grounded else []), evicted

    def _make_room(self, orphan: Held) -> list[Held]:
        """Take out the peer's oldest orphans until this one fits, or none is left."""
        evicted: list[Held] = []
        if not self._fits(orphan):
            for held in [held for held in self._held.values() if held.from_peer == orphan.from_peer]:
                if not held.is_grounded:
                    self.remove(held.id)
                    evicted.append(held)
                    if self._fits(orphan):
                        break
        return evicted

    def _is_grounded_here(self, transaction: TxId) -> bool:
        held = self._held.get(transaction)
        return held is not None and held.is_grounded

    def _fits(self, held: Held) -> bool:
        share, kind, size = self._shares[held.from_peer], held.kind, held.carried.nbytes
        # Orphans become grounded without asking, so the sum is bounded too.
        return (
            share.count[kind] < self._max_count
            and sum(share.count) < 2 * self._max_count
            and share.nbytes[kind] + size <= self._max_bytes
            and sum(share.nbytes) + size <= 2 * self._max_bytes
        )

    def _charge(self, held: Held, sign: int) -> None:
        share, kind = self._shares[held.from_peer], held.kind
        share.count[kind] += sign
        share.nbytes[kind] += sign * held.carried.nbytes

    def _ground_children(self, transaction: TxId) -> list[Held]:
        """What becomes grounded because this one is, breadth first."""
        grounded: list[Held] = []
        reached = [transaction]
        for parent in reached:
            for child_id in sorted(self._children.get(parent, ())):
                child = self._held[child_id]
                if parent in child.groundless:
                    self._charge(child, -1)
                    child.groundless.discard(parent)
                    self._charge(child, 1)
                    if child.is_grounded:
                        grounded.append(child)
                        reached.append(child_id)
        return grounded

    def waits_for(self, transaction: TxId) -> tuple[Held, ...]:
        """Those here that name it as parent, ascending."""
        return tuple(self._held[child] for child in sorted(self._children.get(transaction, ())))

    def missing_parents(self, transaction: TxId) -> tuple[TxId, ...]:
        """Parents of one that waits here that are neither in the ledger nor here, ascending."""
        return tuple(sorted(parent for parent in self._held[transaction].absent if parent not in self._held))

    def entered_ledger(self, transaction: TxId) -> tuple[list[Held], list[Held]]:
        """A transaction is in the ledger now, from wherever it came.

        Returns:
            Those that became grounded, and those that became free; both in ascending order.
        """
        self.remove(transaction)
        grounded = self._ground_children(transaction)
        freed: list[Held] = []
        for child_id in sorted(self._children.pop(transaction, ())):
            child = self._held[child_id]
            child.absent.discard(transaction)
            if child.is_free:
                freed.append(child)
        return grounded, freed

    def remove(self, transaction: TxId) -> Held | None:
        """Take out one that was admitted; what waits for it stays."""
        held = self._held.pop(transaction, None)
        if held is not None:
            self._charge(held, -1)
            for parent in held.absent:
                self._forget_child(parent, held.id)
        return held

    def _forget_child(self, parent: TxId, child: TxId) -> None:
        children = self._children.get(parent)
        if children is not None:
            children.discard(child)
            if not children:
                del self._children[parent]

    def drop(self, transaction: TxId) -> list[Held]:
        """Take out a transaction and all that descends from it; returns what was here of them."""
        dropped: list[Held] = []
        going = [transaction]
        for identity in going:
            going += sorted(self._children.get(identity, ()))
            if (held := self.remove(identity)) is not None:
                dropped.append(held)
                self.dropped[held.from_peer] += 1
        return dropped

    def overdue(self, now_s: float) -> tuple[TxId, ...]:
        """Orphans that have waited for longer than their lifetime."""
        return tuple(
            held.id for held in self._held.values() if not held.is_grounded and now_s - held.since_s > self._lifetime_s
        )

    def from_peer(self, peer: Peer) -> tuple[TxId, ...]:
        """What a peer brought."""
        return tuple(held.id for held in self._held.values() if held.from_peer == peer)
