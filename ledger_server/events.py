"""Who listens to live events: told that there is something new, from any thread, without ever waiting for a listener.

What is new a listener reads in the journal, at its own pace; so a notice carries nothing, and none can be missed.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from anyio.to_thread import run_sync

_TOLD: Final = 16


class Listeners:
    """Wakes everybody who listens.

    Attributes:
        closed: Whether every stream is to end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self.closed: bool = False

    def __len__(self) -> int:
        with self._lock:
            return len(self._loops)

    def wake(self) -> None:
        """Tell everyone that there is something new; callable from any thread."""
        with self._lock:
            loops = {*self._loops.values()}
        for loop in loops:
            with suppress(RuntimeError):  # the loop is closed: its listeners are gone, the transaction is stored
                loop.call_soon_threadsafe(self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            waiting = [news for news, its in self._loops.items() if its is loop]
        for news in waiting:
            news.set()

    def close(self) -> None:
        """End every listener's stream, and those of who comes later; callable from any thread."""
        self.closed = True
        self.wake()

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """What is set when there is something new; to be cleared before that is read. Call inside the event loop."""
        news = asyncio.Event()
        with self._lock:
            self._loops[news] = asyncio.get_running_loop()
        try:
            yield news
        finally:
            with self._lock:
                self._loops.pop(news, None)


class News:
    """What has come, as a text for a page: made once for all pages that listen, however many. To be used in one event
    loop.

    Args:
        make: The text of the updates from an arrival on and before another; in a thread.
    """

    def __init__(self, make: Callable[[int, int], str]) -> None:
        self._make = make
        self._told: OrderedDict[tuple[int, int], asyncio.Task[str]] = OrderedDict()

    async def of(self, first: int, end: int) -> str:
        """The text of a part; raises as ``make`` does."""
        task = self._told.get((first, end))
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.get_running_loop().create_task(run_sync(partial(self._make, first, end)))
            self._told[first, end] = task
            if len(self._told) > _TOLD:
                self._told.popitem(last=False)
        return await asyncio.shield(task)
