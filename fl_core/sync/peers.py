"""Whether a peer is spoken to now, and how well it serves.

Three measures that must not be mixed up:

* *backoff* follows the link: it grows with failures in a row and ends with the first answer;
* *score* follows promises: it orders the peers that could serve the same thing, and fades within minutes;
* *invalid* counts what no honest server sends; it never fades, and ends in a ban.
"""

import math
from typing import Final, Protocol

from fl_core.sync.checkpoint import Checkpoint, is_rollback
from fl_core.sync.limits import GossipLimits

SCORE_HALF_LIFE_S: Final = 60.0
FIRST_BACKOFF_S: Final = 0.5


class Rng(Protocol):
    """Where jitter comes from: ``random.Random`` and numpy's ``Generator`` both do."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class PeerHealth:
    """One peer's standing with us."""

    def __init__(self, limits: GossipLimits, rng: Rng) -> None:
        self._limits, self._rng = limits, rng
        self._failures = 0
        self._retry_s = float("-inf")
        self._score, self._scored_s = 0.0, 0.0
        self._invalid = 0
        self._checkpoint: Checkpoint | None = None
        self.walk_rounds = 0

    @property
    def is_banned(self) -> bool:
        """Whether it has sent too much that was invalid."""
        return self._invalid >= self._limits.banned_after

    @property
    def is_failing(self) -> bool:
        """Whether its last ask had no answer."""
        return self._failures > 0

    def can_ask(self, now_s: float) -> bool:
        """Whether asks may go to it."""
        return not self.is_banned and now_s >= self._retry_s

    def failed(self, now_s: float) -> None:
        """No answer: wait twice as long as last time, give or take, so that peers do not come in step."""
        pause_s = min(self._limits.max_backoff_s, FIRST_BACKOFF_S * math.exp2(min(self._failures, 16)))
        self._failures += 1
        self._retry_s = now_s + pause_s * (0.5 + 0.5 * self._rng.random())

    def reached(self) -> bool:
        """It answered or called. True when it had been failing until now: a reconnection."""
        was_failing, self._failures, self._retry_s = self._failures > 0, 0, float("-inf")
        return was_failing

    def unserved(self, now_s: float) -> None:
        """It did not serve what it had advertised."""
        self._score, self._scored_s = self.score(now_s) + 1.0, now_s

    def score(self, now_s: float) -> float:
        """Promises not kept lately: 0 is best."""
        return self._score * math.exp2((self._scored_s - now_s) / SCORE_HALF_LIFE_S)

    def invalid(self) -> bool:
        """It sent something invalid. True when this very one brought the ban."""
        self._invalid += 1
        return self._invalid == self._limits.banned_after

    def showed(self, checkpoint: Checkpoint) -> bool:
        """Keep its newest checkpoint. True when it shows less than the one before: its history was rolled back."""
        earlier, self._checkpoint = self._checkpoint, checkpoint
        return earlier is not None and is_rollback(earlier, checkpoint)
