"""Group commit: threads that come while one of them writes wait, and the next one writes for all of them.

A commit waits for the disk, and so do all who come meanwhile: eight who wait one after the other wait for eight disk
operations, eight who are written together for one. Whoever comes alone is written at once, by itself.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from ledger_server.store.errors import StoreUnavailableError

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class _Turn(Generic[Item, Outcome]):
    """One thread's item. The thread is called when there is an outcome, or when it is its turn to write."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.outcome: Future[Outcome] = Future()
        self.called = threading.Event()


class GroupCommit(Generic[Item, Outcome]):
    """Call it with an item, from any thread; it returns, or raises, that item's outcome.

    Args:
        write: Writes items together, one call at a time, in the order in which they came. Gives the outcome of each,
            an exception where one alone is refused. Where it raises, none is written: all are told so where the
            database is unavailable; else each is written alone, so that one that is broken spoils no other.
        fits: Whether an item may be written together with those before it.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Sequence[Outcome | BaseException]],
        *,
        fits: Callable[[Sequence[Item], Item], bool],
    ) -> None:
        self._write, self._fits = write, fits
        self._lock = threading.Lock()
        self._waiting: list[_Turn[Item, Outcome]] = []
        self._is_writing = False

    def __call__(self, item: Item) -> Outcome:
        turn = _Turn[Item, Outcome](item)
        with self._lock:
            self._waiting.append(turn)
            is_next, self._is_writing = not self._is_writing, True
        if not is_next:
            turn.called.wait()
        if not turn.outcome.done():
            self._write_waiting()
        return turn.outcome.result()

    def _write_waiting(self) -> None:
        """Write those that wait, as far as they fit together; then it is the next thread's turn."""
        with self._lock:
            batch = [self._waiting.pop(0)]
            while self._waiting and self._fits([turn.item for turn in batch], self._waiting[0].item):
                batch.append(self._waiting.pop(0))
        self._settle(batch)
        with self._lock:
            self._is_writing = bool(self._waiting)
            following = self._waiting[:1]
        for turn in (*following, *batch):
            turn.called.set()

    def _settle(self, batch: Sequence[_Turn[Item, Outcome]]) -> None:
        try:
            outcomes = self._write([turn.item for turn in batch])
        except BaseException as error:  # noqa: BLE001 -- nobody may be left waiting
            is_broken = isinstance(error, Exception) and not isinstance(error, StoreUnavailableError)
            if is_broken and len(batch) > 1:
                for turn in batch:
                    self._settle([turn])
                return
            outcomes = [error] * len(batch)
        for turn, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                turn.outcome.set_exception(outcome)
            else:
                turn.outcome.set_result(outcome)
