"""An answer for many who ask, as of a moment ago: made once for all of them, and seldom where making it takes long."""

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

LEAST_S: Final = 1.0
"""For so long at least it stands."""
REST: Final = 20
"""It stands for so many times as long as making it took: a twentieth of one core."""


class _Made(NamedTuple, Generic[T]):
    answer: T
    of: object
    until_s: float


class Lately(Generic[T]):
    """Safe to ask from many threads.

    Args:
        cpu_s: This thread's time, seconds.
        now_s: Seconds; only differences count.
    """

    def __init__(
        self, *, cpu_s: Callable[[], float] = time.thread_time, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._cpu_s, self._now_s = cpu_s, now_s
        self._making = threading.Lock()
        self._made: _Made[T] | None = None

    def standing(self, of: object) -> T | None:
        """The answer, while it stands."""
        made = self._made
        return made.answer if made is not None and made.of is of and self._now_s() < made.until_s else None

    def get(self, of: object, make: Callable[[], T]) -> T:
        """The answer that stands; a new one where it is of something else, or too old, and nobody is making one.

        Args:
            of: What it must be of, the very object.
            make: Makes it; what it raises is raised here.
        """
        made = self._made
        if (answer := self.standing(of)) is not None:
            return answer
        if not self._making.acquire(blocking=made is None or made.of is not of):
            assert made is not None
            return made.answer
        try:
            if self._made is made:  # else somebody made it while this one waited
                began_s = self._cpu_s()
                answer = make()
                stands_s = max(LEAST_S, REST * (self._cpu_s() - began_s))
                self._made = _Made(answer, of, self._now_s() + stands_s)
            assert self._made is not None
            return self._made.answer
        finally:
            self._making.release()
