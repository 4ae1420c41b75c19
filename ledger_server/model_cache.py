"""Model bytes in memory: recently published models and aggregates, least recently used out first.

Content-addressed, so an entry's bytes can never be stale; whether the model may still be handed out is another
question, so each entry remembers when that was last known. ``ComputeOnce`` sees to it that equal work that is
asked for at the same time is done by one thread while the others wait for its result.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from fl_core.models import Buffer
from fl_core.types import Digest

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ModelCache:
    """At most ``capacity_bytes`` of model bytes; one model larger than that is not kept."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0
        self._lock = threading.Lock()
        self._models: OrderedDict[Digest, Buffer] = OrderedDict()
        self._confirmed_s: dict[Digest, float] = {}

    def get(self, digest: Digest, *, since_s: float = -math.inf) -> Buffer | None:
        """The model, which thereby becomes the most recently used.

        Args:
            digest: Which.
            since_s: None too when it was last put or confirmed before that.
        """
        with self._lock:
            data = self._models.get(digest)
            if data is None or self._confirmed_s[digest] < since_s:
                return None
            self._models.move_to_end(digest)
            return data

    def confirm(self, digest: Digest, *, at_s: float) -> None:
        """Say that the model, if it is still here, might be handed out at this time."""
        with self._lock:
            if digest in self._models:
                self._confirmed_s[digest] = at_s

    def drop(self, digest: Digest) -> None:
        """Let go of a model."""
        with self._lock:
            if (data := self._models.pop(digest, None)) is not None:
                del self._confirmed_s[digest]
                self.held_bytes -= len(data)

    def put(self, digest: Digest, data: Buffer, *, at_s: float = 0.0) -> None:
        """Keep a model that might be handed out at this time, pushing out the least recently used ones."""
        if len(data) > self.capacity_bytes:
            return
        with self._lock:
            self._confirmed_s[digest] = at_s
            if digest in self._models:
                self._models.move_to_end(digest)
                return
            self._models[digest] = data
            self.held_bytes += len(data)
            while self.held_bytes > self.capacity_bytes:
                oldest, dropped = self._models.popitem(last=False)
                del self._confirmed_s[oldest]
                self.held_bytes -= len(dropped)


class ComputeOnce(Generic[K, V]):
    """Runs a computation per key once at a time; those who ask meanwhile share its outcome."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[K, Future[V]] = {}

    def __call__(self, key: K, compute: Callable[[], V]) -> V:
        """The result for ``key``: computed here, or by the thread that is at it; its error is everyone's."""
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
