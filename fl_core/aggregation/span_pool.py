"""How one call's work is shared: spans of a model's values, done by several threads, handed back in order.

What a span holds never depends on the number of threads, and results come back in the order of the spans; so a
rule that adds them up gets the same bytes from one thread and from eight.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Final, TypeVar

from fl_core.errors import ParameterError

T = TypeVar("T")

UNIT: Final = 1 << 14
"""Values by which spans are cut, except the last: 64 KiB."""
_LONGEST: Final = 6 * UNIT
_READ_AT_ONCE: Final = 4 << 20
"""Values of all models together that a span reads, where a span of one unit does not read more: 16 MiB."""


class SpanPool:
    """``threads`` threads, the calling one included; sources must allow concurrent reads where there are several.

    NumPy lets go of the interpreter lock within a block. Threads start with the first call that needs them.

    Raises:
        ParameterError: Fewer than 1 thread.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ParameterError(f"an aggregator's threads must be at least 1, not {threads}")
        self._threads = threads
        # Kept, because the kernel needs longer to give a new thread a core of its own than the work lasts.
        self._pool = ThreadPoolExecutor(threads - 1, "aggregation") if threads > 1 else None

    def in_parts(self, work: Callable[[int, int], None], *, size: int, least: int) -> None:
        """``work(start, stop)`` of one equal part of ``size`` values per thread.

        Args:
            work: Writes the values ``start`` to ``stop`` (exclusive) of the result.
            size: Values of a model.
            least: Where a part were shorter, the calling thread does all of it.
        """
        if self._pool is None or size < self._threads * least:
            work(0, size)
            return
        edges = [size * part // self._threads for part in range(self._threads + 1)]
        others = [self._pool.submit(work, low, high) for low, high in pairwise(edges[1:])]
        work(0, edges[1])
        for part in others:
            part.result()

    def in_order(self, work: Callable[[int, int], T], *, size: int, models: int) -> Iterator[T]:
        """``work(start, stop)`` of every span of ``size`` values, in order; at most one span a thread at a time.

        Args:
            work: Reads ``start`` to ``stop`` (exclusive) of each model, once.
            size: Values of a model.
            models: How many models ``work`` reads; more of them make spans shorter, so that memory stays bounded.
        """
        spans = list(spans_of(size, models))
        longest = max((stop - start for start, stop in spans), default=0)
        if self._pool is None or size < self._threads * longest:  # what is left of a model is not worth waking a thread
            yield from (work(*span) for span in spans)
            return
        for first in range(0, len(spans), self._threads):
            mine, *theirs = spans[first : first + self._threads]
            others = [self._pool.submit(work, *span) for span in theirs]
            try:
                results = [work(*mine)]
            finally:
                wait(others)  # nobody reads on from sources that the caller closes after an error
            yield from results
            yield from (other.result() for other in others)


ONE_THREAD: Final = SpanPool(1)


def spans_of(size: int, models: int) -> Iterator[tuple[int, int]]:
    """Start and stop of each span; the same for every number of threads."""
    length = max(UNIT, min(_LONGEST, _READ_AT_ONCE // max(1, models) // UNIT * UNIT))
    return ((start, min(start + length, size)) for start in range(0, size, length))
