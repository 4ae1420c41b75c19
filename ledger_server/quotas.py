"""How much one author, and one bearer token, may publish on this server: so many updates within an hour.

Who publishes steadily may do so for ever; who was silent for an hour may publish an hour's worth at once. An update
counts once its author has shown who it is and the rules admit it, also where it then cannot be stored: nobody uses up
somebody else's quota.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

from fl_core.errors import QuotaExceededError
from fl_core.types import AuthorId

WINDOW_S: Final = 3600.0
_SLACK_S: Final = 1e-3  # of a thousand sums
MOST_KEYS: Final = 1 << 15
"""Authors, or tokens, of which something is remembered: 11 MB at most. Of more, those that were silent longest count
anew; who can bring so many names needs no second update of one."""


class Quota:
    """A limit for each of many keys; not safe for concurrent use.

    Args:
        limit: Within an hour; 0: none.
        now_s: Seconds; only differences count.
    """

    def __init__(self, limit: int, *, now_s: Callable[[], float]) -> None:
        self.limit = limit
        self._now_s = now_s
        self._full_at_s: TTLCache[str, float] = TTLCache(MOST_KEYS, ttl=WINDOW_S, timer=now_s)
        """When each key would have its whole quota again."""

    def wait_s(self, key: str) -> float:
        """Seconds until the key may publish once more; 0: now."""
        return max(0.0, self._after_one_more(key) - self._now_s() - WINDOW_S) if self.limit else 0.0

    def count(self, key: str) -> None:
        """Count one update."""
        if self.limit:
            self._full_at_s[key] = self._after_one_more(key)

    def _after_one_more(self, key: str) -> float:
        return max(self._full_at_s.get(key, 0.0), self._now_s()) + WINDOW_S / self.limit


class Quotas:
    """The quotas of authors and of tokens. Safe to share between threads.

    Args:
        per_author: Updates of one author within an hour; 0: no limit.
        per_token: The same of what one token brings, whoever's.
        now_s: Seconds; only differences count.
    """

    def __init__(self, *, per_author: int = 0, per_token: int = 0, now_s: Callable[[], float] = time.monotonic) -> None:
        self._authors, self._tokens = Quota(per_author, now_s=now_s), Quota(per_token, now_s=now_s)
        self._lock = threading.RLock()

    def check(self, author: AuthorId, token: str | None) -> None:
        """See that an author may publish one update more, which a token has brought where there is one.

        Raises:
            QuotaExceededError: One of the two has none left.
        """
        with self._lock:
            for what, quota, key in (("author", self._authors, author), ("token", self._tokens, token)):
                if key is not None and (wait_s := quota.wait_s(key)) > _SLACK_S:
                    raise QuotaExceededError(
                        f"this {what} may publish {quota.limit:,} updates within an hour here",
                        retry_after_s=math.ceil(wait_s),
                    )

    def count(self, author: AuthorId) -> None:
        """Count one update that another process of this server has taken; its token is that one's to count."""
        with self._lock:
            self._authors.count(author)

    def take(self, author: AuthorId, token: str | None) -> None:
        """Count one update.

        Raises:
            QuotaExceededError: As ``check``; nothing is counted.
        """
        with self._lock:
            self.check(author, token)
            self._authors.count(author)
            if token is not None:
                self._tokens.count(token)
