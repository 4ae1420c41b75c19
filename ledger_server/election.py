"""Which of the processes that serve one ledger looks after it: reads peers' journals, and prunes. One at a time.

A lock in the database that its holder's connection carries (on SQLite a file beside the database's, for processes of
one machine): however the holder ends, another one has it within seconds. Two may believe that they hold it for a
moment, when a connection breaks unnoticed: what the holder does may be done twice.
"""

import fcntl
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from fl_core.errors import ParameterError
from ledger_server.store.database import Database
from ledger_server.store.engine import our_errors

_SILENT_S: Final = 5
"""PostgreSQL takes the lock from a holder that has not asked for so long: its machine may be gone without a word."""
LEADER: Final = "leader"
CAUGHT_UP: Final = "caught-up"
_NUMBERS: Final = {LEADER: 0x6461_6761_6366_6C02, CAUGHT_UP: 0x6461_6761_6366_6C03}
"""Of the locks on PostgreSQL; the writer's is that before (``store.engine``)."""
_MOST_PLACES: Final = 256


class Election(ABC):
    """The lock, and another by which the leader says that it has what peers hold. Safe to share between threads.

    All methods but ``resign`` raise ``StoreError`` where the locks cannot be had.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def leads(self) -> bool:
        """Whether this process leads: it has since it was asked last, or nobody else does."""
        with self._lock, our_errors("the leader's lock cannot be had"):
            return self._take(LEADER)

    def say_caught_up(self) -> None:
        """As the leader: all that peers hold is in the ledger. Holds for as long as it leads; may be said again."""
        with self._lock, our_errors("the leader's lock cannot be had"):
            self._take(CAUGHT_UP)

    def has_caught_up(self) -> bool:
        """Whether the leader has said so."""
        with self._lock, our_errors("the leader's lock cannot be had"):
            return self._is_taken(CAUGHT_UP)

    def resign(self) -> None:
        """Let another one lead."""
        with self._lock:
            self._let_go()

    @abstractmethod
    def _take(self, name: str) -> bool:
        """Whether the lock is this process's, now or still."""

    @abstractmethod
    def _is_taken(self, name: str) -> bool:
        """Whether the lock is anybody's."""

    @abstractmethod
    def _let_go(self) -> None:
        """Of all locks."""


def election_of(database: Database) -> Election:
    """That of a ledger's database."""
    return FileElection(Path(str(database.engine.url.database))) if database.is_sqlite else SessionElection(database)


class FileElection(Election):
    """Locks of two files beside SQLite's own."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        self._database = database
        self._held: dict[str, int] = {}

    def _take(self, name: str) -> bool:
        if name not in self._held:
            file = locked(self._database.with_name(f"{self._database.name}-{name}"))
            if file is None:
                return False
            self._held[name] = file
        return True

    def _is_taken(self, name: str) -> bool:
        if name in self._held or not self._take(name):
            return True
        os.close(self._held.pop(name))
        return False

    def _let_go(self) -> None:
        while self._held:
            os.close(self._held.popitem()[1])


class SessionElection(Election):
    """Advisory locks of a PostgreSQL session of its own."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._session: Connection | None = None
        self._driver: Any = None
        self._held: set[str] = set()

    def _ask(self, statement: str, *values: object) -> Any:
        """A statement's one value. Of a session that is lost, another one takes the place, and what it held is gone."""
        try:
            if self._session is None:
                self._session = self._open()
            return self._session.exec_driver_sql(statement, values).scalar_one()
        except BaseException:
            self._let_go()
            raise

    def _open(self) -> Connection:
        session = self._database.engine.connect()
        self._driver = session.connection.driver_connection  # which a session that is lost would leave open
        session.detach()  # the pool would hand it to others, or take it away
        with suppress(DBAPIError):  # before PostgreSQL 14 a machine that is lost is noticed by TCP alone
            session.exec_driver_sql(f"SET idle_session_timeout = '{_SILENT_S}s'")
        return session

    def _take(self, name: str) -> bool:
        if name in self._held:
            self._ask("SELECT 1")  # else the session might be gone
        elif self._ask("SELECT pg_try_advisory_lock(%s)", _NUMBERS[name]):
            self._held.add(name)
        return name in self._held

    def _is_taken(self, name: str) -> bool:
        if name in self._held:
            return True
        if self._ask("SELECT pg_try_advisory_lock_shared(%s)", _NUMBERS[name]):
            self._ask("SELECT pg_advisory_unlock_shared(%s)", _NUMBERS[name])
            return False
        return True

    def _let_go(self) -> None:
        self._held.clear()
        session, self._session = self._session, None
        if session is not None:
            with suppress(DBAPIError):  # that a session has ended, PostgreSQL hears a moment later
                session.exec_driver_sql("SELECT pg_advisory_unlock_all()")
            with suppress(DBAPIError):
                session.close()
            self._driver.close()


def locked(path: Path) -> int | None:
    """A file of this name, open and locked until it is closed, or the process ends however; None: another has it.

    Raises:
        OSError: It cannot be written or locked.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except BaseException:
        os.close(file)
        raise
    return file


@contextmanager
def place_in(folder: Path) -> Iterator[int]:
    """A number of this process's own among those that serve from a data folder, the least that is free.

    Raises:
        ParameterError: The folder cannot be written, or 256 processes serve from it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = ((place, locked(folder / f"lock{f'-{place}' if place else ''}")) for place in range(_MOST_PLACES))
        place, file = next(((place, file) for place, file in taken if file is not None), (0, None))
    except OSError as error:
        raise ParameterError(
            f"{folder}/lock cannot be written: {error.strerror}; choose another --data-dir, on a local disk"
        ) from error
    if file is None:
        raise ParameterError(f"{_MOST_PLACES} processes serve from {folder}; stop some")
    try:
        yield place
    finally:
        os.close(file)
