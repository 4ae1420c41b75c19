"""Open the journal: the one place that puts address, engine, schema and store together."""

from pathlib import Path
from typing import Literal, TypeAlias

from sqlalchemy.engine import Engine

from ledger_server.buckets import S3Address
from ledger_server.store.blobs.protocol import BlobStore
from ledger_server.store.blobs.s3 import BucketRefusedError, S3Blobs
from ledger_server.store.blobs.segments import SegmentBlobs, sync_folder
from ledger_server.store.blobs.wherever import SegmentsAndBucket
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
from ledger_server.store.sql import SMALLEST_BLOB_BYTES, SqlStore, last_blob, newest_by_digest

BlobPlace: TypeAlias = Literal["auto", "database", "directory", "s3"]
"""Where larger models lie: in rows, in segment files, or in a bucket; ``auto``: in files beside SQLite, in rows of
PostgreSQL."""


def open_store(
    database_url: str,
    *,
    data_dir: Path,
    blobs: BlobPlace = "auto",
    s3: S3Address | None = None,
    smallest_blob_bytes: int = SMALLEST_BLOB_BYTES,
) -> SqlStore:
    """The journal at ``database_url``; a new SQLite file is made, an older one brought up to date.

    Args:
        database_url: ``sqlite:///…`` or ``postgresql+psycopg://…``; never shown in a message.
        data_dir: The server's folder; made if it does not exist.
        blobs: Where new models go; those that are there already are found wherever they are.
        s3: The bucket for ``blobs="s3"``, and for what went there before the setting was another.
        smallest_blob_bytes: Smaller models go into the database in any case.

    Raises:
        StoreLocationError: A wrong URL, a folder that cannot be written, a file or database of another program; a
            bucket that is not there, is another's, or is closed to the credentials.
        StoreUnavailableError: The database does not answer, or S3 does not, or the disk fails.
        SchemaBehindError: PostgreSQL's tables are older than this program, or not there yet.
        SchemaAheadError: The tables were made by a newer program.
    """
    url = parse_url(database_url)
    prepare_folder(url, data_dir)
    is_sqlite = url.get_backend_name() == "sqlite"
    outside = blobs in {"directory", "s3"} or (blobs == "auto" and is_sqlite)
    engine = make_engine(url, page_bytes=PAGE_BYTES if outside else LARGE_PAGE_BYTES)
    try:
        if is_sqlite:
            upgrade_engine(engine)
        else:
            require_current(engine)
        folder = Path(f"{url.database}-models") if is_sqlite else data_dir / "models"
        end = last_blob(engine)
        if is_sqlite:
            # The connection that has just read made the log, and SQLite ignores a sync of the log's folder that fails.
            with our_errors("the database's folder cannot be synced"):
                sync_folder(Path(str(url.database)).parent)
        if end is not None and not folder.is_dir():
            raise StoreLocationError(f"the models of {show_url(url)} are missing; put their folder back: {folder}")
        segments = SegmentBlobs(folder, end=end)
        bucket = _bucket(engine, s3, shown=show_url(url), takes_new=blobs == "s3")
        places: BlobStore = (
            segments if bucket is None else SegmentsAndBucket(segments, bucket, new_in_bucket=blobs == "s3")
        )
        return SqlStore(engine, blobs=places, smallest_blob_bytes=smallest_blob_bytes if outside else None)
    except StoreInconsistentError as error:
        engine.dispose()
        raise StoreLocationError(f"{show_url(url)} is not a ledger's database: {error}") from error
    except BaseException:
        engine.dispose()
        raise


def _bucket(engine: Engine, s3: S3Address | None, *, shown: str, takes_new: bool) -> S3Blobs | None:
    """The bucket, if models lie there or are to; seen to be there, to open, and to be this ledger's."""
    newest = newest_by_digest(engine)
    if s3 is None:
        if newest is not None:
            raise StoreLocationError(
                f"models of {shown} lie in a bucket; say in which: DAG_ACFL_BLOBS__S3_URL=s3://bucket/prefix"
            )
        if takes_new:
            raise StoreLocationError("models are to go into a bucket; say into which: DAG_ACFL_BLOBS__S3_URL")
        return None
    if newest is None and not takes_new:
        return None
    bucket = S3Blobs(s3)
    try:
        bucket.check()
        if newest is not None and bucket.open(newest) is None and bucket.is_empty():
            raise StoreLocationError(f"the models of {shown} are missing; {s3} is empty, so it is another prefix")
    except BucketRefusedError as error:
        raise StoreLocationError(str(error)) from error
    return bucket
