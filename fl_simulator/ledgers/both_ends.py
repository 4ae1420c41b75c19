"""One kind of work on many items by a few threads, where each result is used in order as soon as it is there.

For work that lets go of the GIL for most of its time, such as SHA-256. The calling thread takes items from the front
and uses what comes of them at once; the others take from the back. So nobody waits until they meet, and no item costs
the locks of a future of its own.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class BothEnds:
    """Threads for such work.

    Args:
        others: How many beside the calling one, at least 1; they start with the first work.
    """

    def __init__(self, others: int) -> None:
        self._others = others
        self._pool = ThreadPoolExecutor(others, "back")

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """``work`` of each item, in order.

        Args:
            work: A pure function that several threads may call at once. What it raises for an item is raised in that
                item's turn.
            items: Any number.
        """
        left = deque(enumerate(items))
        done: dict[int, R] = {}

        def from_the_back() -> None:
            with suppress(IndexError):  # of ``pop``: somebody was faster
                while True:
                    place, item = left.pop()
                    done[place] = work(item)

        others = [self._pool.submit(from_the_back) for _ in range(min(self._others, len(items) - 1))]
        try:
            place = 0
            while left:
                yield work(left.popleft()[1])
                place += 1
            wait(others)
            for rest in range(place, len(items)):
                # What failed there fails here, in its turn.
                yield done.pop(rest) if rest in done else work(items[rest])
        finally:
            left.clear()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
