"""One database as the store uses it: readers at any time, one writer at a time, and none after the disk has failed.

Writers take turns twice over: a lock of this object, so that threads queue here and not in the database, and the
database's own (``engine.writing``), which also keeps out other processes. Readers never wait.

After an I/O error on SQLite, or a failed sync of a model's file, what the disk holds and what the kernel shows may
differ. Nothing is written any more until the server is restarted and reads the journal from the disk again.
"""

import errno
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.engine import Engine

from ledger_server.store.engine import BUSY_TIMEOUT_MS, our_errors, reading, sqlite_code, writing
from ledger_server.store.errors import DiskNearlyFullError, StoreUnavailableError, SyncFailedError

_READING: Final = "the database cannot be read"
_LOG_WAIT_MS: Final = 500


class Database:
    """Connections to a database of the current revision.

    Args:
        engine: Of ``engine.make_engine``; closed by ``close``.
        data_dir: The server's folder.
        min_free_bytes: What ``require_room`` leaves free on the disk of that folder and of SQLite's file.
    """

    def __init__(self, engine: Engine, *, data_dir: Path, min_free_bytes: int = 0) -> None:
        self.engine, self.folder = engine, data_dir
        self.is_sqlite: bool = engine.dialect.name == "sqlite"
        self._folders = {data_dir, *([Path(str(engine.url.database)).parent] if self.is_sqlite else [])}
        self._min_free_bytes = min_free_bytes
        self._writer = threading.Lock()
        self._disk_failed = False
        self.on_written: Callable[[float], None] = lambda _: None
        """Called with the seconds for which a writer has kept out all others."""

    @contextmanager
    def reading(self, *, page_by_page: bool = False) -> Iterator[Connection]:
        """A read transaction; see ``engine.reading``."""
        with our_errors(_READING), reading(self.engine, page_by_page=page_by_page) as connection:
            yield connection

    @contextmanager
    def writing(self, *, durable: bool, alone: bool = True) -> Iterator[Connection]:
        """A write transaction that excludes all other writers; commits at the end of the block.

        Args:
            durable: Whether the commit waits for the disk; a later durable one makes it durable too.
            alone: If not, others may write at the same time where the database can.

        Raises:
            StoreUnavailableError: Nothing is written; or, when the connection was lost in the commit itself, it is not
                known whether it happened (``Store.append`` says how a writer finds out).
        """
        began_s: float | None = None
        try:
            with (
                self._writer if alone or self.is_sqlite else nullcontext(),
                self.noting_disk_failure(),
                our_errors("the database cannot be written"),
                writing(self.engine, durable=durable, alone=alone) as connection,
            ):
                began_s = time.perf_counter()
                yield connection
        finally:
            if alone and began_s is not None:
                self.on_written(time.perf_counter() - began_s)

    @contextmanager
    def noting_disk_failure(self) -> Iterator[None]:
        """Around whatever writes: after an I/O error or a failed sync, nothing more is written."""
        self.refuse_after_failure()
        try:
            yield
        except StoreUnavailableError as error:
            cause = error.__cause__
            is_io_error = sqlite_code(cause) == sqlite3.SQLITE_IOERR or getattr(cause, "errno", None) == errno.EIO
            if is_io_error or isinstance(error, SyncFailedError):
                self._disk_failed = True
            raise

    def refuse_after_failure(self) -> None:
        """See that the disk has not failed.

        Raises:
            StoreUnavailableError: It has.
        """
        if self._disk_failed:
            raise StoreUnavailableError(
                "the disk failed while the ledger was written; restart the server when the disk is sound"
            )

    def require_room(self, nbytes: int) -> None:
        """See that so many bytes can be written and ``min_free_bytes`` stay free. PostgreSQL's own disk is not seen.

        Raises:
            DiskNearlyFullError: They cannot.
        """
        if not self._min_free_bytes:
            return
        with our_errors("the free space is not known"):
            room = min(shutil.disk_usage(folder).free for folder in self._folders) - self._min_free_bytes
        # Pages that a pruning has freed are written again before SQLite's file grows.
        if room < nbytes and room + (self.reusable_bytes() or 0) < nbytes:
            raise DiskNearlyFullError(
                f"the disk is nearly full: with less than {self._min_free_bytes / 1e6:.0f} MB free nothing is written; "
                "free some space"
            )

    def storage_bytes(self) -> int:
        """Bytes on disk, log and indexes included."""
        if self.is_sqlite:
            file = str(self.engine.url.database)
            with our_errors(_READING):
                files = (Path(file + suffix) for suffix in ("", "-wal", "-shm"))
                return sum(path.stat().st_size for path in files if path.exists())
        with self.reading() as connection:
            return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())

    def log_bytes(self) -> int:
        """Bytes of SQLite's log; 0 on PostgreSQL, whose log is its own affair."""
        log = Path(f"{self.engine.url.database}-wal")
        return log.stat().st_size if self.is_sqlite and log.exists() else 0

    def reusable_bytes(self) -> int | None:
        """Free pages inside SQLite's file; None on PostgreSQL, which does not say."""
        if not self.is_sqlite:
            return None
        with self.reading() as connection:
            free_pages = int(connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())
            return free_pages * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())

    def compact(self) -> None:
        """Give the space of deleted rows back to the file system.

        Raises:
            StoreUnavailableError: The database is in use, or there is no room for a copy of it.
        """
        with self._writer, our_errors("the database cannot be rewritten"):
            self.refuse_after_failure()
            if self.is_sqlite:
                with closing(self.engine.raw_connection()) as connection:
                    connection.cursor().execute("VACUUM")
                    connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            else:
                with self.engine.connect() as connection:
                    connection.execute(text("VACUUM FULL model_pieces"))
                    connection.execute(text("VACUUM FULL attachments"))

    def shorten_log(self) -> None:
        """Give the room of SQLite's log back to the file system, unless a reader stands in the way.

        Raises:
            StoreUnavailableError: The disk has failed.
        """
        if not self.is_sqlite:
            return
        with self._writer, our_errors("the database's log cannot be shortened"):
            self.refuse_after_failure()
            with closing(self.engine.raw_connection()) as connection:
                cursor = connection.cursor()
                # It keeps writers out while it waits for readers, and a backup may read for minutes.
                cursor.execute(f"PRAGMA busy_timeout={_LOG_WAIT_MS}")
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")

    def close(self) -> None:
        """Close all connections, after a write in progress."""
        with self._writer:
            self.engine.dispose()
