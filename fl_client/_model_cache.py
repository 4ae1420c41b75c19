"""Models that went through a client, in memory."""

import threading
from collections import OrderedDict

from fl_core.models import Buffer
from fl_core.types import Digest


class ModelCache:
    """Models by digest, the most recently used ones, up to a number of bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._held = capacity, 0
        self._lock = threading.Lock()
        self._models: OrderedDict[Digest, memoryview] = OrderedDict()

    def get(self, digest: Digest) -> memoryview | None:
        with self._lock:
            if digest in self._models:
                self._models.move_to_end(digest)
            return self._models.get(digest)

    def put(self, digest: Digest, model: Buffer) -> None:
        view = memoryview(model).toreadonly()
        with self._lock:
            if digest in self._models or len(view) > self._capacity:
                return
            self._models[digest] = view
            self._held += len(view)
            while self._held > self._capacity:
                _, dropped = self._models.popitem(last=False)
                self._held -= len(dropped)
