"""BEAST in a process of its own: Rbeast holds the interpreter lock for its whole run (15-50 ms).

The process starts with ``start``, or the first question, and lives as long as the server, be that killed. When it dies
(out of memory, a crash in native code) the question fails once with a clear error, and the next one starts a new
process.
"""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np

from fl_core.errors import DagAcflError
from fl_core.selection.change_points import BeastPriors, change_point_probabilities
from fl_core.types import Vector64


class ChangePointProcessError(DagAcflError):
    """The process that runs BEAST died, and asking again starts a new one; or the server is stopping."""

    code = "selector-unavailable"


class ChangePointProcess:
    """A ``ChangePointDetector`` that computes elsewhere. Call it from worker threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False
        self._asked = 0

    def start(self) -> None:
        """Start the process and let it load BEAST, which takes some tenths of a second; returns at once."""
        self._running().submit(change_point_probabilities, np.array([1.0, 0.5, 0.0]), BeastPriors())

    @property
    def waiting(self) -> int:
        """Questions that wait for the one that is at work."""
        return max(0, self._asked - 1)

    def __call__(self, sequence: Vector64, priors: BeastPriors) -> Vector64:
        """As ``change_point_probabilities``.

        Raises:
            ChangePointProcessError: The process died during this question, or ``close`` was called.
        """
        with self._lock:
            self._asked += 1
        try:
            return self._answer(sequence, priors)
        finally:
            with self._lock:
                self._asked -= 1

    def _answer(self, sequence: Vector64, priors: BeastPriors) -> Vector64:
        pool = self._running()
        try:
            answer = pool.submit(change_point_probabilities, sequence, priors)
        except BrokenProcessPool as error:
            raise self._died(pool) from error
        except RuntimeError as error:  # closed since the line above
            raise _stopping() from error
        try:
            return answer.result()
        except BrokenProcessPool as error:
            raise self._died(pool) from error
        except CancelledError as error:
            raise _stopping() from error

    def close(self) -> None:
        """End the process, and refuse further questions; closing again does nothing."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._closed = True
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def _running(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._closed:
                raise _stopping()
            if self._pool is None:
                # spawn: a fork would copy locks that other threads hold at that moment.
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(max_workers=1, mp_context=context, initializer=_begin)
            return self._pool

    def _died(self, pool: ProcessPoolExecutor) -> ChangePointProcessError:
        with self._lock:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False, cancel_futures=True)
        return ChangePointProcessError("the change-point process died; ask again")


def _stopping() -> ChangePointProcessError:
    return ChangePointProcessError("the server is stopping")


def _begin() -> None:
    """In the process itself: Ctrl-C is the server's to handle, and without a server there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_server, daemon=True).start()


def _end_with_server() -> None:
    # Who waits for questions never learns that nobody is left to ask: it holds both ends of the queue.
    server = multiprocessing.parent_process()
    assert server is not None, "started by the server"
    server.join()
    os._exit(0)
