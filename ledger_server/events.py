"""Live events: what was admitted, to everyone who listens, without ever waiting for a listener.

A listener that falls behind by more than its queue loses its place: its stream ends, and it comes back
with ``Last-Event-ID`` (an arrival number), from where the journal tells it what it missed.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

QUEUE_LENGTH: Final = 256


class Announcements:
    """Tells listeners the arrival number of each admitted transaction."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Queue[int | None], asyncio.AbstractEventLoop] = {}
        self._closed = False

    def listeners(self) -> int:
        """How many listen now."""
        with self._lock:
            return len(self._listeners)

    def announce(self, arrival: int) -> None:
        """Tell everyone; callable from any thread."""
        with self._lock:
            listeners = list(self._listeners.items())
        for queue, loop in listeners:
            with suppress(RuntimeError):  # the loop is closed: its listeners are gone, the transaction is stored
                loop.call_soon_threadsafe(_offer, queue, arrival)

    def close(self) -> None:
        """End every listener's stream, and those of who comes later; callable from any thread."""
        with self._lock:
            self._closed = True
            listeners = list(self._listeners.items())
        for queue, loop in listeners:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_end, queue)

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[int | None]]:
        """A queue of arrival numbers for one listener; None ends it. Call inside the event loop."""
        queue: asyncio.Queue[int | None] = asyncio.Queue(QUEUE_LENGTH + 1)
        with self._lock:
            self._listeners[queue] = asyncio.get_running_loop()
            if self._closed:
                _end(queue)
        try:
            yield queue
        finally:
            with self._lock:
                self._listeners.pop(queue, None)


def _offer(queue: asyncio.Queue[int | None], arrival: int) -> None:
    if queue.qsize() < QUEUE_LENGTH:
        queue.put_nowait(arrival)
    else:
        _end(queue)


def _end(queue: asyncio.Queue[int | None]) -> None:
    if not queue.full():
        queue.put_nowait(None)
