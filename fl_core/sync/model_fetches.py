"""Which model is fetched from whom, from which byte on, and who is next when that one does not deliver.

One fetch in flight per model. What came stays in the caller's store, so the next peer goes on from there.
A model that was put together from several peers' bytes and does not hash to its digest proves nothing
against any of them; it is then fetched again in one piece, and that one's sender is to blame.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import Peer
from fl_core.sync.request_queue import MAX_TRIES
from fl_core.types import Digest

MIN_BYTES_PER_S: Final = 64 * 1024
"""A peer that drips more slowly than this is passed over."""


@dataclass(slots=True, eq=False)
class Fetch:
    """One model on its way."""

    digest: Digest
    size: int
    sources: dict[Peer, int] = field(default_factory=dict)
    """Who may have it, and how often it did not deliver."""
    asked_of: Peer | None = None
    suppliers: set[Peer] = field(default_factory=set)
    """Whose bytes are in the store, as far as is known."""
    has_older_bytes: bool = False
    """Whether the store held bytes of unknown origin, from before a restart."""
    asked: set[Peer] = field(default_factory=set)
    """Who has been a source at all."""
    spent: set[Peer] = field(default_factory=set)
    """Who was a source and did not deliver."""
    pruned_by: set[Peer] = field(default_factory=set)
    """Who says that it dropped the model by policy."""
    give_up_s: float = 0.0
    """When a fetch that is too slow on the whole ends, stalled or not."""


class ModelFetches:
    """The models that are wanted.

    Args:
        limits: Deadlines and parallelism.
    """

    def __init__(self, limits: GossipLimits) -> None:
        self._limits = limits
        self._fetches: dict[Digest, Fetch] = {}
        self._in_flight: Counter[Peer] = Counter()

    def __len__(self) -> int:
        return len(self._fetches)

    def __contains__(self, digest: Digest) -> bool:
        return digest in self._fetches

    def want(self, digest: Digest, size: int, *, sources: Iterable[Peer]) -> None:
        """A model is needed, and these peers may have it."""
        fetch = self._fetches.setdefault(digest, Fetch(digest, size))
        for peer in sources:
            # Where one has pruned it, others may not promise it for ever.
            if not (fetch.pruned_by and peer in fetch.spent):
                fetch.sources.setdefault(peer, 0)
                fetch.asked.add(peer)

    def get(self, digest: Digest) -> Fetch | None:
        """The fetch of a model that is wanted."""
        return self._fetches.get(digest)

    def take(self, peer: Peer, *, rather: Collection[Peer] = ()) -> list[Fetch]:
        """What this peer is asked for now, but for what ``rather`` may have; in flight until a method below ends it."""
        free = self._limits.models_per_peer - self._in_flight[peer]
        chosen: list[Fetch] = []
        for fetch in self._fetches.values():
            if len(chosen) >= free:
                break
            if fetch.asked_of is None and peer in fetch.sources and fetch.sources.keys().isdisjoint(rather):
                chosen.append(fetch)
        for fetch in chosen:
            fetch.asked_of = peer
            self._in_flight[peer] += 1
        return chosen

    def began(self, fetch: Fetch, start: int, now_s: float) -> float:
        """A fetch starts at a byte. Returns its first deadline."""
        remaining_s = (fetch.size - start) / MIN_BYTES_PER_S
        fetch.give_up_s = now_s + self._limits.model_stall_s + remaining_s
        if start == 0:
            fetch.suppliers.clear()
        fetch.has_older_bytes = start > 0 and (fetch.has_older_bytes or not fetch.suppliers)
        return self.deadline(fetch, now_s)

    def progressed(self, digest: Digest, peer: Peer, now_s: float) -> float | None:
        """Bytes came from a peer. Returns the new deadline; None when nothing more is wanted from it."""
        fetch = self._fetches.get(digest)
        if fetch is None or fetch.asked_of != peer:
            return None
        fetch.suppliers.add(peer)
        return self.deadline(fetch, now_s)

    def deadline(self, fetch: Fetch, now_s: float) -> float:
        """When the next byte must have come."""
        return min(now_s + self._limits.model_stall_s, fetch.give_up_s)

    def end(self, digest: Digest) -> None:
        """The model is here, or nobody needs it any more."""
        if (fetch := self._fetches.pop(digest, None)) is not None:
            self._release(fetch)

    def not_delivered(self, digest: Digest, peer: Peer, *, for_good: bool = False) -> Fetch | None:
        """A peer did not deliver.

        Args:
            digest: Which model.
            peer: Who was asked.
            for_good: Never ask this peer for it again; otherwise it may try a few times.

        Returns:
            The fetch with the sources that are left; None when nobody needs the model.
        """
        fetch = self._fetches.get(digest)
        if fetch is None:
            return None
        if fetch.asked_of == peer:
            self._release(fetch)
        if peer in fetch.sources:
            tries = fetch.sources.pop(peer) + 1
            if not for_good and tries < MAX_TRIES:
                fetch.sources[peer] = tries
            else:
                fetch.spent.add(peer)
        return fetch

    def expected_from(self, peer: Peer) -> tuple[Digest, ...]:
        """The models that a peer may have."""
        return tuple(digest for digest, fetch in self._fetches.items() if peer in fetch.sources)

    def corrupt(self, digest: Digest, peer: Peer) -> bool:
        """What came in full does not hash to the digest. Whether it all came from this peer, who is then to blame."""
        fetch = self._fetches.get(digest)
        if fetch is None:
            return False
        is_to_blame = fetch.suppliers <= {peer} and not fetch.has_older_bytes
        fetch.suppliers.clear()
        return is_to_blame

    def interrupted(self, digest: Digest, peer: Peer) -> None:
        """The link failed: not the peer's fault, so that the same peer may be asked as often as it takes."""
        fetch = self._fetches.get(digest)
        if fetch is not None and fetch.asked_of == peer:
            self._release(fetch)

    def _release(self, fetch: Fetch) -> None:
        if fetch.asked_of is not None:
            self._in_flight[fetch.asked_of] -= 1
            fetch.asked_of = None
