"""The tables of the program and the steps of ``migrations/`` arrive at the same schema, on both databases."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event, inspect, make_url, text
from sqlalchemy.engine import Engine

from ledger_server.store import open_store, schema
from ledger_server.store.engine import make_engine, parse_url
from ledger_server.store.errors import SchemaAheadError, SchemaBehindError, StoreLocationError
from ledger_server.store.tables import metadata
from tests.postgres import Databases

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.sqlite3'}"
        return
    found: Databases = request.getfixturevalue("postgresql")
    with found.fresh(migrated=False) as url:
        yield url


_CATALOGUE = {
    "sqlite": [
        """
        SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master
        WHERE tbl_name <> 'alembic_version' AND type <> 'trigger' ORDER BY type, name"""
    ],
    "postgresql": [
        """
        SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name <> 'alembic_version' ORDER BY 1, 2""",
        """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version' ORDER BY 1, 2""",
        """
        SELECT indexname, indexdef FROM pg_indexes
        WHERE schemaname = 'public' AND tablename <> 'alembic_version' ORDER BY 1""",
    ],
}


def catalogue(engine: Engine) -> list[tuple[str, ...]]:
    """What the database knows of its tables, less the migrations' triggers; columns and constraints in any order."""
    with engine.connect() as connection:
        rows = [row for query in _CATALOGUE[engine.dialect.name] for row in connection.exec_driver_sql(query)]
    return [tuple(_same_form(str(value)) for value in row) for row in rows]


def _same_form(definition: str) -> str:
    parts = re.split(r",(?![^()]*\))|\n", definition) if definition.startswith("CREATE TABLE") else [definition]
    return "|".join(sorted(" ".join(part.split()) for part in parts if part.strip()))


def test_migrations_make_exactly_the_tables_of_the_program(
    empty_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    engine = make_engine(parse_url(empty_url))
    schema.upgrade_engine(engine)
    migrated = catalogue(engine)
    engine.dispose()
    if make_url(empty_url).get_backend_name() == "sqlite":
        created = _created(f"sqlite:///{tmp_path / 'created.sqlite3'}")
    else:
        with request.getfixturevalue("postgresql").fresh(migrated=False) as url:
            created = _created(url)
    assert migrated == created


def _created(url: str) -> list[tuple[str, ...]]:
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        metadata.create_all(connection)
    try:
        return catalogue(engine)
    finally:
        engine.dispose()


def test_upgrading_goes_from_nothing_to_the_newest_revision_and_then_does_nothing(empty_url: str) -> None:
    assert schema.current(empty_url) is None
    schema.upgrade(empty_url)
    assert schema.current(empty_url) == schema.head()
    schema.upgrade(empty_url)
    assert schema.current(empty_url) == schema.head()


def test_a_database_without_an_encoding_is_as_good(postgresql: Databases) -> None:
    """PostgreSQL's own default where a machine has no locale; psycopg gives its text as bytes."""
    url = postgresql.server.set(database="test_sql_ascii").render_as_string(hide_password=False)
    postgresql.run("CREATE DATABASE test_sql_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    try:
        schema.upgrade(url)
        assert schema.current(url) == schema.head()
    finally:
        postgresql.run("DROP DATABASE test_sql_ascii WITH (FORCE)")


def test_asking_for_the_revision_makes_no_file(tmp_path: Path) -> None:
    assert schema.current(f"sqlite:///{tmp_path / 'nothing.sqlite3'}") is None
    assert list(tmp_path.iterdir()) == []


def test_servers_that_start_at_once_upgrade_once(empty_url: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(schema.upgrade, [empty_url] * 3))
    assert schema.current(empty_url) == schema.head()


def test_tables_are_made_in_a_new_sqlite_file_and_for_postgresql_the_command_is_named(
    empty_url: str, tmp_path: Path
) -> None:
    if make_url(empty_url).get_backend_name() == "sqlite":
        open_store(empty_url, data_dir=tmp_path).close()
        assert schema.current(empty_url) == schema.head()
    else:
        with pytest.raises(SchemaBehindError, match="has no tables yet; run: dag-acfl db upgrade"):
            open_store(empty_url, data_dir=tmp_path)
        assert schema.current(empty_url) is None


def test_an_older_database_is_upgraded_by_who_serves_it_and_by_nobody_else(database_url: str, tmp_path: Path) -> None:
    engine = make_engine(parse_url(database_url))
    older = schema._revisions()[-2]
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE journal DROP COLUMN archived"))
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{older}'"))
    with pytest.raises(SchemaBehindError, match=f"revision {older}, .* run: dag-acfl db upgrade"):
        open_store(database_url, data_dir=tmp_path)
    assert schema.current(database_url) == older
    if engine.dialect.name == "sqlite":
        open_store(database_url, data_dir=tmp_path, upgrade=True).close()
        assert schema.current(database_url) == schema.head()
    engine.dispose()


def test_a_database_of_a_newer_program_is_refused_untouched(database_url: str, tmp_path: Path) -> None:
    engine = make_engine(parse_url(database_url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = catalogue(engine)
    with pytest.raises(SchemaAheadError, match="revision 9999, which this program does not know"):
        open_store(database_url, data_dir=tmp_path)
    with pytest.raises(SchemaAheadError):
        schema.upgrade(database_url)
    assert catalogue(engine) == before
    engine.dispose()


def test_a_step_that_fails_changes_nothing(empty_url: str) -> None:
    engine = make_engine(parse_url(empty_url))

    def fail(*_: object) -> None:
        raise RuntimeError("the last statement failed")

    event.listen(engine, "commit", fail)
    with pytest.raises(RuntimeError):
        schema.upgrade_engine(engine)
    event.remove(engine, "commit", fail)
    assert table_names(engine) == []
    engine.dispose()
    schema.upgrade(empty_url)
    assert schema.current(empty_url) == schema.head()


def table_names(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(inspect(connection).get_table_names())


def test_another_programs_database_is_refused_untouched(empty_url: str) -> None:
    engine = make_engine(parse_url(empty_url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers (name TEXT)"))
    with pytest.raises(StoreLocationError, match="holds other tables"):
        schema.upgrade(empty_url)
    assert table_names(engine) == ["customers"]
    engine.dispose()


def test_an_installed_package_finds_its_migrations_without_the_checkout(tmp_path: Path) -> None:
    """What the wheel holds: the packages, and ``migrations`` as ``ledger_server/_migrations``."""
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("fl_core", "ledger_server"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignore)
    shutil.copytree(ROOT / "migrations", tmp_path / "ledger_server" / "_migrations", ignore=ignore)
    program = (
        "import ledger_server.store.schema as schema\n"
        f"assert schema.__file__.startswith({str(tmp_path)!r}), schema.__file__\n"
        f"assert str(schema.script_location()) == {str(tmp_path / 'ledger_server' / '_migrations')!r}\n"
        f"url = 'sqlite:///{tmp_path}/ledger.sqlite3'\n"
        "schema.upgrade(url)\n"
        "assert schema.current(url) == schema.head()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_revisions_read_from_the_files_are_those_that_alembic_finds() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(schema.script_location()))
    assert schema.head() == scripts.get_current_head()
    assert schema._revisions() == tuple(reversed([script.revision for script in scripts.walk_revisions()]))
