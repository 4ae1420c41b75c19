"""What the journal asks of a place for models: content-addressed, idempotent, durable before the row that names it.

The journal decides what is there: a blob without a row (its transaction was refused, or a crash came between) costs
space and nothing else, until ``Store.sweep`` drops it. A blob is checked against its digest by whoever reads it, so a
blob store never hashes.

``put`` and ``drop`` are called inside a write transaction of the journal, which keeps out all other writers, in this
process and in others: so none can drop a blob between another's ``put`` and the commit of the row that names it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from sqlalchemy import Connection

from fl_core.models import Buffer
from fl_core.types import Digest
from ledger_server.store.protocol import ModelReader


class BlobStore(Protocol):
    """Models' bytes by digest. All methods may be called from many threads, and raise only ``StoreError``."""

    def prepare(self, digest: Digest, data: Buffer) -> None:
        """Do the slow part of ``put`` beforehand, without the writer's lock; may do nothing.

        Raises:
            StoreUnavailableError: Not stored.
            SyncFailedError: Not stored, and nothing more may be written before a restart.
        """

    def put(self, connection: Connection, digest: Digest, data: Buffer) -> None:
        """Store bytes unless they are there: durable at the latest with the commit of the transaction under way.

        Raises:
            StoreUnavailableError, SyncFailedError: As ``prepare``.
        """

    def get(self, digest: Digest, size: int) -> bytes | None:
        """All ``size`` bytes of a blob; None if it is not there."""

    def open(self, digest: Digest, size: int) -> ModelReader | None:
        """Random access to a blob; None if it is not there."""

    def drop(self, connection: Connection, digest: Digest) -> None:
        """Delete a blob; one that is not there is no error.

        Raises:
            StoreUnavailableError: It may be there still.
        """

    def digests(self) -> Iterator[Digest]:
        """All blobs, in any order; those that come or go meanwhile may be left out."""

    def owner(self) -> str | None:
        """The id of the journal whose models these are; None if none has claimed the place (``claim``).

        Raises:
            StoreLocationError: The place cannot be used as it is set up.
        """

    def claim(self, journal: str) -> None:
        """Write the journal's id durably beside the models, so that no other journal's sweep deletes them."""

    def check(self) -> None:
        """Ask whether the place can be used.

        Raises:
            StoreUnavailableError: It cannot.
        """

    def close(self) -> None:
        """Let go of what it holds; further closing does nothing."""


class BlobReader(ABC):
    """What all ``ModelReader`` have in common: bounds, and being closed.

    Args:
        size: Number of bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._is_closed = False

    def read(self, start: int, stop: int) -> bytes:
        """See ``ModelReader.read``."""
        if self._is_closed:
            raise ValueError("the model is closed")
        if not 0 <= start <= stop:
            raise ValueError(f"no bytes [{start}, {stop})")
        stop = min(stop, self.size)
        return self._read(start, stop) if start < stop else b""

    @abstractmethod
    def _read(self, start: int, stop: int) -> bytes:
        """The bytes ``[start, stop)``, at least one and all inside the model."""

    def close(self) -> None:
        """See ``ModelReader.close``."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
