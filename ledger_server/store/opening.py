"""Open the journal: the one place that puts address, engine, schema, models and store together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sqlalchemy import select
from sqlalchemy.engine import Engine

from ledger_server.buckets import S3Address
from ledger_server.settings import Settings
from ledger_server.store.blobs.database import DatabaseBlobs
from ledger_server.store.blobs.directory import DirectoryBlobs, sync_folder
from ledger_server.store.blobs.protocol import BlobStore
from ledger_server.store.blobs.s3 import BucketRefusedError, S3Blobs
from ledger_server.store.database import Database
from ledger_server.store.engine import (
    LARGE_PAGE_BYTES,
    PAGE_BYTES,
    make_engine,
    our_errors,
    parse_url,
    prepare_folder,
    show_url,
)
from ledger_server.store.errors import StoreInconsistentError, StoreLocationError
from ledger_server.store.schema import require_current, upgrade_engine
from ledger_server.store.sql import SqlStore
from ledger_server.store.tables import journal

BlobPlace: TypeAlias = Literal["database", "directory", "s3"]
"""Where models lie: in rows of the database, in the folder ``models`` of the data folder, or in a bucket."""
MODELS_FOLDER = "models"


def open_store(
    database_url: str, *, data_dir: Path, blobs: BlobPlace | None = None, s3: S3Address | None = None
) -> SqlStore:
    """The journal at ``database_url``; a new SQLite file is made, an older one brought up to date.

    Args:
        database_url: ``sqlite:///…`` or ``postgresql+psycopg://…``; never shown in a message.
        data_dir: The server's folder; made if it does not exist.
        blobs: Where a new ledger's models go (None: the database). A ledger that is there has recorded its place with
            genesis; another one is refused.
        s3: The bucket, where models lie in one.

    Raises:
        StoreLocationError: A wrong URL, a folder that cannot be written, a file or database of another program; models
            that are not where the ledger has them, or are another ledger's; a bucket that cannot be used.
        StoreUnavailableError: The database does not answer, or S3 does not, or the disk fails.
        SchemaBehindError: PostgreSQL's tables are older than this program, or not there yet.
        SchemaAheadError: The tables were made by a newer program.
    """
    url = parse_url(database_url)
    prepare_folder(url, data_dir)
    is_sqlite = url.get_backend_name() == "sqlite"
    engine = make_engine(url, page_bytes=LARGE_PAGE_BYTES if blobs in {None, "database"} else PAGE_BYTES)
    try:
        if is_sqlite:
            upgrade_engine(engine)
            # The connection that has just read made the log, and SQLite ignores a sync of the log's folder that fails.
            with our_errors("the database's folder cannot be synced"):
                sync_folder(Path(str(url.database)).parent)
        else:
            require_current(engine)
        database = Database(engine)
        recorded = _recorded(engine)
        if recorded is not None and blobs not in (None, recorded.place):
            raise StoreLocationError(
                f"the models of {show_url(url)} lie in place {recorded.place!r}, as its ledger was made; "
                f"set blobs.store = {recorded.place}, or leave it out"
            )
        place = recorded.place if recorded is not None else blobs or "database"
        models = _models(place, database, folder=data_dir / MODELS_FOLDER, s3=s3)
        _check_owner(models, recorded, shown=show_url(url))
        return SqlStore(database, models, place=place)
    except StoreInconsistentError as error:
        engine.dispose()
        raise StoreLocationError(f"{show_url(url)} is not a ledger's database: {error}") from error
    except BucketRefusedError as error:
        engine.dispose()
        raise StoreLocationError(str(error)) from error
    except BaseException:
        engine.dispose()
        raise


def open_store_of(settings: Settings) -> SqlStore:
    """The journal that ``serve`` would serve with these settings; as ``open_store``."""
    return open_store(
        settings.resolved_database_url, data_dir=settings.data_dir, blobs=settings.blobs.store, s3=settings.blobs.s3
    )


@dataclass(frozen=True, slots=True)
class _Journal:
    identity: str
    place: BlobPlace


def _recorded(engine: Engine) -> _Journal | None:
    """What the journal says of itself; None before genesis."""
    with our_errors("the database cannot be read"), engine.connect() as connection:
        row = connection.execute(select(journal.c.id, journal.c.models)).one_or_none()
    return None if row is None else _Journal(bytes(row.id).hex(), row.models)


def _models(place: BlobPlace, database: Database, *, folder: Path, s3: S3Address | None) -> BlobStore:
    if place == "database":
        return DatabaseBlobs(database)
    if place == "directory":
        return DirectoryBlobs(folder)
    if s3 is None:
        raise StoreLocationError("models lie in a bucket; say in which: DAG_ACFL_BLOBS__S3_URL=s3://bucket/prefix")
    return S3Blobs(s3)


def _check_owner(models: BlobStore, recorded: _Journal | None, *, shown: str) -> None:
    """See that the models are there and this journal's: a sweep would delete another's.

    Raises:
        StoreLocationError: They are not.
    """
    if isinstance(models, DatabaseBlobs):
        return
    owner = models.owner()
    if recorded is not None and owner is None:
        raise StoreLocationError(f"the models of {shown} are missing; they belong in {models}")
    # What the making of a ledger left that was interrupted may be taken over.
    is_foreign = next(models.digests(), None) is not None if recorded is None else owner != recorded.identity
    if owner is not None and is_foreign:
        raise StoreLocationError(f"{models} holds the models of another ledger; give each server a place of its own")
