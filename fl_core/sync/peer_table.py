"""What is kept of each peer: whether it can be asked now, the page of its journal, the comparison with its ledger.

*Backoff* follows the link: it grows with failures in a row and ends with the first answer or call. *Invalid* counts
what no honest server sends; it never fades, and at ``BANNED_AFTER`` the peer is left alone until the next start. So is
one that has left, until it comes back: what is still under way with it ends as with a banned one.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

from fl_core.sync.comparison import LedgerComparison
from fl_core.sync.effects import Effect, Incident, LogIncident, SaveCursor
from fl_core.sync.items import ItemSet
from fl_core.sync.journal_pull import JournalPull
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import Peer
from fl_core.sync.summary import StateSummary, is_rollback
from fl_core.types import TxId

FIRST_BACKOFF_S: Final = 0.5
MAX_BACKOFF_S: Final = 5.0
"""One pull interval, so that a healed link has caught up within two."""

UNSERVING_S: Final = 30.0
"""How long a peer that did not serve what it had listed is asked only for what nobody else has."""

BANNED_AFTER: Final = 20
"""Invalid messages; each costs a check of signatures or of a model."""


class Rng(Protocol):
    """Where jitter comes from: ``random.Random`` and numpy's ``Generator`` both do."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class PeerEntry:
    """One peer.

    Attributes:
        pull: Where we are in its journal.
        comparison: Of its ledger with ours.
        is_asked_for_transactions: Whether a ``GetTransactions`` is in flight.
        unserving_until_s: See ``UNSERVING_S``.
    """

    def __init__(self, rng: Rng, pull: JournalPull, comparison: LedgerComparison) -> None:
        self._rng, self.pull, self.comparison = rng, pull, comparison
        self.is_asked_for_transactions = False
        self.unserving_until_s: float = -math.inf
        self._failures, self._retry_s = 0, -math.inf
        self._invalid, self._has_left = 0, False
        self._summary: StateSummary | None = None

    @property
    def is_banned(self) -> bool:
        """Whether it is left alone: it has sent too much that was invalid, or has left."""
        return self._has_left or self._invalid >= BANNED_AFTER

    @property
    def is_reachable(self) -> bool:
        """Whether it is not banned, and its last request had an answer."""
        return not self.is_banned and self._failures == 0

    def can_ask(self, now_s: float) -> bool:
        """Whether requests may go to it."""
        return not self.is_banned and now_s >= self._retry_s

    def failed(self, now_s: float) -> None:
        """No answer: wait twice as long as last time, give or take, so that peers do not come in step."""
        pause_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * math.exp2(min(self._failures, 16)))
        self._failures += 1
        self._retry_s = now_s + pause_s * (0.5 + 0.5 * self._rng.random())

    def heard(self) -> None:
        """It answered or called: it is reachable, and after a silence it may have much that is new."""
        if self._failures:
            self.pull.hurry()
        self._failures, self._retry_s = 0, -math.inf

    def leave(self) -> None:
        """It is no peer any more."""
        self._has_left = True

    def count_invalid(self) -> bool:
        """It sent something invalid. True when this very one brought the ban."""
        self._invalid += 1
        return self._invalid == BANNED_AFTER

    def showed(self, summary: StateSummary) -> bool:
        """Keep its newest summary. True when it shows less than the one before: its history was rolled back."""
        earlier, self._summary = self._summary, summary
        return earlier is not None and is_rollback(earlier, summary)


class PeerTable:
    """The peers, with those that have left.

    Args:
        peers: Their names.
        items: Our set, for the comparisons.
        rng: Jitter.
        now_s: The clock as of now.
        cursors: Where to go on with each.
        limits: Intervals.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        items: ItemSet,
        *,
        rng: Rng,
        now_s: float,
        cursors: Mapping[Peer, str],
        limits: GossipLimits,
    ) -> None:
        self._items, self._limits, self._rng = items, limits, rng
        self._entries: dict[Peer, PeerEntry] = {}
        for peer in peers:
            self.add(peer, now_s=now_s, cursor=cursors.get(peer))

    def add(self, peer: Peer, *, now_s: float, cursor: str | None) -> None:
        """A peer, or one that is back."""
        first_s = now_s + self._limits.comparison_interval_s * self._rng.random()
        comparison = LedgerComparison(self._items, first_s=first_s)
        self._entries[peer] = PeerEntry(self._rng, JournalPull(cursor), comparison)

    def __getitem__(self, peer: Peer) -> PeerEntry:
        return self._entries[peer]

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._entries)

    @property
    def has_caught_up(self) -> bool:
        """Whether the journal of one was read to its end, or none answers."""
        entries = list(self._entries.values())  # /readyz asks in a thread, while peers join
        read = [entry.pull.was_read for entry in entries if not entry.is_banned]
        return True in read or None not in read

    def askable(self, now_s: float) -> list[Peer]:
        """Those who may be asked now."""
        return [peer for peer, entry in self._entries.items() if entry.can_ask(now_s)]

    def listeners(self, *, besides: Collection[Peer]) -> list[Peer]:
        """Those to whom an announcement goes; one that does not answer will pull when it is back."""
        return [peer for peer, entry in self._entries.items() if peer not in besides and entry.is_reachable]

    def pause_s(self, interval_s: float) -> float:
        """An interval, give or take a quarter, so that servers do not come in step."""
        return interval_s * (0.75 + 0.5 * self._rng.random())

    def settled(self, transaction: TxId, now_s: float, *, dropped: bool, only: Peer | None = None) -> list[Effect]:
        """An id needs nothing more, or nothing for now: move the cursors, or one of them, that waited for it."""
        effects: list[Effect] = []
        for peer in self._entries if only is None else (only,):
            pause_s = self.pause_s(self._limits.pull_interval_s)
            cursor = self._entries[peer].pull.settled(transaction, now_s, pause_s=pause_s, dropped=dropped)
            effects += [] if cursor is None else [SaveCursor(peer, cursor)]
        return effects

    def let_go_of_stalled_pages(self, now_s: float) -> list[Effect]:
        """Pages of which nothing has been settled for long."""
        effects: list[Effect] = []
        for peer, entry in self._entries.items():
            cursor = entry.pull.stalled(now_s, pause_s=self.pause_s(self._limits.pull_interval_s))
            effects += [] if cursor is None else [SaveCursor(peer, cursor)]
        return effects

    def asked_rather_than(self, peer: Peer, now_s: float) -> list[Peer]:
        """Who is asked for what both have: nobody, unless this one did not serve and they do."""
        if now_s >= self._entries[peer].unserving_until_s:
            return []
        return [name for name, each in self._entries.items() if each.is_reachable and now_s >= each.unserving_until_s]

    def served(self, peer: Peer) -> None:
        """It delivered a model."""
        self._entries[peer].unserving_until_s = -math.inf

    def unserved(self, peer: Peer, what: str, now_s: float) -> list[Effect]:
        """It did not serve what it had listed."""
        self._entries[peer].unserving_until_s = now_s + UNSERVING_S
        return [LogIncident(peer, Incident.UNSERVED, what)]

    def invalid(self, peer: Peer, detail: str) -> list[Effect]:
        """It sent what no honest server sends."""
        effects: list[Effect] = [LogIncident(peer, Incident.INVALID, detail)]
        if self._entries[peer].count_invalid():
            effects.append(LogIncident(peer, Incident.BANNED, f"{BANNED_AFTER} invalid messages"))
        return effects
