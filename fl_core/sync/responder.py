"""What a server answers to its peers. Reads only; who may ask, and how much, is checked before.

Models are not served here: the caller streams them from its store.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from fl_core.sync.act_set import ActSet
from fl_core.sync.items import ItemSet
from fl_core.sync.messages import (
    MAX_CHANGES,
    MAX_IDS_PER_CALL,
    Acts,
    Changes,
    CursorUnknown,
    GetActs,
    GetChanges,
    GetCheckpoint,
    GetModel,
    GetSummary,
    GetTransactions,
    ReconcileAnswer,
    ReconcileFrame,
    Request,
    Response,
    SummaryAnswer,
    TransactionBundle,
    Transactions,
)
from fl_core.sync.reconcile import answer as answer_frame
from fl_core.sync.summary import StateSummary
from fl_core.types import TxId

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Header and attachment bytes in one answer; what does not fit is asked for again."""


class Journal(Protocol):
    """What has become durable and visible, in order of arrival (genesis is arrival 0)."""

    @property
    def epoch(self) -> str:
        """Names this journal; a new one has another, so that cursors of the old are known to be foreign."""
        ...

    def count(self) -> int:
        """How many transactions there are."""
        ...

    def ids_from(self, arrival: int, limit: int) -> Sequence[TxId]:
        """Ids of at most ``limit`` transactions, from this arrival on."""
        ...

    def bundle(self, transaction: TxId) -> TransactionBundle | None:
        """A transaction as it travels."""
        ...


class Responder:
    """Answers every request but ``GetModel`` and ``GetCheckpoint``, which take the store.

    Args:
        journal: What is here, on the disk.
        items: The same as a set.
        acts: The ledger's acts.
        summary: Makes this server's signed summary as of now.
    """

    def __init__(
        self,
        journal: Journal,
        items: ItemSet,
        acts: ActSet,
        *,
        summary: Callable[[], StateSummary],
    ) -> None:
        self._journal, self._items, self._acts, self._summary = journal, items, acts, summary

    def answer(self, request: Request) -> Response:
        """What to answer.

        Raises:
            GossipFrameError: A frame breaks a rule.
        """
        match request:
            case GetChanges(after, limit):
                return self._changes(after, min(limit, MAX_CHANGES))
            case GetTransactions(ids):
                return self._transactions(ids[:MAX_IDS_PER_CALL])
            case GetSummary():
                return SummaryAnswer(self._summary())
            case ReconcileFrame(frame):
                return ReconcileAnswer(answer_frame(self._items, frame))
            case GetActs(known):
                return Acts(self._acts.besides(known))
            case GetModel() | GetCheckpoint():
                raise AssertionError("the caller's to answer")

    def _changes(self, after: str | None, limit: int) -> Changes | CursorUnknown:
        start = 0 if after is None else self._arrival_after(after)
        if start is None:
            return CursorUnknown()
        ids = tuple(self._journal.ids_from(start, limit))
        end = start + len(ids)
        return Changes(ids, f"{self._journal.epoch}.{end}", more=end < self._journal.count())

    def _arrival_after(self, cursor: str) -> int | None:
        """The first arrival that a cursor has not seen; None for a cursor that was not given here."""
        epoch, _, digits = cursor.rpartition(".")
        is_ours = epoch == self._journal.epoch and digits.isascii() and digits.isdecimal() and len(digits) < 16
        return int(digits) if is_ours and int(digits) <= self._journal.count() else None

    def _transactions(self, ids: Sequence[TxId]) -> Transactions:
        found: list[TransactionBundle] = []
        unknown: list[TxId] = []
        nbytes = 0
        for transaction in ids:
            bundle = self._journal.bundle(transaction)
            if bundle is None:
                unknown.append(transaction)
                continue
            nbytes += bundle.nbytes
            if found and nbytes > MAX_ANSWER_BYTES:
                break
            found.append(bundle)
        return Transactions(tuple(found), tuple(unknown))
