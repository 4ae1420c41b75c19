"""Open the journal: the one place that puts address, engine, schema and store together."""

from pathlib import Path
from typing import Literal, TypeAlias

from ledger_server.store.blobs.segments import SegmentBlobs
from ledger_server.store.engine import (
    LARGE_PAGE_BYTES,
    PAGE_BYTES,
    make_engine,
    parse_url,
    prepare_folder,
    show_url,
)
from ledger_server.store.errors import StoreInconsistentError, StoreLocationError
from ledger_server.store.schema import require_current, upgrade_engine
from ledger_server.store.sql import SMALLEST_BLOB_BYTES, SqlStore, last_blob

BlobPlace: TypeAlias = Literal["auto", "database", "directory"]
"""Where larger models lie: in rows, or in segment files; ``auto``: in files beside SQLite, in rows of PostgreSQL."""


def open_store(
    database_url: str,
    *,
    data_dir: Path,
    blobs: BlobPlace = "auto",
    smallest_blob_bytes: int = SMALLEST_BLOB_BYTES,
) -> SqlStore:
    """The journal at ``database_url``; a new SQLite file is made, an older one brought up to date.

    Args:
        database_url: ``sqlite:///…`` or ``postgresql+psycopg://…``; never shown in a message.
        data_dir: The server's folder; made if it does not exist.
        blobs: Where new models go; those that are there already are found wherever they are.
        smallest_blob_bytes: Smaller models go into the database in any case.

    Raises:
        StoreLocationError: A wrong URL, a folder that cannot be written, a file or database of another program.
        StoreUnavailableError: The database does not answer.
        SchemaBehindError: PostgreSQL's tables are older than this program, or not there yet.
        SchemaAheadError: The tables were made by a newer program.
    """
    url = parse_url(database_url)
    prepare_folder(url, data_dir)
    is_sqlite = url.get_backend_name() == "sqlite"
    in_folder = blobs == "directory" or (blobs == "auto" and is_sqlite)
    engine = make_engine(url, page_bytes=PAGE_BYTES if in_folder else LARGE_PAGE_BYTES)
    try:
        if is_sqlite:
            upgrade_engine(engine)
        else:
            require_current(engine)
        folder = Path(f"{url.database}-models") if is_sqlite else data_dir / "models"
        end = last_blob(engine)
        if end is not None and not folder.is_dir():
            raise StoreLocationError(f"the models of {show_url(url)} are missing; put their folder back: {folder}")
        return SqlStore(
            engine,
            blobs=SegmentBlobs(folder, end=end),
            smallest_blob_bytes=smallest_blob_bytes if in_folder else None,
        )
    except StoreInconsistentError as error:
        engine.dispose()
        raise StoreLocationError(f"{show_url(url)} is not a ledger's database: {error}") from error
    except BaseException:
        engine.dispose()
        raise
