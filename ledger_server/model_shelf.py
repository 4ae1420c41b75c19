"""Where models' bytes come from: memory first, then the store, and always as the digest says.

Nothing leaves here whose SHA-256 is not the digest it was asked for under: a flipped bit on disk becomes
an error, never an answer. A model that was pruned while it was read is an error of another kind: nothing is damaged.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import numpy as np

from fl_core.aggregation.protocol import ArraySource, VectorSource
from fl_core.errors import DagAcflError, ModelPrunedError, ModelUnknownError, UnknownError
from fl_core.types import Digest, Vector32, digest_of
from fl_core.weights import Buffer, ModelLayout, flat
from ledger_server.model_cache import ModelCache
from ledger_server.store.errors import StoreInconsistentError
from ledger_server.store.protocol import ModelReader, Store

_REST: Final = 1 << 20
"""Values read at a time where they are only hashed."""


class ModelCorruptError(DagAcflError):
    """Stored bytes no longer hash to their digest; the disk or the database has damaged them."""

    code = "model-corrupt"

    def __init__(self, digest: Digest) -> None:
        super().__init__(f"the stored model {digest[:16]}… is damaged; run: dag-acfl ledger verify")
        self.digest = digest


class ModelShelf:
    """Reads models of one layout."""

    def __init__(self, store: Store, layout: ModelLayout, *, cache_bytes: int) -> None:
        self._store, self._layout = store, layout
        self._cache = ModelCache(cache_bytes)

    @property
    def cached_bytes(self) -> int:
        """Bytes that memory holds."""
        return self._cache.held_bytes

    def put(self, digest: Digest, data: Buffer) -> None:
        """Remember bytes that hash to ``digest``."""
        self._cache.put(digest, data)

    def cached(self, digest: Digest) -> Buffer | None:
        """The bytes, if memory holds them."""
        return self._cache.get(digest)

    def find(self, digest: Digest) -> Buffer | None:
        """The bytes from memory or the store; None if neither has them.

        Raises:
            ModelCorruptError: The store's bytes are damaged.
        """
        if (data := self._cache.get(digest)) is not None:
            return data
        stored = self._store.model(digest)
        if stored is None:
            return None
        if digest_of(stored) != digest:
            if self._store.is_pruned(digest):
                return None
            raise ModelCorruptError(digest)
        self._cache.put(digest, stored)
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
