"""Group commit: threads that come while one of them writes wait, and the next one writes for all of them.

A commit waits for the disk, and so do all who come meanwhile: eight who wait one after the other wait for eight disk
operations, eight who are written together for one. Whoever comes alone is written at once, by itself.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from ledger_server.store.errors import DiskNearlyFullError, StoreUnavailableError

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class _Turn(Generic[Item, Outcome]):
    """One thread's items. The thread is called when there are outcomes, or when it is its turn to write."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.outcomes: Sequence[Outcome | BaseException] | None = None
        self.called = threading.Event()


class GroupCommit(Generic[Item, Outcome]):
    """Call it with an item, from any thread; it returns, or raises, that item's outcome.

    Args:
        write: Writes items together, one call at a time, in the order in which they came. Gives the outcome of each,
            an exception where one alone is refused. Where it raises, none is written: all are told so where the
            database is unavailable; else each is written alone, so that one that is broken, or finds no room, spoils
            no other.
        fits: Whether a thread's items may be written together with those of others before them.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Sequence[Outcome | BaseException]],
        *,
        fits: Callable[[Sequence[Item], Sequence[Item]], bool],
    ) -> None:
        self._write, self._fits = write, fits
        self._lock = threading.Lock()
        self._waiting: list[_Turn[Item, Outcome]] = []
        self._is_writing = False

    def __call__(self, item: Item) -> Outcome:
        (outcome,) = self.together([item])
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def together(self, items: Sequence[Item]) -> Sequence[Outcome | BaseException]:
        """The outcome of each of several items of one thread, which are written in one go, or why there is none."""
        turn = _Turn[Item, Outcome](items)
        with self._lock:
            self._waiting.append(turn)
            is_next, self._is_writing = not self._is_writing, True
        if not is_next:
            turn.called.wait()
        if turn.outcomes is None:
            self._write_waiting()
        assert turn.outcomes is not None, "they have just been written"
        return turn.outcomes

    def _write_waiting(self) -> None:
        """Write those that wait, as far as they fit together; then it is the next thread's turn."""
        with self._lock:
            batch = [self._waiting.pop(0)]
            items = [*batch[0].items]
            while self._waiting and self._fits(items, self._waiting[0].items):
                batch.append(self._waiting.pop(0))
                items += batch[-1].items
        outcomes = iter(self._outcomes(items))
        for turn in batch:
            turn.outcomes = [*islice(outcomes, len(turn.items))]
        with self._lock:
            self._is_writing = bool(self._waiting)
            following = self._waiting[:1]
        for turn in (*following, *batch):
            turn.called.set()

    def _outcomes(self, items: Sequence[Item]) -> Sequence[Outcome | BaseException]:
        try:
            return self._write(items)
        except BaseException as error:  # noqa: BLE001 -- nobody may be left waiting
            is_down = isinstance(error, StoreUnavailableError) and not isinstance(error, DiskNearlyFullError)
            if isinstance(error, Exception) and not is_down and len(items) > 1:
                return [outcome for item in items for outcome in self._outcomes([item])]
            return [error] * len(items)
