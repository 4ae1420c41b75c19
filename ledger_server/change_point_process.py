"""BEAST in a process of its own: Rbeast holds the interpreter lock for its whole run (15-50 ms).

The process starts with the first question and lives as long as the server. When it dies (out of memory,
a crash in native code) the question fails once with a clear error and the next one starts a new process.
"""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from fl_core.errors import DagAcflError
from fl_core.selection.change_points import BeastPriors, change_point_probabilities
from fl_core.types import Vector64


class ChangePointProcessError(DagAcflError):
    """The process that runs BEAST died; asking again starts a new one."""

    code = "selector-unavailable"


class ChangePointProcess:
    """A ``ChangePointDetector`` that computes elsewhere. Call it from worker threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, sequence: Vector64, priors: BeastPriors) -> Vector64:
        """As ``change_point_probabilities``.

        Raises:
            ChangePointProcessError: The process died during this question.
        """
        pool = self._running()
        try:
            return pool.submit(change_point_probabilities, sequence, priors).result()
        except BrokenProcessPool as error:
            self._discard(pool)
            raise ChangePointProcessError("the change-point process died; ask again") from error

    def close(self) -> None:
        """End the process."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def _running(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._pool is None:
                # spawn: a fork would copy locks that other threads hold at that moment.
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(max_workers=1, mp_context=context)
            return self._pool

    def _discard(self, pool: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False, cancel_futures=True)
