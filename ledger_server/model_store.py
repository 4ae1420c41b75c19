"""Models by digest: from memory, else from the store; bytes that do not hash to their digest are never handed out.

A flipped bit on disk becomes a ``ModelCorruptError``. Memory may outlive the store for a moment: a model that another
process prunes (``dag-acfl ledger prune``) is served from memory until this one hears of that.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import numpy as np
from cachetools import LRUCache

from fl_core.aggregation.protocol import ArraySource, VectorSource
from fl_core.errors import DagAcflError, ModelPrunedError, ModelUnknownError, UnknownError
from fl_core.models import Buffer, ModelLayout, flat
from fl_core.types import Digest, Vector32, digest_of
from ledger_server.store.blobs.protocol import ModelReader
from ledger_server.store.errors import StoreInconsistentError
from ledger_server.store.journal import Store

_CHECKED_VALUES: Final = 1 << 20
"""Values read at a time where they are only hashed."""
_TOGETHER_BYTES: Final = 16 << 20
"""Models that are read by one question to the store, 64 of 0.1 MB and more."""


class ModelCorruptError(DagAcflError):
    """Stored bytes no longer hash to their digest; the disk or the database has damaged them."""

    code = "model-corrupt"

    def __init__(self, digest: Digest) -> None:
        super().__init__(f"the stored model {digest[:16]}… is damaged; run: dag-acfl ledger verify")
        self.digest = digest


class CachedModelStore:
    """The models of one ledger, in front of its store; the most recently used stay in memory. Thread-safe.

    Args:
        store: Where they are kept.
        layout: The ledger's model layout.
        cache_bytes: Memory for the most recently used models; a larger model is not kept.
    """

    def __init__(self, store: Store, layout: ModelLayout, *, cache_bytes: int) -> None:
        self._store, self._layout = store, layout
        self._lock = threading.Lock()
        self._cache: LRUCache[Digest, Buffer] = LRUCache(cache_bytes, getsizeof=len)
        self.pruned_times: int = 0
        """How often ``forget_pruned`` was called: what was read before the last time may have been pruned since."""

    @property
    def cached_bytes(self) -> int:
        return int(self._cache.currsize)

    def put(self, digest: Digest, data: Buffer, *, read_at: int | None = None) -> None:
        """Keep bytes that hash to ``digest`` in memory.

        Args:
            digest: Their own.
            data: They.
            read_at: ``pruned_times`` before they were read, or what they are the average of; None: they are new.
        """
        with self._lock, suppress(ValueError):  # larger than the whole cache
            if read_at in (None, self.pruned_times):
                self._cache[digest] = data

    def cached(self, digest: Digest) -> Buffer | None:
        """The model if it is in memory; no waiting for a disk."""
        with self._lock:
            return self._cache.get(digest)

    def forget(self, digests: Iterable[Digest]) -> None:
        """Let go of these."""
        with self._lock:
            for digest in digests:
                self._cache.pop(digest, None)

    def forget_pruned(self, *, averages: bool) -> None:
        """Let go of the models that were pruned, by whichever process.

        Args:
            averages: Of all averages, too: once something is erased, one tells it to who knows the other models.
        """
        with self._lock:
            self.pruned_times += 1
            cached = set(self._cache)
        removal = self._store.removal
        self.forget(cached.difference(removal.held_among(cached)) if averages else removal.pruned_among(cached))

    def get(self, digest: Digest, *, keep: bool = True) -> Buffer | None:
        """The model from memory or the store; None if it was pruned or never here.

        Args:
            digest: Its own.
            keep: Whether it is likely to be asked for again.

        Raises:
            ModelCorruptError: The store's bytes are damaged.
        """
        if (data := self.cached(digest)) is not None:
            return data
        read_at = self.pruned_times
        stored = self._store.model(digest)
        if stored is None:
            return None
        if digest_of(stored) != digest:
            if self._store.removal.is_pruned(digest):  # while it was read
                return None
            raise ModelCorruptError(digest)
        if keep:
            self.put(digest, stored, read_at=read_at)
        return stored

    def read_together(self, digests: Iterable[Digest]) -> None:
        """Have small models in memory, read faster than one by one where the store can; some may lack afterwards.

        None is read where all of them would fill memory.
        """
        missing = [digest for digest in digests if self.cached(digest) is None]
        if not missing or len(missing) * self._layout.nbytes > _TOGETHER_BYTES:
            return
        read_at = self.pruned_times
        for digest, data in self._store.small_models(missing).items():
            if digest_of(data) == digest:  # else whoever asks for it finds out
                self.put(digest, data, read_at=read_at)

    def vector(self, digest: Digest, *, keep: bool = True) -> Vector32:
        """The model's flat float32 vector; ``keep`` as for ``get``.

        Raises:
            ModelPrunedError: It was pruned.
            ModelUnknownError: No such model here.
            ModelCorruptError: The store's bytes are damaged.
        """
        data = self.get(digest, keep=keep)
        if data is None:
            raise self.missing(digest)
        return flat(self._layout, data)

    def missing(self, digest: Digest) -> UnknownError:
        """The error for a model that is not here: it was pruned, or it never was here."""
        if self._store.removal.is_pruned(digest):
            return ModelPrunedError(
                f"model {digest[:16]}… was pruned here; its transaction and its proof stay", digest=digest
            )
        return ModelUnknownError(f"model {digest[:16]}… is not held here")

    def _at_hand(self, digest: Digest, beside: Mapping[Digest, Vector32]) -> Vector32 | None:
        values = beside.get(digest)
        if values is None and (data := self.cached(digest)) is not None:
            return flat(self._layout, data)
        return values

    @contextmanager
    def sources(
        self, digests: list[Digest], *, beside: Mapping[Digest, Vector32], whole: bool = False
    ) -> Iterator[list[VectorSource]]:
        """The models as sources for an aggregator; those in the store are read in pieces, not held.

        Args:
            digests: Which.
            beside: The values of models that are about to be stored.
            whole: Read them whole and hold them: one may be packed while its pieces are read.

        Raises:
            ModelPrunedError: One was pruned, perhaps while it was read.
            ModelUnknownError: One is not here.
            ModelCorruptError: At the latest on leaving, when a model that was read does not hash to its digest.
        """
        with ExitStack() as stack:
            sources: list[VectorSource] = []
            for digest in digests:
                if (values := self._at_hand(digest, beside)) is not None:
                    sources.append(ArraySource(values))
                elif whole or not self._layout.is_float32:
                    sources.append(ArraySource(self.vector(digest)))
                elif (reader := self._store.open_model(digest)) is not None:
                    sources.append(_StoredSource(stack.enter_context(reader), digest, self._layout))
                else:
                    raise self.missing(digest)
            try:
                yield sources
                for source in sources:
                    if isinstance(source, _StoredSource):
                        source.check()
            except (ModelCorruptError, StoreInconsistentError) as error:
                for digest in digests:
                    if self._store.removal.is_pruned(digest):
                        raise self.missing(digest) from error
                raise


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
            self.read(self._hashed, min(self._hashed + _CHECKED_VALUES, self.size))
        if self._hash.hexdigest() != self._digest:
            raise ModelCorruptError(self._digest)
