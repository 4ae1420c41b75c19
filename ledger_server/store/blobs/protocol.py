"""What the journal asks of a place for models: content-addressed, idempotent, durable before the row that names it.

The journal decides what is there: a blob without a row (its transaction was refused, or a crash came between) costs
space and nothing else, until ``Store.sweep`` drops it. A blob is checked against its digest by whoever reads it, so a
blob store never hashes.

``put`` and ``drop`` are called inside a write transaction of the journal, which keeps out all other writers, in this
process and in others: so none can drop a blob between another's ``put`` and the commit of the row that names it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Self

from sqlalchemy import Connection

from fl_core.models import Buffer
from fl_core.types import Digest


class ModelReader(ABC):
    """Random access to one model's bytes; close it, or use it in a ``with``. Threads may share it.

    Args:
        size: Number of bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._is_closed = False

    def read(self, start: int, stop: int) -> bytes:
        """The bytes ``[start, stop)``; as with a slice, what lies beyond the end is left out.

        Raises:
            ValueError: ``start`` is negative or beyond ``stop``, or the reader is closed.
        """
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
        """Let go of what it holds; further closing does nothing."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryReader(ModelReader):
    """A model that is in memory."""

    def __init__(self, data: Buffer) -> None:
        super().__init__(len(data))
        self._data = memoryview(data)

    def _read(self, start: int, stop: int) -> bytes:
        return bytes(self._data[start:stop])


class BlobStore(ABC):
    """Models' bytes by digest. All methods may be called from many threads, and raise only ``StoreError``.

    Attributes:
        is_shared: Whether other servers, with journals of their own, keep their models there as well: then what no
            transaction holds may be another's.
    """

    is_shared: bool = False

    def others(self, digest: Digest, size: int) -> bytes | None:  # noqa: ARG002 -- most places are one server's alone
        """The bytes of a blob that another server has put, and that hash to their digest; None: there are none."""
        return None

    def prepare(self, digest: Digest, data: Buffer) -> None:  # noqa: B027 -- a place may have nothing to prepare
        """Do the slow part of ``put`` beforehand, without the writer's lock.

        Raises:
            StoreUnavailableError: Not stored.
            SyncFailedError: Not stored, and nothing more may be written before a restart.
        """

    @abstractmethod
    def put(self, connection: Connection, digest: Digest, data: Buffer) -> None:
        """Store bytes unless they are there: durable at the latest with the commit of the transaction under way.

        Args:
            connection: Of the transaction under way.
            digest: Of the bytes; no transaction holds them, or ever did.
            data: The bytes.

        Raises:
            StoreUnavailableError, SyncFailedError: As ``prepare``.
        """

    @abstractmethod
    def replace(self, connection: Connection, digest: Digest, data: Buffer) -> None:
        """Store other bytes in the place of those that are there: a reader finds these or those, whole.

        Raises:
            StoreUnavailableError, SyncFailedError: As ``prepare``.
        """

    @abstractmethod
    def get(self, digest: Digest, size: int) -> bytes | None:
        """All bytes of a blob, at most ``size``; None if it is not there."""

    def small(self, digests: Collection[Digest]) -> dict[Digest, bytes]:  # noqa: ARG002 -- a place may have no faster way
        """Those of several blobs that are held and whole, small, and read faster together than one by one."""
        return {}

    @abstractmethod
    def open(self, digest: Digest, size: int) -> ModelReader | None:
        """Random access to a blob; None if it is not there."""

    def link(self, digest: Digest) -> str | None:  # noqa: ARG002 -- most places have none
        """A URL at which whoever holds it can fetch a blob for some minutes; None where the place gives none."""
        return None

    @abstractmethod
    def drop(self, connection: Connection, digest: Digest) -> None:
        """Delete a blob; one that is not there is no error.

        Raises:
            StoreUnavailableError: It may be there still.
        """

    @abstractmethod
    def digests(self) -> Iterator[Digest]:
        """All blobs, in any order; those that come or go meanwhile may be left out."""

    def settled(self) -> Iterator[Digest]:
        """Of ``digests``, those that a sweep may drop where no transaction holds them."""
        return self.digests()

    def dropped(self) -> Iterable[Digest]:
        """What was dropped here, and is there still since other servers of a shared place have not dropped it."""
        return ()

    def take_back(self, digest: Digest) -> None:  # noqa: B027 -- most places have nothing to take back
        """Undo a drop of one of those, if it is there still.

        Raises:
            StoreUnavailableError: It is being deleted just now.
        """

    def collect(self, holds: Callable[[Digest], bool]) -> int:  # noqa: ARG002 -- most places are one journal's
        """Delete what all servers of a shared place have dropped, less what this one's journal ``holds``; how many."""
        return 0

    def owner(self) -> str | None:
        """The id of the journal whose models these are; None if none has claimed the place (``claim``).

        Raises:
            StoreLocationError: The place cannot be used as it is set up.
        """
        return None

    def claim(self, journal: str, *, ledger: str) -> None:  # noqa: B027 -- the rows of a database need no claim
        """Write the journal's id durably beside the models, so that no other journal's sweep deletes them.

        Args:
            journal: Its id.
            ledger: The ledger's id: a shared place takes journals of one ledger.

        Raises:
            StoreLocationError: It is another ledger's, or not shared.
        """

    def check(self) -> None:  # noqa: B027 -- the journal asks its own database itself
        """Ask whether the place can be used.

        Raises:
            StoreUnavailableError: It cannot.
        """
