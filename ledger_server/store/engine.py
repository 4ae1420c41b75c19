"""Connections that keep promises, and a driver's exceptions in our own words.

Decides how SQLite and PostgreSQL are spoken to: what is set on each connection is asked for again and must be
so, because both databases ignore some settings silently. A setting that is not in force is no warning but a
``StoreLocationError``: durability is not a preference.
"""

import os
import select
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from ledger_server.store.errors import (
    StoreError,
    StoreInconsistentError,
    StoreLocationError,
    StoreUnavailableError,
)

T = TypeVar("T")

PAGE_BYTES: Final = 8192
"""SQLite's page size for a new file: 13 MB go in a tenth faster than with its own 4,096, small rows as fast."""
LOG_BYTES: Final = 8 << 20
"""SQLite copies its log into the file at this size: small enough that no commit pays for a long copy (measured,
0.4 MB in the database: slowest of 60 12-20 ms, against 20-67 at SQLite's 1,000 pages)."""
BUSY_TIMEOUT_MS: Final = 10_000
"""How long a writer waits for another process's lock."""
_POOL_SIZE: Final = 8
_POOL_OVERFLOW: Final = 56
_POOL_TIMEOUT_S: Final = 30
_CONNECT_TIMEOUT_S: Final = 10
_QUIET_S: Final = 10
"""A connection that was not used for so long may have been forgotten on the way to PostgreSQL, and is asked first."""
_ADVISORY_LOCK: Final = 0x6461_6761_6366_6C01
"""Name of the writer's lock on PostgreSQL ("dagacfl" 0x01); such locks belong to one database."""

_PRAGMAS: Final[Mapping[str, tuple[str, object]]] = {
    # name: (value to set, value that must come back)
    "busy_timeout": (str(BUSY_TIMEOUT_MS), BUSY_TIMEOUT_MS),
    "journal_mode": ("WAL", "wal"),
    "synchronous": ("FULL", 2),
    "foreign_keys": ("ON", 1),
    "recursive_triggers": ("ON", 1),
    "trusted_schema": ("OFF", 0),
    # SQLite undoes a failed statement from a file of its own, made and removed with every publication; or from memory.
    "temp_store": ("MEMORY", 2),
}

_SQLITE_FAULTS: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_BUSY: "another process holds the database's lock",
    sqlite3.SQLITE_LOCKED: "another connection holds a table's lock",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_READONLY: "the database cannot be written; check the permissions of file, folder and disk",
    sqlite3.SQLITE_IOERR: "the disk failed; see the system's log",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged; restore it from a backup or from another server",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened; check that its folder exists and can be written",
}


def parse_url(database_url: str) -> URL:
    """A database's address, with the driver that we use.

    Raises:
        StoreLocationError: Not a URL of SQLite with a file, or of PostgreSQL. The URL, which may hold a
            password, is not repeated.
    """
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError):
        raise StoreLocationError(
            "the database URL cannot be read; it looks like sqlite:///folder/ledger.sqlite3 "
            "or postgresql+psycopg://user:password@host/name"
        ) from None
    if url.drivername in {"sqlite", "sqlite+pysqlite"}:
        if not url.database or url.database == ":memory:" or url.query:
            raise StoreLocationError("a ledger needs a file: write sqlite:///folder/ledger.sqlite3")
        return url
    if url.drivername in {"postgresql", "postgres", "postgresql+psycopg"}:
        return url.set(drivername="postgresql+psycopg")
    raise StoreLocationError(f"no ledger in {url.drivername!r}: write sqlite:/// or postgresql+psycopg://")


def show_url(url: URL) -> str:
    """The address for a person: no password, no query."""
    return url.set(query={}).render_as_string(hide_password=True)


def make_engine(url: URL) -> Engine:
    """A pool of connections, each of which is as ``_PRAGMAS`` (or its PostgreSQL counterpart) says.

    Raises:
        StoreLocationError: The driver is not installed.
    """
    options: dict[str, Any] = {
        "hide_parameters": True,
        "poolclass": QueuePool,
        "pool_size": _POOL_SIZE,
        "max_overflow": _POOL_OVERFLOW,
        "pool_timeout": _POOL_TIMEOUT_S,
    }
    try:
        if url.get_backend_name() == "sqlite":
            engine = create_engine(url, connect_args={"check_same_thread": False}, **options)
            event.listen(engine, "do_connect", _make_private)
            event.listen(engine, "connect", _set_up_sqlite)
            return engine
        # psycopg would send a BEGIN of its own and wait for it: ours is in ``reading`` and ``writing``.
        engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=_postgresql_arguments(url), **options)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise StoreLocationError("PostgreSQL needs its driver; run: pip install 'psycopg[binary]'") from None
    except (ArgumentError, TypeError, ValueError):
        raise StoreLocationError(f"the database URL {show_url(url)} has an option that is not known") from None
    event.listen(engine, "connect", _set_up_postgresql)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", _check_connection)
    return engine


def _postgresql_arguments(url: URL) -> dict[str, Any]:
    from psycopg import Cursor  # noqa: PLC0415 (an extra, which SQLite does not need)
    from psycopg.pq import Format  # noqa: PLC0415

    class BinaryCursor(Cursor[Any]):
        """Asks for results as bytes, not as text: a model comes in half the bytes and a third of the time.

        Several statements without parameters may be one string, in one round trip; they end without a result.
        """

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.format = Format.BINARY

        def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
            if not params and ";" in query:
                options = {"binary": False, "prepare": False}
            return super().execute(query, params, **options)

    ours = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "application_name": "dag-acfl",
        "cursor_factory": BinaryCursor,
        "client_encoding": "utf8",  # of a database in SQL_ASCII, psycopg would give text as bytes
    }
    return {name: value for name, value in ours.items() if name not in url.query}


def _make_private(_dialect: object, _record: object, arguments: list[str], _named: object) -> None:
    """Make SQLite's file, if it is not there, for this user only; its log gets the same permissions."""
    # Never opened if it is there: closing it would drop the locks of all this process's connections, and the next
    # process that ends its own would take SQLite's log away under them, with all that is written from then on.
    with suppress(FileExistsError):
        os.close(os.open(arguments[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _set_up_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # Python's own BEGIN would be a deferred one, and none before DDL: ours is in ``reading`` and ``writing``.
    connection.isolation_level = None
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    log_pages = LOG_BYTES // int(connection.execute("PRAGMA page_size").fetchone()[0])
    for name, (value, expected) in (*_PRAGMAS.items(), ("wal_autocheckpoint", (str(log_pages), log_pages))):
        _set_pragma(connection, name, value)
        # SQLite answers some PRAGMAs only when asked again; fetching is also what lets an I/O error show.
        found = connection.execute(f"PRAGMA {name}").fetchone()
        if found != (expected,):
            raise StoreLocationError(
                f"SQLite does not keep {name}={value} here (it says {found}); use a local disk, not a network share"
            )


def _set_pragma(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Set one, waiting for a server that starts at the same time: the change to WAL does not wait by itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA {name}={value}").fetchall()
        except sqlite3.OperationalError as error:
            if sqlite_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _set_up_postgresql(connection: Any, entry: ConnectionPoolEntry) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("SHOW synchronous_commit")
        if cursor.fetchone() != ("on",):
            raise StoreLocationError("PostgreSQL does not keep synchronous_commit = on")
    connection.commit()
    _note_use(connection, entry)


def _note_use(_connection: object, entry: ConnectionPoolEntry) -> None:
    entry.info["used_at_s"] = time.monotonic()


def _check_connection(connection: Any, entry: ConnectionPoolEntry, _: object) -> None:
    """See that PostgreSQL is still there; without a round trip, as it says nothing unasked but that it ends."""
    said = select.poll()
    said.register(connection.fileno(), select.POLLIN)
    if said.poll(0) or time.monotonic() - entry.info["used_at_s"] > _QUIET_S:
        try:
            connection.execute("SELECT 1")
        except connection.Error as error:
            raise InvalidatePoolError("PostgreSQL has ended the connection") from error


@contextmanager
def reading(engine: Engine, *, page_by_page: bool = False) -> Iterator[Connection]:
    """A transaction that only reads: of SQLite one snapshot, of PostgreSQL one for each statement.

    Args:
        engine: Of ``make_engine``.
        page_by_page: Whether a statement's rows come so, and not at once.
    """
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite" or page_by_page:
            _run(connection, "BEGIN")
        yield connection


@contextmanager
def writing(engine: Engine, *, durable: bool = True, alone: bool = True) -> Iterator[Connection]:
    """A transaction that excludes every other writer of this database, in any process; commits at the end.

    Args:
        engine: Of ``make_engine``.
        alone: If not, PostgreSQL lets it go on beside others; SQLite knows one writer at a time only.
        durable: Whether the commit waits for the disk. If not, a power cut may undo the newest such transactions;
            never one that was durable, and never half of one.
    """
    with engine.connect() as connection, connection.begin():
        if engine.dialect.name == "sqlite":
            # NORMAL writes the log without waiting for the disk; the next FULL commit makes it durable with its own.
            synchronous = "FULL" if durable else "NORMAL"
            if connection.info.get("synchronous") != synchronous:
                _run(connection, f"PRAGMA synchronous={synchronous}")
                connection.info["synchronous"] = synchronous
            _run(connection, "BEGIN IMMEDIATE")
        else:
            first = ["BEGIN"]
            if not durable:
                first.append("SET LOCAL synchronous_commit = off")
            if alone:
                first.append(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
            connection.exec_driver_sql(";".join(first) + ";")
        yield connection


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """All of them in order, at most ``size`` at a time: a statement takes only so many parameters."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


@contextmanager
def together(connection: Connection) -> Iterator[None]:
    """Send the block's statements, which have no results, to PostgreSQL one behind the other; wait at its end for all.

    Each round trip hands the interpreter to another thread, and a writer has all others waiting.
    """
    if connection.dialect.name == "sqlite":
        yield
    else:
        from psycopg import Pipeline  # noqa: PLC0415 (an extra, which SQLite does not need)

        driver: Any = connection.connection.driver_connection
        try:
            with (
                driver.pipeline() if Pipeline.is_supported() else nullcontext()
            ):  # not by PostgreSQL 13's client library
                yield
        except driver.Error as error:
            raise _from_postgresql(error, doing="the database cannot be written") from error


def _run(connection: Connection, statement: str) -> None:
    """By SQLite's driver itself: SQLAlchemy takes as long for a BEGIN as for a statement with results."""
    connection.connection.cursor().execute(statement)


@contextmanager
def our_errors(doing: str) -> Iterator[None]:
    """Turn what the driver raises inside the block into a ``StoreError`` whose message begins with ``doing``."""
    try:
        yield
    except StoreError:
        raise
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise _as_store_error(error, doing=doing) from error


def _as_store_error(error: Exception, *, doing: str) -> StoreError:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if isinstance(cause, StoreError):
        return cause
    if isinstance(error, PoolTimeoutError):
        return StoreUnavailableError(f"{doing}: all connections to the database are in use")
    if isinstance(cause, sqlite3.Error):
        return _from_sqlite(cause, doing=doing)
    if isinstance(cause, OSError):
        return StoreUnavailableError(f"{doing}: {cause.strerror or type(cause).__name__}")
    return _from_postgresql(cause, doing=doing)


def sqlite_code(error: BaseException | None) -> int | None:
    """SQLite's primary result code behind an exception; None for anything else."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    extended = getattr(cause, "sqlite_errorcode", None)
    return None if extended is None else int(extended) & 0xFF


def _from_sqlite(cause: sqlite3.Error, *, doing: str) -> StoreError:
    code = sqlite_code(cause)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreLocationError(f"{doing}: the file is not a SQLite database")
    if code is not None and code in _SQLITE_FAULTS:
        return StoreUnavailableError(f"{doing}: {_SQLITE_FAULTS[code]}")
    if isinstance(cause, sqlite3.OperationalError | sqlite3.InterfaceError):
        return StoreUnavailableError(f"{doing}: {cause}")
    return StoreInconsistentError(f"{doing}: {cause}")


def _from_postgresql(cause: BaseException, *, doing: str) -> StoreError:
    first_line = str(cause).strip().partition("\n")[0] or type(cause).__name__
    state = getattr(cause, "sqlstate", None)
    # Classes of SQLSTATE: 08 connection, 28 not allowed, 40 two that waited for each other, 53 no room, 57 shut down or
    # cancelled, 58 system error; without a state the connection never stood or is gone.
    kind = type(cause).__name__
    if (
        state is None
        or state[:2] in {"08", "28", "3D", "40", "53", "55", "57", "58", "XX"}
        or kind == "OperationalError"
    ):
        return StoreUnavailableError(doing, private=first_line)
    return StoreInconsistentError(doing, private=first_line)


def prepare_folder(url: URL, data_dir: Path) -> None:
    """Make the data folder, and see that SQLite's file can lie where the URL says.

    Raises:
        StoreLocationError: A folder is missing, or file or folder cannot be written.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreLocationError(f"the data folder {data_dir} cannot be made: {error.strerror}") from error
    if url.get_backend_name() != "sqlite":
        return
    file = Path(str(url.database))
    if not file.parent.is_dir():
        raise StoreLocationError(f"the folder {file.parent} does not exist; make it, or choose another place")
    if file.is_dir():
        raise StoreLocationError(f"{file} is a folder; a ledger needs a file")
    # WAL needs a second file beside the first, so a writable file in a read-only folder is not enough.
    for place in (file.parent, *([file] if file.exists() else [])):
        if not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise StoreLocationError(f"{place} cannot be written; check its permissions")
