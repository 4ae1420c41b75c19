"""Open the journal: the one place that puts address, engine, schema and store together."""

from pathlib import Path

from ledger_server.store.engine import make_engine, parse_url, prepare_folder, show_url
from ledger_server.store.errors import StoreInconsistentError, StoreLocationError
from ledger_server.store.schema import require_current, upgrade_engine
from ledger_server.store.sql import SqlStore


def open_store(database_url: str, *, data_dir: Path) -> SqlStore:
    """The journal at ``database_url``; a new SQLite file is made, an older one brought up to date.

    Args:
        database_url: ``sqlite:///…`` or ``postgresql+psycopg://…``; never shown in a message.
        data_dir: The server's folder; made if it does not exist.

    Raises:
        StoreLocationError: A wrong URL, a folder that cannot be written, a file or database of another program.
        StoreUnavailableError: The database does not answer.
        SchemaBehindError: PostgreSQL's tables are older than this program, or not there yet.
        SchemaAheadError: The tables were made by a newer program.
    """
    url = parse_url(database_url)
    prepare_folder(url, data_dir)
    engine = make_engine(url)
    try:
        if url.get_backend_name() == "sqlite":
            upgrade_engine(engine)
        else:
            require_current(engine)
    except StoreInconsistentError as error:
        engine.dispose()
        raise StoreLocationError(f"{show_url(url)} is not a ledger's database: {error}") from error
    except BaseException:
        engine.dispose()
        raise
    return SqlStore(engine)
