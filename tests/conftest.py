"""Databases for all tests: every test that asks for ``store`` or for a fixture named ``…database…`` runs on both kinds.

A test of SQLite's own file asks for ``sqlite_url``, and says in its name that it is one. A database is a copy of one
that was migrated once per worker, so it costs milliseconds. Without PostgreSQL its half is skipped, except in CI, where
it fails: a suite that quietly tests half is worse than none.
"""

import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ledger_server.buckets import S3Address
from ledger_server.store import open_store, schema
from ledger_server.store.journal import Store
from ledger_server.store.opening import BlobPlace
from tests.databases import DatabaseUrls
from tests.postgres import Databases, NoPostgresError, databases
from tests.s3 import S3Service, s3_service


def pytest_configure() -> None:
    """Ctrl-C means Ctrl-C, also where the suite runs in a shell's background; no property fails for a slow machine."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("any-machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any-machine")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their file are run by one worker, which makes it once (``--dist loadgroup``)."""
    for item in items:
        if isinstance(item, pytest.Function) and any(
            definitions[-1].scope == "module" for definitions in item._fixtureinfo.name2fixturedefs.values()
        ):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_collection_finish() -> None:
    """What is imported stays: to look through it for cycles takes a second, and simulations do so at each beginning."""
    _freeze()


def _freeze() -> None:
    global _modules_frozen  # noqa: PLW0603 - one for the process, as what is frozen
    gc.collect()
    gc.freeze()
    _modules_frozen = len(sys.modules)


_modules_frozen = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The same for what a file has left for good, or the last files' simulations would look through all of it.

    And for torch, which the first test loads that needs it.
    """
    if nextitem is None or nextitem.path != item.path or len(sys.modules) > _modules_frozen + 300:
        _freeze()


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """What a test configures, such as by a command in this process, writes to streams that end with the test.

    A level that stays would hide from a later test of this worker what its server says.
    """
    names = (None, "ledger_server", "fl_core", "dag_acfl", "urllib3", "uvicorn.error")
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    handlers = logging.root.handlers[:]
    yield
    logging.root.handlers[:] = handlers
    for logger, level in levels.items():
        logger.setLevel(level)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file."""
    file = tmp_path_factory.mktemp("sqlite") / "template.sqlite3"
    schema.upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Databases]:
    """A PostgreSQL server, shared by the tests of this worker."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(databases())
        except NoPostgresError as error:
            if os.environ.get("CI"):
                pytest.fail(f"CI must test PostgreSQL: {error}")
            pytest.skip(f"no PostgreSQL: {error}")
        yield found


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The URL of a migrated, empty SQLite file of the test's own."""
    folder = tmp_path / "database"
    folder.mkdir()
    file = shutil.copy(sqlite_template, folder / "ledger.sqlite3")
    return f"sqlite:///{file}"


@pytest.fixture
def postgresql_url(postgresql: Databases) -> Iterator[str]:
    """The URL of a migrated, empty PostgreSQL database of the test's own."""
    with postgresql.fresh() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a migrated, empty database of the test's own, on each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_urls(request: pytest.FixtureRequest, sqlite_template: Path, tmp_path: Path) -> Iterator[DatabaseUrls]:
    """As ``database_url``, for several servers: as many databases of one kind as are asked for."""
    postgresql: Databases | None = request.getfixturevalue("postgresql") if request.param == "postgresql" else None
    with ExitStack() as stack:

        def make(count: int) -> list[str]:
            if postgresql is not None:
                return [stack.enter_context(postgresql.fresh()) for _ in range(count)]
            folder = tmp_path / "databases"
            folder.mkdir()
            files = [folder / f"ledger-{number}.sqlite3" for number in range(count)]
            return [f"sqlite:///{shutil.copy(sqlite_template, file)}" for file in files]

        yield make


@pytest.fixture(params=["sqlite", "postgresql"])
def configured_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What ``dag-acfl`` works on unless it is told otherwise; returns the kind.

    The SQLite file in the data folder, as without any setting, or a migrated PostgreSQL that the environment names.
    """
    kind = str(request.param)
    monkeypatch.delenv("DAG_ACFL_DATABASE_URL", raising=False)
    if kind == "postgresql":
        monkeypatch.setenv("DAG_ACFL_DATABASE_URL", request.getfixturevalue("postgresql_url"))
    return kind


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def module_database_url(
    request: pytest.FixtureRequest, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """As ``database_url``, for all tests of a module together."""
    if request.param == "sqlite":
        yield f"sqlite:///{shutil.copy(sqlite_template, tmp_path_factory.mktemp('database') / 'ledger.sqlite3')}"
    else:
        postgresql: Databases = request.getfixturevalue("postgresql")
        with postgresql.fresh() as url:
            yield url


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Service]:
    """A local S3 service, shared by the tests of this worker; its credentials are in the environment."""
    with s3_service() as service:
        yield service


@pytest.fixture
def blobs(database_url: str) -> BlobPlace:
    """Where a journal's models lie: another place on each kind of database. The store's contract has more pairs."""
    return "directory" if database_url.startswith("sqlite") else "database"


@pytest.fixture
def bucket(request: pytest.FixtureRequest, blobs: BlobPlace) -> S3Address | None:
    """An empty bucket of the test's own, where models are to lie in one."""
    if blobs != "s3":
        return None
    service: S3Service = request.getfixturevalue("s3")
    return service.fresh()


@pytest.fixture
def store(database_url: str, blobs: BlobPlace, bucket: S3Address | None, tmp_path: Path) -> Iterator[Store]:
    """An open, empty journal, on each kind of database and with each place for models."""
    with open_store(database_url, data_dir=tmp_path, blobs=blobs, s3=bucket) as opened:
        yield opened
