"""A server's database as a ``LedgerSource``: read without the server, also while it runs."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from fl_core.dag.acts import encode_signed_acts
from fl_core.dag.transaction import Transaction
from fl_core.errors import GenesisError
from fl_core.types import Digest, TxId
from ledger_server.settings import Settings, load_settings
from ledger_server.store.evidence import ARCHIVED

if TYPE_CHECKING:
    from fl_core.verify import LedgerSource
    from ledger_server.store.journal import Store

_UNPACKED_BYTES: Final = 512 << 20
"""Packed models in memory: who goes through a whole ledger reads some dozens at a time in pieces, again and again."""


@contextmanager
def open_store_source(data_dir: Path | None, database_url: str | None) -> "Iterator[LedgerSource]":
    from ledger_server.store import open_store_of  # noqa: PLC0415 (SQLAlchemy: half a second)

    settings = load_settings(data_dir=data_dir, database_url=database_url)
    require_ledger(settings)
    with open_store_of(settings) as store:
        yield StoreSource(store)


def require_ledger(settings: Settings) -> None:
    """See that there is a database to open, so that looking for a ledger does not make an empty one.

    Raises:
        GenesisError: There is none in the data folder.
    """
    if settings.database_url is None and not (settings.data_dir / "ledger.sqlite3").exists():
        raise GenesisError(f"there is no ledger in {settings.data_dir} yet; {how_to_begin(settings)}")


def how_to_begin(settings: Settings) -> str:
    """What a person types where there is no ledger yet."""
    is_usual = settings.data_dir == Settings.model_fields["data_dir"].default
    where = "" if is_usual else f" --data-dir {shlex.quote(str(settings.data_dir))}"
    return (
        f"make one with: dag-acfl ledger init{where}, or take a server's with: dag-acfl ledger join URL{where}"
        f"{', or name the folder of one with --data-dir' if is_usual else ''}"
    )


class StoreSource:
    """A server's database, read without the server."""

    is_archive: bool = False

    def __init__(self, store: "Store") -> None:
        held = store.genesis()
        if held is None:
            raise GenesisError(
                "there is no ledger in this database yet; make one with: dag-acfl ledger init, "
                "or take a server's with: dag-acfl ledger join URL"
            )
        self.store: Store = store
        store.unpacked = LRUCache(_UNPACKED_BYTES, getsizeof=len)
        self.ledger: str = held[0].id

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        for stored in self.store.replay():
            yield stored.stored_id or stored.transaction.id, stored.transaction

    def attachment(self, digest: Digest) -> bytes | None:
        return self.store.attachment(digest) or None

    def is_archived(self, digest: Digest) -> bool:
        """Whether the database says that this evidence was archived."""
        return self.store.attachment(digest) == ARCHIVED

    def figures(self, transaction: str) -> bytes | None:
        """What the server has recorded of an update's model."""
        stored = self.store.transaction(TxId(transaction))
        return None if stored is None else stored.figures

    def model_size(self, digest: Digest) -> int | None:
        reader = self.store.open_model(digest)
        if reader is None:
            return None
        with reader:
            return reader.size

    @property
    def pruned(self) -> int:
        """How many models the database records as pruned."""
        return self.store.removal.count()

    def is_pruned(self, digest: Digest) -> bool:
        """Whether the database records this model as pruned."""
        return self.store.removal.is_pruned(digest)

    def acts(self) -> bytes:
        return encode_signed_acts(self.store.acts())

    def checkpoints(self) -> list[bytes]:
        """The checkpoints by which the server joined."""
        return self.store.checkpoints()

    def read_model(self, digest: Digest, start: int, stop: int) -> bytes:
        from ledger_server.store.errors import StoreInconsistentError  # noqa: PLC0415

        reader = self.store.open_model(digest)
        if reader is None:
            return b""
        with reader:
            try:
                return reader.read(start, stop)
            except StoreInconsistentError:
                if (whole := self.store.model(digest)) is not None:  # it was packed while it was read
                    return bytes(whole[start:stop])
                return b""  # a piece has gone; what is left hashes to something else, and verify says so
