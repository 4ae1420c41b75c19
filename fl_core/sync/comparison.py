"""Whether a peer's ledger equals ours, and which of its transactions we lack.

Nothing else in gossip is trusted to be complete: cursors can skip, announcements get lost, disks go back in time. The
comparison looks at one signed line a minute. When the lines differ, range reconciliation finds what we lack, in a few
kilobytes for a few differences. What the peer lacks is its own comparison's work.
"""

from fl_core.sync.act_set import ActSet
from fl_core.sync.items import ItemSet
from fl_core.sync.journal_pull import HURRIED_INTERVAL_S
from fl_core.sync.messages import GetActs, GetSummary, ReconcileFrame, Request
from fl_core.sync.reconcile import Reconciliation
from fl_core.sync.summary import StateSummary, same_ledger_state
from fl_core.types import TxId


class LedgerComparison:
    """The comparison with one peer, step by step.

    Args:
        items: Our set.
        first_s: When the first one is due.
    """

    def __init__(self, items: ItemSet, *, first_s: float) -> None:
        self._items = items
        self._due_s, self._began_s = first_s, float("-inf")
        self._next: list[Request] = []
        self._asked = self._is_hurried = False
        self._reconciliation: Reconciliation | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether something is to be asked."""
        return not self._asked and (bool(self._next) or now_s >= self._due_s)

    @property
    def is_wanted(self) -> bool:
        """Whether one goes on, or there is reason for one besides that it is time."""
        return self._is_hurried or bool(self._next)

    def hurry(self) -> None:
        """Compare soon, once more if a comparison is running: there is reason to think that acts are new."""
        self._is_hurried = True
        self._due_s = min(self._due_s, self._began_s + HURRIED_INTERVAL_S)

    def ask(self, now_s: float) -> Request:
        """The next request: a step of a running comparison, or the first of a new one."""
        self._asked = True
        if self._next:
            return self._next.pop(0)
        self._is_hurried, self._began_s = False, now_s
        return GetSummary()

    def end(self, now_s: float, *, pause_s: float) -> None:
        """This comparison is over, for good or ill."""
        self._asked, self._next, self._reconciliation = False, [], None
        self._due_s = now_s + pause_s
        if self._is_hurried:
            self.hurry()

    def compare(self, ours: StateSummary, theirs: StateSummary, acts: ActSet, *, acts_only: bool) -> bool:
        """Whether both hold the same; when not, the next requests look for what we lack."""
        self._asked = False
        if ours.acts_digest != theirs.acts_digest:
            self._next.append(GetActs(acts.digests()))
        if not acts_only and not same_ledger_state(ours, theirs):
            self._reconciliation = Reconciliation(self._items)
            self._next.append(ReconcileFrame(self._reconciliation.first()))
        return not self._next

    def acts_came(self) -> bool:
        """The acts that we lack came. Whether that was all."""
        self._asked = False
        return not self._next

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
            self._next.append(ReconcileFrame(following))
            return None
        return tuple(self._reconciliation.need)
