"""Which page of a peer's changes is asked for next, and up to where everything is settled.

One page at a time: the next is asked for when each id of this one has been admitted or refused, so a peer
with a million transactions is read at the pace of admission. When some were dropped instead (no room,
nobody served them), the page is asked again a few times; then the cursor goes on and a comparison repairs it.
"""

from collections.abc import Iterable
from typing import Final

from fl_core.sync.messages import Changes, GetChanges
from fl_core.types import TxId

PAGE_REPEATS: Final = 5
"""How often a page is asked again for what was dropped, before it is left to the comparison of ledgers."""

PAGE_STALL_S: Final = 120.0
"""Seconds without progress after which a page counts as dropped: longer than any queue takes to give up."""

HURRIED_INTERVAL_S: Final = 0.25
"""Shortest time between two pulls that something unexpected brought about."""


class JournalPull:
    """The cursor on one peer's arrival log.

    Args:
        cursor: Where to begin; None: at the beginning.
    """

    def __init__(self, cursor: str | None) -> None:
        self.cursor = cursor
        self._due_s = float("-inf")
        self._asked_s = float("-inf")
        self._again = False
        self._asked = False
        self._open: set[TxId] = set()
        self._page: Changes | None = None
        self._dropped = False
        self._repeats = 0
        self.was_read: bool | None = None
        """Whether the journal was read to its end; None while that is being tried for the first time."""

    def is_due(self, now_s: float) -> bool:
        """Whether a page is to be asked for."""
        return not self._asked and self._page is None and now_s >= self._due_s

    def is_settled(self, now_s: float) -> bool:
        """Whether all that the peer has listed is settled, and there is no reason to ask for more yet."""
        return self._page is None and not self._asked and not self._again and now_s < self._due_s

    def ask(self, now_s: float) -> GetChanges:
        """The request for the next page."""
        self._asked, self._asked_s, self._again = True, now_s, False
        return GetChanges(self.cursor)

    def hurry(self) -> None:
        """Ask again soon: there is reason to think that something is new."""
        self._again = True
        self._due_s = min(self._due_s, self._asked_s + HURRIED_INTERVAL_S)

    def failed(self, now_s: float, *, pause_s: float) -> None:
        """No page came."""
        self._asked, self._due_s = False, now_s + pause_s
        self.was_read = bool(self.was_read)

    def restart(self) -> None:
        """The peer does not know the cursor: begin at its beginning."""
        self.cursor, self._asked, self._page = None, False, None
        self._open.clear()
        self._due_s = self._asked_s + HURRIED_INTERVAL_S

    def came(self, page: Changes, unknown_here: Iterable[TxId], now_s: float, *, pause_s: float) -> str | None:
        """A page came.

        Args:
            page: What the peer answered.
            unknown_here: Those of its ids that must be settled first.
            now_s: The clock.
            pause_s: Until the next page if this is the last.

        Returns:
            A cursor before which everything is settled, when this page brought one.
        """
        self._asked, self._page, self._dropped = False, page, False
        self.was_read = self.was_read or None
        self._open, self._moved_s = set(unknown_here), now_s
        return None if self._open else self._finish(now_s, pause_s=pause_s)

    def settled(self, transaction: TxId, now_s: float, *, pause_s: float, dropped: bool) -> str | None:
        """An id was admitted or refused, or dropped for now. Returns as ``came``."""
        if transaction not in self._open:
            return None
        self._open.discard(transaction)
        self._dropped |= dropped
        self._moved_s = now_s
        return None if self._open else self._finish(now_s, pause_s=pause_s)

    def stalled(self, now_s: float, *, pause_s: float) -> str | None:
        """Let go of a page of which nothing has been settled for long. Returns as ``came``."""
        if self._page is None or now_s - self._moved_s < PAGE_STALL_S:
            return None
        self._dropped = True
        self._open.clear()
        return self._finish(now_s, pause_s=pause_s)

    def _finish(self, now_s: float, *, pause_s: float) -> str | None:
        page, self._page = self._page, None
        assert page is not None, "a page is settled after it came"
        self._due_s = now_s + pause_s
        if self._again:
            self.hurry()
        if self._dropped and self._repeats < PAGE_REPEATS:
            self._repeats += 1
            return None
        self.was_read = True if self.was_read or not page.more else None
        is_new = page.next != self.cursor
        self._repeats, self.cursor = 0, page.next
        if page.more and not self._dropped:
            self._due_s = now_s
        return self.cursor if is_new else None
