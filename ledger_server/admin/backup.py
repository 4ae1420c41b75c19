"""Copies of a ledger in SQLite that are made while its server writes, and put back.

A backup is a folder like a server's own, so that ``ledger verify`` and ``ledger inspect`` read it as it is:

    ledger.sqlite3                            the database as it was at one moment
    ledger.sqlite3-models/00000001.segment    the models that this database names, each where it lay
    server-key.pem                            only when asked for: the server's identity
    manifest.json                             written last

Order is what makes it consistent without stopping anybody. The database is copied first, from one snapshot; models
are durable before a row names them and are never moved, so all that the copy names is there afterwards. Each model
is checked against its digest while it is copied. What a crash left between models, and what was dropped, is named by
no row and stays a hole. Models in a bucket stay there, checked in their place: the manifest says in which.

A copy is made under another name (``TARGET.partial``, ``ledger.sqlite3.restoring``) and renamed when all of it is on
disk. If it was interrupted, the next run keeps the models that are there already, by their digests.
"""

import errno
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine import URL

from fl_core.dag.signature import public_key_of
from fl_core.errors import DagAcflError
from fl_core.verify import LedgerSource
from fl_core.version import installed_version
from ledger_server.admin.store_source import StoreSource
from ledger_server.buckets import S3Address
from ledger_server.keys import KEY_FILE, load_key
from ledger_server.settings import Settings
from ledger_server.store import open_store, schema
from ledger_server.store.blobs.segments import segment_name
from ledger_server.store.engine import BUSY_TIMEOUT_MS, our_errors, parse_url

FORMAT: Final = "dag-acfl/backup/v1"
DATABASE: Final = "ledger.sqlite3"
MANIFEST: Final = "manifest.json"
_MODELS: Final = f"{DATABASE}-models"
_LOGS: Final = (f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}.new", f"{DATABASE}.new-journal")
"""What a copy that was interrupted may leave beside the database; of no use to the next."""
_NAMES: Final = frozenset({DATABASE, *_LOGS, _MODELS, KEY_FILE, f"{KEY_FILE}.new", MANIFEST})
"""All that an unfinished copy may hold; a folder with anything else in it is somebody's."""
_MAX_MANIFEST_BYTES: Final = 1 << 16
_STEP_PAGES: Final = 2048
_PIECE_BYTES: Final = 4 << 20
_SPARE_BYTES: Final = 16 << 20
"""Asked for beyond what is copied: the folders' own blocks, and the log of a database that is being verified."""

_IN_SEGMENTS: Final = "segment > 0"
_IN_BUCKET: Final = "segment = 0"
_IN_SEGMENTS_AND_NOT_PRUNED: Final = "segment > 0 AND arrival NOT IN (SELECT model FROM prunings)"

Progress = Callable[[str, int, int], None]
"""What is being done, how far it is, and the whole of it: pages of the database, then bytes of models."""
Check = Callable[[LedgerSource], None]
"""Looks at the finished copy before it gets its name; raises when it is not to have it."""


class BackupError(DagAcflError):
    """A backup cannot be made or put back; the message names what stands in the way."""

    code = "backup-refused"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds.

    Attributes:
        ledger: Id of the first transaction.
        revision: Of the database's tables.
        transactions: How many, genesis included.
        models: How many lie in segment files; smaller ones are rows of the database.
        bucket_models: How many lie in a bucket, and are not in the backup.
        bucket: Which, at the time.
        model_bytes: What those take.
        damaged: How many of those had other bytes than their digest, or none, when they were copied.
        database_bytes: Size of the database.
        database_sha256: Its digest.
        has_key: Whether the server's private key is in it.
        created_at: When the copy was finished, RFC 3339 UTC.
        version: Release that made it.
    """

    ledger: str
    revision: str
    transactions: int
    models: int
    model_bytes: int
    damaged: int
    database_bytes: int
    database_sha256: str
    has_key: bool
    created_at: str
    version: str
    bucket_models: int = 0
    bucket: str = ""


@dataclass(frozen=True, slots=True)
class _Copied:
    models: int
    model_bytes: int
    damaged: tuple[bytes, ...]
    """Digests of models whose bytes are others, or gone."""


# -- the two commands -----------------------------------------------------------------------------------


def backup(
    database: Path,
    target: Path,
    *,
    key: Path | None = None,
    s3: S3Address | None = None,
    check: Check | None = None,
    progress: Progress,
) -> Manifest:
    """Copy a ledger while its server writes; ``target`` appears only when all of it is on disk.

    Args:
        database: SQLite file of the server; its models lie beside it.
        target: Folder to make, in one that exists.
        key: The server's key file, to be copied too.
        s3: The bucket, where the server has one.
        check: Looks at the copy before it is given its name.
        progress: Called often.

    Raises:
        BackupError: There is something at ``target``, too little space, another backup at work, or models in a bucket
            that is not named.
        StoreError: The database cannot be read, or the disk is full.
    """
    if not target.name or not target.absolute().parent.is_dir():
        raise BackupError(f"{target.absolute().parent} is no folder to make {target.name or 'a backup'} in")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupError(f"{target} exists already; choose another name, a backup is never written over")
    revision = _revision(database, must_be_current=check is not None)
    if s3 is None and _bucket_models(database, "mode=rw"):
        raise BackupError(f"models of {database} lie in a bucket; say in which: DAG_ACFL_BLOBS__S3_URL")
    draft = target.with_name(f"{target.name}.partial")
    with our_errors(f"the backup {target} is not finished (run it again to go on)"), _at_work_on(draft):
        copied = _copy(database, draft, progress=progress)
        if key is not None:
            _copy_key(key, draft / KEY_FILE)
        if check is not None:
            _look_at(draft / DATABASE, check, s3=s3)
        ledger, transactions = _ledger_of(draft / DATABASE)
        in_bucket = _bucket_models(draft / DATABASE, "immutable=1")
        manifest = Manifest(
            ledger=ledger,
            revision=revision,
            transactions=transactions,
            models=copied.models,
            model_bytes=copied.model_bytes,
            damaged=len(copied.damaged),
            database_bytes=(draft / DATABASE).stat().st_size,
            database_sha256=_sha256_of(draft / DATABASE),
            has_key=key is not None,
            created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            version=installed_version(),
            bucket_models=in_bucket,
            bucket=str(s3) if in_bucket else "",
        )
        text = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=2) + "\n"
        (draft / MANIFEST).write_text(text, "ascii")
        _sync(draft / MANIFEST, draft)
        draft.rename(target)
        _sync(target.absolute().parent)
    return manifest


def restore(
    source: Path,
    database: Path,
    *,
    key: Path,
    s3: S3Address | None = None,
    check: Check | None = None,
    progress: Progress,
) -> Manifest:
    """Put a backup where a server will look for its ledger; nothing that is there is written over.

    Args:
        source: Folder of ``backup``.
        database: SQLite file to make; its models come beside it.
        key: Where the server's key belongs; written when the backup has it and there is none.
        s3: Where the models of the backup's bucket are now.
        check: Looks at the restored ledger before the database is given its name.
        progress: Called often.

    Raises:
        BackupError: ``source`` is no whole backup, a ledger or another server's key is there, too little space, or
            models in a bucket that is not named.
        StoreError: The disk is full or fails, or the backup was made by a newer release.
    """
    manifest = read_manifest(source)
    draft = database.with_name(f"{database.name}.restoring")
    models = Path(f"{database}-models")
    if manifest.bucket_models and s3 is None:
        raise BackupError(
            f"{manifest.bucket_models} models of {source} lie in {manifest.bucket}; say where they are now: "
            "DAG_ACFL_BLOBS__S3_URL"
        )
    _refuse_what_is_there(source, manifest, database, draft=draft, key=key)
    with our_errors(f"the ledger in {database.parent} is not restored (run it again to go on)"):
        database.parent.mkdir(parents=True, exist_ok=True)
        with _at_work_on(draft):
            if models.exists():  # an earlier run ended between the two renames below
                models.rename(draft / _MODELS)
            _make_room(draft, manifest.database_bytes + manifest.model_bytes)
            _copy_file(source / DATABASE, draft / DATABASE, progress=progress)
            if check is None and _sha256_of(draft / DATABASE) != manifest.database_sha256:
                raise BackupError(f"{source / DATABASE} is not as it was written; restore it without --no-verify")
            _copy_models(draft / DATABASE, source / _MODELS, draft / _MODELS, progress=progress)
            if check is not None:
                _look_at(draft / DATABASE, check, s3=s3)
            _renew_epoch(draft / DATABASE)
            if manifest.has_key and not key.exists():
                key.parent.mkdir(parents=True, exist_ok=True)
                _copy_key(source / KEY_FILE, key)
            # Positions in the peers' journals that a newer ledger in this folder had reached: this one has not.
            (key.parent / "gossip-cursors.json").unlink(missing_ok=True)
            # The database last: it is by its file that a server, and the next restore, see a ledger.
            if (draft / _MODELS).exists():
                (draft / _MODELS).rename(models)
                _sync(database.parent)
            (draft / DATABASE).rename(database)
            _sync(database.parent)
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def read_manifest(source: Path) -> Manifest:
    """What a backup says it holds.

    Raises:
        BackupError: It is no backup, or not one that this release can read.
    """
    path = source / MANIFEST
    try:
        with path.open("rb") as file:
            read = json.loads(file.read(_MAX_MANIFEST_BYTES))
        if not isinstance(read, dict) or read.pop("format", None) != FORMAT:
            raise BackupError(f"{path} is of no format that this release knows ({FORMAT})")
        manifest = Manifest(**read)
    except OSError as error:
        unfinished = " (it was interrupted: make it again)" if source.name.endswith(".partial") else ""
        raise BackupError(f"{source} is no backup: {MANIFEST}: {error.strerror}{unfinished}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise BackupError(f"{path} cannot be read; it is not as `dag-acfl ledger backup` wrote it") from error
    for field, kind in Manifest.__annotations__.items():
        if type(getattr(manifest, field)) is not kind:
            raise BackupError(f"{path}: {field} is no {kind.__name__}")
    return manifest


def _refuse_what_is_there(source: Path, manifest: Manifest, database: Path, *, draft: Path, key: Path) -> None:
    models = Path(f"{database}-models")
    for place in (database, Path(f"{database}-wal")):
        if place.exists():
            raise BackupError(f"{place} exists already; choose another folder with --data-dir, or move it away")
    was_interrupted = (draft / DATABASE).exists() and not (draft / _MODELS).exists()
    if models.exists() and not was_interrupted:
        raise BackupError(f"{models} exists already; choose another folder with --data-dir, or move it away")
    log = source / f"{DATABASE}-wal"
    if log.exists() and log.stat().st_size:
        raise BackupError(f"a program has {source / DATABASE} open, or left {log.name} behind; end it, or open it once")
    if manifest.has_key and key.exists():
        ours, theirs = (public_key_of(load_key(each)) for each in (key, source / KEY_FILE))
        if ours != theirs:
            raise BackupError(f"{key} is the key of another server than the backup's; move one of the two away")


# -- PostgreSQL, which copies itself ----------------------------------------------------------------------


def sqlite_file(database_url: str) -> Path | None:
    """The file of a SQLite ledger; None where the ledger lies in PostgreSQL.

    Raises:
        StoreLocationError: The URL is neither.
    """
    url = parse_url(database_url)
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else None


def pg_dump_commands(settings: Settings, target: Path) -> str:
    """What to type instead of ``backup``; the models' folder after the rows that name what lies in it."""
    models = settings.data_dir / "models"
    folder = f" && cp -a --sparse=always {shlex.quote(str(models))} {shlex.quote(str(target))}/"
    return (
        "PostgreSQL makes its own copies while it serves: "
        f"mkdir -m 700 {shlex.quote(str(target))} && pg_dump --format=custom "
        f"--file={shlex.quote(str(target / 'ledger.dump'))} {_libpq_url(settings)}"
        + (folder if settings.blobs.store == "directory" or models.is_dir() else "")
        + ("" if settings.blobs.s3 is None else f"; models in {settings.blobs.s3} stay there: see docs/operations.md")
    )


def pg_restore_commands(settings: Settings, source: Path) -> str:
    """What to type instead of ``restore``, into an empty database."""
    models = source / "models"
    folder = f"cp -a --sparse=always {shlex.quote(str(models))} {shlex.quote(str(settings.data_dir))}/ && "
    return (
        "PostgreSQL restores its own copies, into an empty database: "
        + (folder if settings.blobs.store == "directory" or models.is_dir() else "")
        + f"pg_restore --exit-on-error --no-owner --dbname={_libpq_url(settings)} "
        f"{shlex.quote(str(source / 'ledger.dump'))} && dag-acfl db renew-epoch "
        f"--data-dir {shlex.quote(str(settings.data_dir))} "
        f"--database-url {_libpq_url(settings, 'postgresql+psycopg')}, then prove it: dag-acfl ledger verify"
        + (
            ""
            if settings.blobs.s3 is None
            else f"; its models are to be in {settings.blobs.s3}: see docs/operations.md"
        )
    )


def _libpq_url(settings: Settings, scheme: str = "postgresql") -> str:
    """The database's URL as PostgreSQL's own programs take it; no password, which they ask for or read in ~/.pgpass."""
    url = parse_url(settings.resolved_database_url)
    bare = URL.create(scheme, url.username, host=url.host, port=url.port, database=url.database, query=url.query)
    return shlex.quote(bare.render_as_string())


# -- the database ---------------------------------------------------------------------------------------


def _revision(database: Path, *, must_be_current: bool) -> str:
    if not database.is_file():
        raise BackupError(f"there is no ledger in {database.parent}")
    url = _url(database)
    found = schema.current(url)
    if found is None:
        raise BackupError(f"{database} holds no ledger")
    if must_be_current and found != schema.head():
        raise BackupError(
            f"{database} has revision {found}, and this release verifies {schema.head()}; copy it with the release "
            "that serves it, or with --no-verify"
        )
    return found


def _url(database: Path) -> str:
    return URL.create("sqlite", database=str(database.absolute())).render_as_string(hide_password=False)


def _opened(database: Path, how: str) -> sqlite3.Connection:
    uri = f"{database.absolute().as_uri()}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None)


def _copy(database: Path, draft: Path, *, progress: Progress) -> _Copied:
    """Database and models; anew from a later moment when models that the first one named were dropped meanwhile."""
    while True:
        _copy_snapshot(database, draft, progress=progress)
        copied = _copy_models(draft / DATABASE, Path(f"{database}-models"), draft / _MODELS, progress=progress)
        if not copied.damaged or _places(database, copied.damaged) == _places(draft / DATABASE, copied.damaged):
            return copied


def _places(database: Path, digests: tuple[bytes, ...]) -> list[tuple[int, int]]:
    with closing(_opened(database, "mode=rw")) as connection:
        query = f"SELECT segment, starts_at FROM models WHERE digest = ? AND {_named(connection)}"  # noqa: S608
        return [row for digest in digests for row in connection.execute(query, (digest,))]


def _copy_snapshot(database: Path, draft: Path, *, progress: Progress) -> None:
    """The database at one moment. In WAL mode nobody waits for a reader, however long it takes."""
    fresh = draft / f"{DATABASE}.new"
    with closing(_opened(database, "mode=rw")) as source:
        # SQLite starts a backup anew whenever another process commits in between, under load for ever. Not when
        # the connection that it reads from is inside a transaction: that is one snapshot from first page to last.
        source.execute("BEGIN")
        (ledger,) = source.execute("SELECT id FROM transactions WHERE arrival = 0").fetchone() or (None,)
        if ledger is None:
            raise BackupError(f"there is no ledger in {database} yet; make one with: dag-acfl ledger init")
        if (draft / DATABASE).exists() and _ledger_of(draft / DATABASE)[0] != bytes(ledger).hex():
            raise BackupError(f"{draft} is the unfinished backup of another ledger; remove it")
        (pages,), (page_bytes,) = (source.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
        _make_room(draft, pages * page_bytes + _segment_bytes(source))
        with closing(sqlite3.connect(fresh, isolation_level=None)) as copy:
            source.backup(
                copy, pages=_STEP_PAGES, progress=lambda _, left, whole: progress("database", whole - left, whole)
            )
    _sync(fresh)
    fresh.rename(draft / DATABASE)


def _ledger_of(database: Path) -> tuple[str, int]:
    with closing(_opened(database, "immutable=1")) as copy:
        (first,) = copy.execute("SELECT id FROM transactions WHERE arrival = 0").fetchone() or (b"",)
        (count,) = copy.execute("SELECT count(*) FROM transactions").fetchone()
    return bytes(first).hex(), int(count)


def _bucket_models(database: Path, how: str) -> int:
    """How many models lie in a bucket; those that were pruned do not."""
    with closing(_opened(database, how)) as connection:
        condition = _named(connection).replace(_IN_SEGMENTS, _IN_BUCKET)
        (count,) = connection.execute(f"SELECT count(*) FROM models WHERE {condition}").fetchone()  # noqa: S608 -- ours
    return int(count)


def _renew_epoch(database: Path) -> None:
    """Peers and readers shall see that this journal is not the one that had gone on from here.

    One of a release without epochs draws its first when it is brought up to date.
    """
    with closing(_opened(database, "mode=rw")) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'journal'").fetchone():
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("UPDATE journal SET epoch = randomblob(16)")
    _sync(database)


def _look_at(database: Path, check: Check, *, s3: S3Address | None) -> None:
    with open_store(_url(database), data_dir=database.parent, s3=s3) as store:
        check(StoreSource(store))


# -- models in segment files ----------------------------------------------------------------------------


def _named(connection: sqlite3.Connection) -> str:
    """Condition of the models that lie in segments: those that were pruned are named and not there."""
    if "segment" not in {row[1] for row in connection.execute("PRAGMA table_info(models)")}:
        return "0"  # of a release that had no segment files
    has_prunings = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'prunings'").fetchone()
    return _IN_SEGMENTS_AND_NOT_PRUNED if has_prunings else _IN_SEGMENTS


def _segment_bytes(connection: sqlite3.Connection) -> int:
    query = f"SELECT coalesce(sum(size), 0) FROM models WHERE {_named(connection)}"  # noqa: S608 -- ours
    return int(connection.execute(query).fetchone()[0])


def _copy_models(database: Path, source: Path, target: Path, *, progress: Progress) -> _Copied:
    """Each model that ``database``, a copy that nobody writes to, names in a segment of ``source``."""
    models = done = 0
    damaged: list[bytes] = []
    with closing(_opened(database, "immutable=1")) as rows:
        whole = _segment_bytes(rows)
        condition = _named(rows)
        if condition == "0":
            return _Copied(0, 0, ())
        named = rows.execute(
            f"SELECT segment, starts_at, size, digest FROM models WHERE {condition} ORDER BY segment, starts_at"  # noqa: S608
        )
        pair: _SegmentPair | None = None
        try:
            for segment, start, size, digest in named:
                name = segment_name(segment)
                if pair is None or pair.name != name:
                    if pair is not None:
                        pair.close()
                    target.mkdir(exist_ok=True)
                    pair = _SegmentPair(source, target, name)
                if not pair.copy(start, size, bytes(digest)):
                    damaged.append(bytes(digest))
                models, done = models + 1, done + size
                progress("models", done, whole)
            if pair is not None:
                pair.close()
                pair = None
        finally:
            if pair is not None:
                pair.abandon()
        _make_segments_to_drop_from(rows, target)
    if target.exists():
        _sync(target)
    return _Copied(models, done, tuple(damaged))


def _make_segments_to_drop_from(rows: sqlite3.Connection, target: Path) -> None:
    """A server gives back the space of what it has pruned, and expects a file there, were it empty."""
    if rows.execute("SELECT 1 FROM sqlite_master WHERE name = 'drops'").fetchone():
        for (segment,) in rows.execute("SELECT DISTINCT segment FROM drops WHERE segment > 0"):
            target.mkdir(exist_ok=True)
            (target / segment_name(segment)).touch()


class _SegmentPair:
    """A segment file and its copy."""

    def __init__(self, source: Path, target: Path, name: str) -> None:
        self.name = name
        try:
            self._from = os.open(source / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BackupError(f"{source / name} is missing; models of the ledger lie in it") from None
        try:
            self._to = os.open(target / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except BaseException:
            os.close(self._from)
            raise
        self._earlier = self._there = os.fstat(self._to).st_size

    def copy(self, start: int, size: int, digest: bytes) -> bool:
        """Copy one model to where it lies in the original; whether its bytes are those of its digest."""
        stop = start + size
        if stop <= self._earlier and self._digest_there(start, stop) == digest:
            return True  # an earlier run has brought it
        if _is_hole(self._from, start, stop):
            self._there = max(self._there, stop)
            os.ftruncate(self._to, self._there)
            return False  # it reads as zeros, here as there
        found = hashlib.sha256()
        for piece, at in _pieces(self._from, start, stop):
            found.update(piece)
            view = memoryview(piece)
            while view:
                view = view[os.pwrite(self._to, view, at + len(piece) - len(view)) :]
        self._there = max(self._there, os.fstat(self._to).st_size)
        return found.digest() == digest

    def _digest_there(self, start: int, stop: int) -> bytes:
        found = hashlib.sha256()
        for piece, _ in _pieces(self._to, start, stop):
            found.update(piece)
        return found.digest()

    def close(self) -> None:
        """Let go of both files, the copy durable."""
        os.fsync(self._to)
        self.abandon()

    def abandon(self) -> None:
        """Let go of both files."""
        os.close(self._from)
        os.close(self._to)


def _pieces(file: int, start: int, stop: int) -> Iterator[tuple[bytes, int]]:
    while start < stop:
        piece = os.pread(file, min(_PIECE_BYTES, stop - start), start)
        if not piece:
            return  # the file ends too early: what is left hashes to something else
        yield piece, start
        start += len(piece)


def _is_hole(file: int, start: int, stop: int) -> bool:
    try:
        return os.lseek(file, start, os.SEEK_DATA) >= stop
    except OSError as error:
        return error.errno == errno.ENXIO  # nothing but a hole from here to the end


# -- files ----------------------------------------------------------------------------------------------


@contextmanager
def _at_work_on(draft: Path) -> Iterator[None]:
    """A folder for a copy that is being made, by one program at a time."""
    draft.mkdir(mode=0o700, exist_ok=True)
    folder = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"another program is at work on {draft}") from None
        strangers = sorted(each.name for each in draft.iterdir() if each.name not in _NAMES)
        if strangers:
            raise BackupError(f"{draft} holds what no backup wrote ({strangers[0]}); move it away")
        for leftover in _LOGS:
            (draft / leftover).unlink(missing_ok=True)
        yield
    finally:
        os.close(folder)
        with suppress(OSError):
            draft.rmdir()  # when nothing was begun


def _make_room(draft: Path, wanted_bytes: int) -> None:
    """See that there is space for a copy, less what an earlier run has brought."""
    there = sum(512 * path.stat().st_blocks for path in (draft / _MODELS).glob("*.segment"))
    wanted = max(wanted_bytes - there, 0) + _SPARE_BYTES
    free = shutil.disk_usage(draft).free
    if free < wanted:
        raise BackupError(
            f"{draft.absolute().parent} has {free / 1e6:,.0f} MB free and {wanted / 1e6:,.0f} MB are needed; "
            "free some space or choose another place"
        )


def _copy_file(source: Path, target: Path, *, progress: Progress) -> None:
    with source.open("rb") as original, target.open("wb") as copy:
        whole = os.fstat(original.fileno()).st_size
        while piece := original.read(_PIECE_BYTES):
            copy.write(piece)
            progress("database", copy.tell(), whole)
        copy.flush()
        os.fsync(copy.fileno())


def _copy_key(source: Path, target: Path) -> None:
    load_key(source)  # that it is one, and its owner's only
    draft = target.with_name(f"{target.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as copy:
        copy.write(source.read_bytes())
        copy.flush()
        os.fsync(copy.fileno())
    draft.rename(target)
    _sync(target.parent)


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(*places: Path) -> None:
    """Make files, and the names in folders, durable."""
    for place in places:
        opened: Any = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
