"""Where models' bytes come from: memory first, then the store, and always as the digest says.

Nothing leaves here whose SHA-256 is not the digest it was asked for under: a flipped bit on disk becomes
an error, never an answer. A model that was pruned while it was read is an error of another kind: nothing is damaged.

What this process prunes is forgotten at once. ``dag-acfl ledger prune`` is another process, so what memory holds is
handed out for ``FRESH_S`` at most before the store is asked again whether it still may be.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import numpy as np

from fl_core.aggregation.protocol import ArraySource, VectorSource
from fl_core.errors import DagAcflError, ModelPrunedError, ModelUnknownError, UnknownError
from fl_core.models import Buffer, ModelLayout, flat
from fl_core.types import Digest, Vector32, digest_of
from ledger_server.model_cache import ModelCache
from ledger_server.store.errors import StoreInconsistentError
from ledger_server.store.protocol import ModelReader, Store

FRESH_S: Final = 5.0
"""A question to the store costs a tenth of a millisecond, and most models are fetched soon after they were made."""
_REST: Final = 1 << 20
"""Values read at a time where they are only hashed."""


class ModelCorruptError(DagAcflError):
    """Stored bytes no longer hash to their digest; the disk or the database has damaged them."""

    code = "model-corrupt"

    def __init__(self, digest: Digest) -> None:
        super().__init__(f"the stored model {digest[:16]}… is damaged; run: dag-acfl ledger verify")
        self.digest = digest


class ModelShelf:
    """Reads models of one layout.

    Args:
        store: Where they are kept.
        layout: Theirs.
        cache_bytes: Memory for those used lately.
        monotonic_s: A clock that only goes forward.
    """

    def __init__(
        self,
        store: Store,
        layout: ModelLayout,
        *,
        cache_bytes: int,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._layout, self._monotonic_s = store, layout, monotonic_s
        self._cache = ModelCache(cache_bytes)

    @property
    def cached_bytes(self) -> int:
        """Bytes that memory holds."""
        return self._cache.held_bytes

    def put(self, digest: Digest, data: Buffer) -> None:
        """Remember bytes that hash to ``digest``."""
        self._cache.put(digest, data, at_s=self._monotonic_s())

    def cached(self, digest: Digest) -> Buffer | None:
        """The bytes, if memory holds them; perhaps of a model that another process has pruned."""
        return self._cache.get(digest)

    def fresh(self, digest: Digest) -> Buffer | None:
        """The bytes, if memory holds them and they may be handed out without asking the store."""
        return self._cache.get(digest, since_s=self._monotonic_s() - FRESH_S)

    def forget(self, digests: Iterable[Digest]) -> None:
        """Let go of models that were pruned."""
        for digest in digests:
            self._cache.drop(digest)

    def find(self, digest: Digest) -> Buffer | None:
        """The bytes from memory or the store; None if neither has them, or not any more.

        Raises:
            ModelCorruptError: The store's bytes are damaged.
        """
        now_s = self._monotonic_s()
        if (data := self._cache.get(digest, since_s=now_s - FRESH_S)) is not None:
            return data
        if (data := self._cache.get(digest)) is not None:
            if self._store.is_pruned(digest):
                self._cache.drop(digest)
                return None
            self._cache.confirm(digest, at_s=now_s)
            return data
        stored = self._store.model(digest)
        if stored is None:
            return None
        if digest_of(stored) != digest:
            if self._store.is_pruned(digest):
                return None
            raise ModelCorruptError(digest)
        self._cache.put(digest, stored, at_s=now_s)
        return stored

    def vector(self, digest: Digest) -> Vector32:
        """The model's flat float32 vector.

        Raises:
            ModelPrunedError: It was pruned.
            ModelUnknownError: No such model here.
            ModelCorruptError: The store's bytes are damaged.
        """
        data = self.find(digest)
        if data is None:
            raise self.absent(digest)
        return flat(self._layout, data)

    def absent(self, digest: Digest) -> UnknownError:
        """Why a model is not here: it was pruned, or it never was."""
        if self._store.is_pruned(digest):
            return ModelPrunedError(
                f"model {digest[:16]}… was pruned here; its transaction and its proof stay", digest=digest
            )
        return ModelUnknownError(f"model {digest[:16]}… is not held here")

    @contextmanager
    def sources(self, digests: list[Digest]) -> Iterator[list[VectorSource]]:
        """The models as sources for an aggregator; those in the store are read in pieces, not held.

        Raises:
            ModelPrunedError: One was pruned, perhaps while it was read.
            ModelUnknownError: One is not here.
            ModelCorruptError: At the latest on leaving, when a model that was read does not hash to its digest.
        """
        with ExitStack() as stack:
            streamed: list[_StoredSource] = []
            sources: list[VectorSource] = []
            for digest in digests:
                if (data := self._cache.get(digest)) is not None:
                    sources.append(ArraySource(flat(self._layout, data)))
                elif not self._layout.is_float32:
                    sources.append(ArraySource(self.vector(digest)))
                else:
                    source = _StoredSource(self._open(digest, stack.callback), digest, self._layout)
                    streamed.append(source)
                    sources.append(source)
            try:
                yield sources
                for source in streamed:
                    source.check()
            except (ModelCorruptError, StoreInconsistentError) as error:
                for digest in digests:
                    if self._store.is_pruned(digest):
                        raise self.absent(digest) from error
                raise

    def _open(self, digest: Digest, on_exit: Callable[[Callable[[], None]], object]) -> ModelReader:
        reader = self._store.open_model(digest)
        if reader is None:
            raise self.absent(digest)
        on_exit(reader.close)
        return reader


class _StoredSource:
    """A stored float32 model, hashed on the way while it is read front to back, as one thread does."""

    def __init__(self, reader: ModelReader, digest: Digest, layout: ModelLayout) -> None:
        self._reader, self._digest = reader, digest
        self._start = len(layout.prefix)
        self._hash = hashlib.sha256(reader.read(0, self._start))
        self._hashed, self._used = 0, False
        self.size = layout.num_parameters

    def read(self, start: int, stop: int) -> Vector32:
        data = self._reader.read(self._start + 4 * start, self._start + 4 * stop)
        if len(data) != 4 * (stop - start):
            raise ModelCorruptError(self._digest)
        if start == self._hashed:
            self._hash.update(data)
            self._hashed = stop
        self._used = True
        return np.frombuffer(data, "<f4")

    def check(self) -> None:
        if not self._used:
            return
        while self._hashed < self.size:  # what was read in another order, or not at all
            self.read(self._hashed, min(self._hashed + _REST, self.size))
        if self._hash.hexdigest() != self._digest:
            raise ModelCorruptError(self._digest)
