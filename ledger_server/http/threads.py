"""Worker threads for requests: nobody's requests have more of them than are left for others'.

A thread that works, or waits for a lock or for one of the few averages at a time, cannot be taken back from its
request. So dear requests of one caller wait for one another here, in the event loop, and others' cheap ones pass by.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TypeVar

from anyio.to_thread import run_sync

from ledger_server.shares import Shares

T = TypeVar("T")


class WorkerThreads:
    """Who has how many of them; to be used in one event loop.

    Args:
        count: How many there are.
    """

    def __init__(self, count: int) -> None:
        self._shares = Shares(count)
        self._waiting: dict[asyncio.Future[None], str] = {}

    @property
    def waiting(self) -> int:
        """How many requests wait for one."""
        return len(self._waiting)

    async def run(self, holder: str, work: Callable[[], T]) -> T:
        """Do the work in a thread, when it is the turn of whoever it is for."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = holder
        self._let_on()
        try:
            await turn
            return await run_sync(work)
        finally:
            if self._waiting.pop(turn, None) is None:  # it was let on
                self._shares.give_back(holder)
                self._let_on()

    def _let_on(self) -> None:
        """Whoever has come first, of those that have fewer threads than are left."""
        for turn, holder in list(self._waiting.items()):
            if self._shares.excess(holder, 1) <= 0 and not turn.cancelled():
                del self._waiting[turn]
                self._shares.take(holder)
                turn.set_result(None)

    def serve(self, holder: Callable[[], str]) -> None:
        """Let ``in_worker`` work for the request of this task, whoever has been found to call by then."""
        _REQUEST.set((self, holder))


_REQUEST: ContextVar[tuple[WorkerThreads, Callable[[], str]]] = ContextVar("request")


async def in_worker(work: Callable[..., T], *arguments: object) -> T:
    """Do a part of a request in a worker thread, one of those that its caller may have."""
    request = _REQUEST.get(None)
    if request is None:
        return await run_sync(work, *arguments)
    threads, holder = request
    return await threads.run(holder(), partial(work, *arguments))
