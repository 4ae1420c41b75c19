"""Whether a peer's ledger equals ours, and which of its transactions we lack.

Nothing else in gossip is trusted to be complete: cursors can skip, announcements get lost, disks go back in time. The
comparison looks at one signed line a minute. When the lines differ, range reconciliation finds what we lack, in a few
kilobytes for a few differences. What the peer lacks is its own comparison's work.
"""

from fl_core.sync.checkpoint import Checkpoint, same_ledger_state
from fl_core.sync.items import ItemSet
from fl_core.sync.messages import GetCheckpoint, ReconcileFrame, Request
from fl_core.sync.reconcile import Reconciliation
from fl_core.types import TxId


class LedgerComparison:
    """The comparison with one peer, step by step.

    Args:
        items: Our set.
        first_s: When the first one is due.
    """

    def __init__(self, items: ItemSet, *, first_s: float) -> None:
        self._items = items
        self._due_s = first_s
        self._next: Request | None = None
        self._asked = False
        self._reconciliation: Reconciliation | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether something is to be asked."""
        return not self._asked and (self._next is not None or now_s >= self._due_s)

    def ask(self) -> Request:
        """The next request: a step of a running comparison, or the first of a new one."""
        self._asked = True
        request, self._next = self._next or GetCheckpoint(), None
        return request

    def end(self, now_s: float, *, pause_s: float) -> None:
        """This comparison is over, for good or ill."""
        self._asked, self._next, self._reconciliation = False, None, None
        self._due_s = now_s + pause_s

    def compare(self, ours: Checkpoint, theirs: Checkpoint) -> bool:
        """Whether both hold the same; when not, the next request begins to look for the difference."""
        self._asked = False
        if same_ledger_state(ours, theirs):
            return True
        self._reconciliation = Reconciliation(self._items)
        self._next = ReconcileFrame(self._reconciliation.first())
        return False

    def reconciled(self, frame: bytes) -> tuple[TxId, ...] | None:
        """A frame of the peer came. What we lack, once that is known.

        A reconciliation has bounds; what it had to cut off, the next comparison finds.

        Raises:
            GossipFrameError: The frame breaks a rule, or the reconciliation does not end.
        """
        self._asked = False
        assert self._reconciliation is not None, "a frame answers a frame"
        following = self._reconciliation.next(frame)
        if following is not None:
            self._next = ReconcileFrame(following)
            return None
        return tuple(self._reconciliation.need)
