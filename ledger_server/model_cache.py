"""Model bytes in memory, and one computation for those who ask for the same at the same time."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

from cachetools import LRUCache

from fl_core.models import Buffer
from fl_core.types import Digest

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ModelCache:
    """The most recently used models, at most ``capacity_bytes`` of them; a larger model is not kept. Thread-safe."""

    def __init__(self, capacity_bytes: int) -> None:
        self._lock = threading.Lock()
        self._models: LRUCache[Digest, Buffer] = LRUCache(capacity_bytes, getsizeof=len)

    @property
    def held_bytes(self) -> int:
        """Bytes of all models in the cache."""
        return int(self._models.currsize)

    def get(self, digest: Digest) -> Buffer | None:
        """The model, which becomes the most recently used; None if it is not here."""
        with self._lock:
            return self._models.get(digest)

    def put(self, digest: Digest, data: Buffer) -> None:
        """Keep a model, evicting the least recently used ones."""
        with self._lock, suppress(ValueError):  # larger than the whole cache
            self._models[digest] = data

    def drop(self, digest: Digest) -> None:
        """Forget a model."""
        with self._lock:
            self._models.pop(digest, None)


class SingleFlight(Generic[K, V]):
    """Runs a computation per key once at a time; threads that ask meanwhile wait and share its result or error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[K, Future[V]] = {}

    def __call__(self, key: K, compute: Callable[[], V]) -> V:
        """The result of ``compute`` for ``key``: computed here, or by the thread that is already at it."""
        with self._lock:
            running = self._running.get(key)
            if running is None:
                mine: Future[V] = Future()
                self._running[key] = mine
        if running is not None:
            return running.result()
        try:
            result = compute()
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(result)
            return result
        finally:
            with self._lock:
                del self._running[key]
