"""Who listens to live events: told that there is something new, from any thread, without ever waiting for a listener.

What is new a listener reads in the journal, at its own pace; so a notice carries nothing, and none can be missed.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


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
            waiting = list(self._loops.items())
        for news, loop in waiting:
            with suppress(RuntimeError):  # the loop is closed: its listeners are gone, the transaction is stored
                loop.call_soon_threadsafe(news.set)

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
