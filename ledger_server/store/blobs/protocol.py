"""What the journal asks of a place for large models: durable before the row that names them.

The journal decides what is there: bytes without a row are left over from a crash, cost space, and nothing else.
They are checked against their digest by whoever reads them, so a blob store never hashes.
"""

from dataclasses import dataclass
from typing import Protocol

from fl_core.models import Buffer
from fl_core.types import Digest
from ledger_server.store.protocol import ModelReader


@dataclass(frozen=True, slots=True)
class Place:
    """Where a blob lies in a store that goes by place."""

    segment: int
    start: int


@dataclass(frozen=True, slots=True)
class Blob:
    """One blob as its row names it; ``place`` is None where the digest says it all (a bucket)."""

    digest: Digest
    size: int
    place: Place | None


class BlobStore(Protocol):
    """Models' bytes. All methods may be called from many threads, and raise only ``StoreError``."""

    def put(self, digest: Digest, data: Buffer) -> Place | None:
        """Store bytes durably: once this returns, a power cut does not take them.

        Raises:
            StoreUnavailableError: Not stored.
            SyncFailedError: Not stored, and nothing more may be before a restart.
        """

    def get(self, blob: Blob) -> bytes | None:
        """All bytes of a blob; None if they are gone."""

    def open(self, blob: Blob) -> ModelReader | None:
        """Random access to a blob; None if it is gone."""

    def drop(self, blob: Blob) -> None:
        """Give a blob's space back, durably; it must not be asked for again. One that is gone is no error.

        Raises:
            StoreUnavailableError: Its space may be taken still.
            SyncFailedError: That, and nothing more may be written before a restart.
        """

    def stored_bytes(self) -> int:
        """Space that its files take on this machine's disk; what goes by its digest the journal counts itself."""

    def check(self) -> None:
        """Ask whether the place can be used.

        Raises:
            StoreUnavailableError: It cannot.
        """

    def close(self) -> None:
        """Let go of what it holds; further closing does nothing."""
