"""Whether a peer's ledger equals ours, and which of its transactions we lack.

Nothing else in gossip is trusted to be complete: cursors can skip, announcements get lost, disks go back in
time. The audit compares one signed line a minute. When the lines differ, range-based reconciliation finds what we
lack, which costs a few kilobytes for a few differences. What the peer lacks is its own audit's work.

A reconciliation has bounds. One that was cut off by them is gone on with as soon as what it found has been asked
for, provided that some of it was admitted: a peer that lists what it does not serve waits for the next minute.
"""

from fl_core.sync.checkpoint import Checkpoint, same_ledger_state
from fl_core.sync.items import ItemSet
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import GetCheckpoint, ReconcileFrame, Request
from fl_core.sync.reconcile import Reconciliation
from fl_core.types import TxId


class Audit:
    """The comparison with one peer, step by step.

    Args:
        items: Our set.
        limits: Interval and sizes.
        first_s: When the first one is due.
    """

    def __init__(self, items: ItemSet, limits: GossipLimits, *, first_s: float) -> None:
        self._items, self._limits = items, limits
        self._due_s = first_s
        self._next: Request | None = None
        self._asked = False
        self._reconciliation: Reconciliation | None = None
        self._is_cut = self._has_gained = False

    def is_due(self, now_s: float, *, is_drained: bool) -> bool:
        """Whether something is to be asked.

        Args:
            now_s: The clock.
            is_drained: Whether nothing that the peer lists is left to be asked for.
        """
        goes_on = self._is_cut and self._has_gained and is_drained
        return not self._asked and (self._next is not None or goes_on or now_s >= self._due_s)

    def ask(self) -> Request:
        """The next request: a step of a running comparison, or the first of a new one."""
        self._asked, self._is_cut = True, False
        request, self._next = self._next or GetCheckpoint(), None
        return request

    def end(self, now_s: float, *, pause_s: float) -> None:
        """This comparison is over, for good or ill."""
        self._asked, self._next, self._reconciliation = False, None, None
        self._due_s = now_s + pause_s

    def gained(self) -> None:
        """Something that the peer lists has been admitted."""
        self._has_gained = True

    def compare(self, ours: Checkpoint, theirs: Checkpoint) -> bool:
        """Whether both hold the same; when not, the next request begins to look for the difference."""
        self._asked = False
        if same_ledger_state(ours, theirs):
            return True
        self._reconciliation = Reconciliation(self._items, self._limits.frame_bytes)
        self._next = ReconcileFrame(self._reconciliation.first())
        return False

    def reconciled(self, frame: bytes) -> tuple[TxId, ...] | None:
        """A frame of the peer came. What we lack, once that is known.

        Raises:
            GossipFrameError: The frame breaks a rule, or the reconciliation does not end.
        """
        self._asked = False
        assert self._reconciliation is not None, "a frame answers a frame"
        following = self._reconciliation.next(frame)
        if following is not None:
            self._next = ReconcileFrame(following)
            return None
        self._is_cut, self._has_gained = not self._reconciliation.is_complete, False
        return tuple(self._reconciliation.need)
