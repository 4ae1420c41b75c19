"""Threads that share out whole models, while torch itself computes on one thread in each of them.

Torch's own threads would wait for each other at every step, which takes twice the time of one thread for models of
100,000 parameters. Ours meet once, at the end; torch lets go of the interpreter's lock while it computes.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from fl_simulator.run.processes import usable_cores

T = TypeVar("T")


class Workers:
    """Threads that stay until ``close``.

    Args:
        count: How many; 0: one for each core that this process may use; 1: the caller's own.
    """

    def __init__(self, count: int) -> None:
        self.count: int = count or usable_cores()
        self._pool: ThreadPoolExecutor | None = None
        if self.count > 1:
            self._pool = ThreadPoolExecutor(
                self.count, thread_name_prefix="training", initializer=torch.set_num_threads, initargs=(1,)
            )

    def share(self, work: Callable[[T], None], pieces: Sequence[T]) -> None:
        """Do each piece in one thread, in this order as threads become free; the first error is raised."""
        with one_torch_thread():
            if self._pool is None or len(pieces) < 2:
                for piece in pieces:
                    work(piece)
            else:
                list(self._pool.map(work, pieces))

    def share_evenly(self, work: Callable[[T], None], pieces: Sequence[T]) -> None:
        """Do many small pieces: each thread takes some that stand together, for handing over one takes 0.1 ms."""

        def several(some: Sequence[T]) -> None:
            for piece in some:
                work(piece)

        size = max(1, -(-len(pieces) // (4 * self.count)))
        self.share(several, [pieces[at : at + size] for at in range(0, len(pieces), size)])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch computes on one thread inside; afterwards on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
