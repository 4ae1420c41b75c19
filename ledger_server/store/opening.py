"""Open the journal: the one place that puts address, engine, schema, models and store together."""

from pathlib import Path
from typing import Literal, TypeAlias

from sqlalchemy import select

from ledger_server.buckets import S3Address
from ledger_server.settings import Settings
from ledger_server.store.blobs.database import DatabaseBlobs
from ledger_server.store.blobs.directory import DirectoryBlobs, sync
from ledger_server.store.blobs.protocol import BlobStore
from ledger_server.store.blobs.s3 import BucketRefusedError, S3Blobs
from ledger_server.store.database import Database
from ledger_server.store.engine import make_engine, our_errors, parse_url, prepare_folder, show_url
from ledger_server.store.errors import StoreInconsistentError, StoreLocationError
from ledger_server.store.journal import Store
from ledger_server.store.schema import current_of, require_current, upgrade_engine
from ledger_server.store.tables import journal

BlobPlace: TypeAlias = Literal["database", "directory", "s3"]
"""Where models lie: in rows of the database, in the folder ``models`` of the data folder, or in a bucket."""
MODELS_FOLDER = "models"


def open_store(
    database_url: str,
    *,
    data_dir: Path,
    blobs: BlobPlace | None = None,
    s3: S3Address | None = None,
    min_free_bytes: int = 0,
    upgrade: bool = False,
) -> Store:
    """The journal at ``database_url``; a new SQLite file is made.

    Args:
        database_url: ``sqlite:///…`` or ``postgresql+psycopg://…``; never shown in a message.
        data_dir: The server's folder; made if it does not exist.
        blobs: Where a new ledger's models go (None: the database). A ledger that is there has recorded its place with
            genesis; another one is refused.
        s3: The bucket, where models lie in one.
        min_free_bytes: What publications leave free on the disk.
        upgrade: Whether an older SQLite file is brought up to date.

    Raises:
        StoreLocationError: A wrong URL, a folder that cannot be written, a file or database of another program; models
            that are not where the ledger has them, or are another ledger's; a bucket that cannot be used.
        StoreUnavailableError: The database does not answer, or S3 does not, or the disk fails.
        SchemaBehindError: The tables are older than this program, or PostgreSQL's are not there yet.
        SchemaAheadError: The tables were made by a newer program.
    """
    url = parse_url(database_url)
    prepare_folder(url, data_dir)
    engine = make_engine(url)
    try:
        is_sqlite = url.get_backend_name() == "sqlite"
        if is_sqlite and (upgrade or current_of(engine) is None):
            upgrade_engine(engine)
        else:
            require_current(engine)
        if is_sqlite:
            # The connection that has just read made the log, and SQLite ignores a sync of the log's folder that fails.
            with our_errors("the database's folder cannot be synced"):
                sync(Path(str(url.database)).parent)
        database = Database(engine, data_dir=data_dir, min_free_bytes=min_free_bytes)
        return _open(database, data_dir / MODELS_FOLDER, blobs, s3)
    except StoreInconsistentError as error:
        engine.dispose()
        raise StoreLocationError(f"{show_url(url)} is not a ledger's database: {error}") from error
    except BucketRefusedError as error:
        engine.dispose()
        raise StoreLocationError(str(error)) from error
    except BaseException:
        engine.dispose()
        raise


def _open(database: Database, folder: Path, blobs: BlobPlace | None, s3: S3Address | None) -> Store:
    """The store over a database, with models where its journal says (before genesis: as ``blobs`` says)."""
    shown = show_url(database.engine.url)
    with database.reading() as connection:
        recorded = connection.execute(select(journal.c.id, journal.c.models)).one_or_none()
    place = (blobs or "database") if recorded is None else recorded.models
    if blobs not in (None, place):
        raise StoreLocationError(
            f"the models of {shown} lie in place {place!r}, as its ledger was made; "
            f"set blobs.store = {place}, or leave it out"
        )
    models: BlobStore
    if place == "database":
        return Store(database, DatabaseBlobs(database), place=place)
    if place == "directory":
        models = DirectoryBlobs(folder)
    elif s3 is not None:
        models = S3Blobs(s3, journal=None if recorded is None else recorded.id)
    else:
        raise StoreLocationError("models lie in a bucket; say in which: DAG_ACFL_BLOBS__S3_URL=s3://bucket/prefix")
    # They must be there and this journal's: a sweep would delete another's.
    owner = models.owner()
    if recorded is not None and owner is None:
        raise StoreLocationError(f"the models of {shown} are missing; they belong in {models}")
    # What the making of a ledger left that was interrupted may be taken over.
    is_foreign = next(models.digests(), None) is not None if recorded is None else owner != recorded.id
    if owner is not None and is_foreign:
        raise StoreLocationError(f"{models} holds the models of another ledger; give each server a place of its own")
    return Store(database, models, place=place)


def open_store_of(settings: Settings, *, upgrade: bool = False) -> Store:
    """The journal that ``serve`` would serve with these settings; as ``open_store``."""
    return open_store(
        settings.resolved_database_url,
        data_dir=settings.data_dir,
        blobs=settings.blobs.store,
        s3=settings.blobs.s3,
        min_free_bytes=settings.min_free_bytes,
        upgrade=upgrade,
    )
