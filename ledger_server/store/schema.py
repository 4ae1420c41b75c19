"""Which revision a database has, which one this program wants, and the way from one to the other.

The steps are Alembic's, in ``migrations/`` of a checkout or ``ledger_server/_migrations`` of an installed wheel;
they are data to this package, never imported by it. SQLite is brought up to date when it is opened (one file, one
server, nobody else to ask); PostgreSQL only by ``dag-acfl db upgrade``, at a time that its operator chooses.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, String, inspect, select, table
from sqlalchemy import column as named
from sqlalchemy.engine import Engine

from ledger_server.store.engine import make_engine, our_errors, parse_url, show_url, writing
from ledger_server.store.errors import SchemaAheadError, SchemaBehindError, StoreLocationError

VERSION_TABLE: Final = "alembic_version"
_NAMES: Final = re.compile(r'^(down_revision|revision)\b[^=\n]*= *(?:"([^"\n]*)"|None) *$', re.MULTILINE)
_PACKAGE: Final = Path(__file__).resolve().parents[1]


def script_location() -> Path:
    """The folder of migrations: beside this package in a checkout, inside it in a wheel."""
    installed = _PACKAGE / "_migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "migrations"


@lru_cache(maxsize=1)
def _revisions() -> tuple[str, ...]:
    """All revisions that this program knows, newest first: one line, each naming the one below it.

    Read from the files' text. Asking alembic would load it, 12 MB and a tenth of a second, into every server whose
    database is up to date.
    """
    above: dict[str | None, str] = {}
    for file in (script_location() / "versions").glob("*.py"):
        named_here = {name: value or None for name, value in _NAMES.findall(file.read_text(encoding="utf-8"))}
        above[named_here["down_revision"]] = str(named_here["revision"])
    line: list[str] = []
    while (following := above.get(line[-1] if line else None)) is not None:
        line.append(following)
    return tuple(reversed(line))


def head() -> str:
    """The revision that this program works with."""
    return _revisions()[0]


def current(database_url: str) -> str | None:
    """The revision of a database; None while it is empty.

    Raises:
        StoreUnavailableError: It cannot be read.
        StoreLocationError: A wrong URL, or the database of another program.
    """
    url = parse_url(database_url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return None  # asking must not make the file
    engine = make_engine(url)
    try:
        return current_of(engine)
    finally:
        engine.dispose()


def current_of(engine: Engine) -> str | None:
    """As ``current``, of an open database."""
    with our_errors(f"{show_url(engine.url)} cannot be opened"), engine.connect() as connection:
        return _revision(connection)


def _revision(connection: Connection) -> str | None:
    names = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in names:
        if names:
            raise StoreLocationError(
                f"{show_url(connection.engine.url)} holds other tables ({', '.join(sorted(names)[:3])}, …); "
                "a ledger needs a database of its own"
            )
        return None
    versions = (
        connection.execute(select(named("version_num", String)).select_from(table(VERSION_TABLE))).scalars().all()
    )
    return str(versions[0]) if versions else None


def require_current(engine: Engine) -> None:
    """See that the database has the revision of this program.

    Raises:
        SchemaBehindError: It is older, or empty.
        SchemaAheadError: It is of a revision that this program does not know.
    """
    found = current_of(engine)
    if found == head():
        return
    if found is not None and found not in _revisions():
        raise SchemaAheadError(
            f"{show_url(engine.url)} has revision {found}, which this program does not know (its newest is {head()}); "
            "use the newer dag-acfl that made it"
        )
    what = "has no tables yet" if found is None else f"has revision {found}, this program wants {head()}"
    raise SchemaBehindError(f"{show_url(engine.url)} {what}; run: dag-acfl db upgrade")


def upgrade(database_url: str) -> None:
    """Bring a database to this program's revision; does nothing when it is there.

    Raises:
        StoreError: As ``current`` and ``require_current``; a failed step changes nothing.
    """
    engine = make_engine(parse_url(database_url))
    try:
        upgrade_engine(engine)
    finally:
        engine.dispose()


def upgrade_engine(engine: Engine) -> None:
    """As ``upgrade``, of an open database."""
    try:
        require_current(engine)
    except SchemaBehindError:
        pass
    else:
        return
    from alembic import command  # noqa: PLC0415 (a tenth of a second, only where it is needed)
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    # The writer's lock makes two servers that start at once take turns; the second finds the work done.
    with our_errors(f"{show_url(engine.url)} cannot be upgraded"), writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def differences(database_url: str) -> list[str]:
    """How a database's tables differ from ``tables.metadata``, as Alembic sees it; empty when they agree."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415 (as above)
    from alembic.migration import MigrationContext  # noqa: PLC0415

    from ledger_server.store.tables import metadata  # noqa: PLC0415

    url = parse_url(database_url)
    engine = make_engine(url, inspecting=True)
    try:
        with our_errors(f"{show_url(url)} cannot be read"), engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": metadata}
            )
            return [str(difference) for difference in compare_metadata(context, metadata)]
    finally:
        engine.dispose()


def check(database_url: str) -> list[str]:
    """Upgrade a database and say how it then differs from the tables of this program."""
    upgrade(database_url)
    return differences(database_url)
