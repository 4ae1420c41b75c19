"""Which revision a database has, which one this program wants, and the way from one to the other.

The steps are Alembic's, in ``migrations/`` of a checkout or ``ledger_server/_migrations`` of an installed wheel;
they are data to this package, never imported by it. SQLite is brought up to date when it is served (one file, one
server, nobody else to ask); PostgreSQL only by ``dag-acfl db upgrade``, at a time that its operator chooses. Whoever
only reads, or is a command beside the server, never does.
"""

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from sqlalchemy import String, column, inspect, select, table
from sqlalchemy.engine import Engine

from ledger_server.store.engine import make_engine, our_errors, parse_url, reading, show_url, writing
from ledger_server.store.errors import SchemaAheadError, SchemaBehindError, StoreLocationError

VERSION_TABLE: Final = "alembic_version"
REVISION: Final = select(column("version_num", String)).select_from(table(VERSION_TABLE))
"""The statement that asks for a database's revision."""
_PACKAGE: Final = Path(__file__).resolve().parents[1]


def script_location() -> Path:
    """The folder of migrations: beside this package in a checkout, inside it in a wheel."""
    installed = _PACKAGE / "_migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "migrations"


@lru_cache(maxsize=1)
def _revisions() -> tuple[str, ...]:
    """All revisions that this program knows, oldest first: one line, each step's file named ``REVISION_what.py``.

    Asking alembic would load it, 12 MB and a tenth of a second, into every server whose database is up to date.
    """
    return tuple(sorted(file.name.partition("_")[0] for file in (script_location() / "versions").glob("[0-9]*.py")))


def head() -> str:
    """The revision that this program works with."""
    return _revisions()[-1]


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
    with our_errors(f"{show_url(engine.url)} cannot be opened"), reading(engine) as connection:
        names = sorted(inspect(connection).get_table_names())
        if VERSION_TABLE in names:
            return connection.execute(REVISION).scalar_one_or_none()
    if names:
        raise StoreLocationError(
            f"{show_url(engine.url)} holds other tables ({', '.join(names[:3])}, …); "
            "a ledger needs a database of its own"
        )
    return None


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
    older = f"has revision {found}, this program wants {head()}; stop what serves it, then"
    what = "has no tables yet;" if found is None else older
    raise SchemaBehindError(f"{show_url(engine.url)} {what} run: dag-acfl db upgrade")


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
    with suppress(SchemaBehindError):
        require_current(engine)
        return
    from alembic import command  # noqa: PLC0415 (a tenth of a second, only where it is needed)
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    # The writer's lock makes two servers that start at once take turns; the second finds the work done.
    with our_errors(f"{show_url(engine.url)} cannot be upgraded"), writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
