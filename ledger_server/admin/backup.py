"""Copies of a ledger in SQLite that are made while its server writes, and put back.

A backup is a folder like a server's own, so ``ledger verify`` and ``ledger inspect`` read it as it is:

    ledger.sqlite3    the database as it was at one time
    models/ab/cdef…   the models that it names, where they lie in a directory: hard links if the disk is the same
    server-key.pem    only when asked for: the server's identity

The database is copied first, from one snapshot. Models are durable before a row names them and never change, so all
that the copy names is there afterwards. Models in a bucket stay there. A copy gets its name (``TARGET``, or the
database's) when all of it is on disk and proven; one that fails is removed.
"""

import os
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

from fl_core.dag.signature import public_key_of
from fl_core.errors import DagAcflError
from fl_core.types import Digest
from fl_core.verify import LedgerSource
from ledger_server.admin.store_source import StoreSource
from ledger_server.keys import KEY_FILE, load_key
from ledger_server.settings import Settings
from ledger_server.store import open_store
from ledger_server.store.blobs.directory import DirectoryBlobs, sync_folder
from ledger_server.store.engine import our_errors, parse_url
from ledger_server.store.opening import MODELS_FOLDER

DATABASE: Final = "ledger.sqlite3"
_STEP_PAGES: Final = 2048

Progress = Callable[[str, int, int], None]
"""What is being copied, how much is done, and the whole of it: pages of the database, then models."""
Check = Callable[[LedgerSource], None]
"""Looks at the finished copy before it gets its name; raises when it is not to have it."""


class BackupError(DagAcflError):
    """A backup cannot be made or put back; the message names what stands in the way."""

    code = "backup-refused"


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied.

    Attributes:
        transactions: How many, genesis included.
        models: Models whose bytes the ledger has.
        place: Where these lie: ``database``, ``directory``, or ``s3`` (then they are not in the copy).
        missing: How many of a directory's were not there to be copied.
    """

    transactions: int
    models: int
    place: str
    missing: int


def backup(settings: Settings, target: Path, *, with_key: bool, check: Check | None, progress: Progress) -> Copied:
    """Copy a server's ledger while it writes; ``target`` appears only when all of it is on disk.

    Args:
        settings: The server's.
        target: Folder to make, in one that exists.
        with_key: Whether to copy the server's private key too.
        check: Looks at the copy before it is given its name.
        progress: Called often.

    Raises:
        BackupError: There is something at ``target``, or no ledger in SQLite to copy.
        StoreError: The database cannot be read, or the disk is full.
    """
    database = _sqlite_file(settings, target, restoring=False)
    if not target.name or not target.absolute().parent.is_dir():
        raise BackupError(f"{target.absolute().parent} is no folder to make {target.name} in")
    draft = target.with_name(f"{target.name}.partial")
    if target.exists():
        raise BackupError(f"{target} exists already; choose another name, a backup is never written over")
    if draft.exists():
        raise BackupError(f"{draft} exists: another backup is at work, or one was killed; then remove it")
    with our_errors(f"the backup {target} is not made"):
        draft.mkdir(mode=0o700)
        try:
            copied = _copy(database, settings.data_dir, draft / DATABASE, draft, link=True, progress=progress)
            if with_key:
                _copy_key(settings.data_dir / KEY_FILE, draft / KEY_FILE)
            _look_at(draft / DATABASE, draft, check, settings)
            sync_folder(draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        draft.rename(target)
        sync_folder(target.absolute().parent)
    return copied


def restore(settings: Settings, source: Path, *, check: Check | None, progress: Progress) -> Copied:
    """Put a backup where a server will look for its ledger; nothing that is there is written over.

    Args:
        settings: The server's.
        source: Folder of ``backup``.
        check: Looks at the restored ledger before the database is given its name.
        progress: Called often.

    Raises:
        BackupError: ``source`` is no finished backup; or there is a ledger, or another server's key.
        StoreError: The disk is full or fails, or the backup was made by a newer release.
    """
    database = _sqlite_file(settings, source, restoring=True)
    if source.name.endswith(".partial") or not (source / DATABASE).is_file():
        raise BackupError(f"{source} is no finished backup of dag-acfl ledger backup")
    draft = database.with_name(f"{database.name}.restoring")
    models, key = settings.data_dir / MODELS_FOLDER, settings.data_dir / KEY_FILE
    for place in (database, Path(f"{database}-wal"), draft, models):
        if place.exists():
            raise BackupError(f"{place} exists already; choose another folder with --data-dir, or move it away")
    has_key = (source / KEY_FILE).exists()
    if has_key and key.exists() and public_key_of(load_key(key)) != public_key_of(load_key(source / KEY_FILE)):
        raise BackupError(f"{key} is the key of another server than the backup's; move one of the two away")
    with our_errors(f"the ledger in {settings.data_dir} is not restored"):
        for folder in (settings.data_dir, database.parent):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            copied = _copy(source / DATABASE, source, draft, settings.data_dir, link=False, progress=progress)
            _look_at(draft, settings.data_dir, check, settings)
            with closing(_opened(draft)) as restored:
                # Peers and readers shall see that this journal is not the one that had gone on from here.
                restored.execute("PRAGMA synchronous=FULL")
                restored.execute("UPDATE journal SET epoch = randomblob(16)")
            if has_key and not key.exists():
                _copy_key(source / KEY_FILE, key)
        except BaseException:
            shutil.rmtree(models, ignore_errors=True)
            for suffix in ("", "-wal", "-shm"):
                Path(f"{draft}{suffix}").unlink(missing_ok=True)
            raise
        # Positions in the peers' journals that a newer ledger in this folder had reached: this one has not.
        (settings.data_dir / "gossip-cursors.json").unlink(missing_ok=True)
        # The database last: it is by its file that a server, and the next restore, see a ledger.
        sync_folder(settings.data_dir)
        draft.rename(database)
        sync_folder(database.parent)
    return copied


def _sqlite_file(settings: Settings, folder: Path, *, restoring: bool) -> Path:
    """The database; or, where it is PostgreSQL's, which copies itself, a refusal that says what to type instead."""
    url = parse_url(settings.resolved_database_url)
    if url.get_backend_name() == "sqlite":
        return Path(str(url.database))
    # Without its password, which PostgreSQL's programs ask for or read in ~/.pgpass.
    bare = URL.create("postgresql", url.username, host=url.host, port=url.port, database=url.database, query=url.query)
    database, dump = shlex.quote(bare.render_as_string()), shlex.quote(str(folder / "ledger.dump"))
    home = shlex.quote(str(settings.data_dir))
    here, there = (shlex.quote(str(each / MODELS_FOLDER)) for each in (settings.data_dir, folder))
    has_models = (folder if restoring else settings.data_dir).joinpath(MODELS_FOLDER).is_dir()
    if restoring:
        ours = shlex.quote(bare.set(drivername="postgresql+psycopg").render_as_string())
        steps = [f"cp -a {there} {here}"] if has_models else []
        steps.append(f"pg_restore --exit-on-error --no-owner --dbname={database} {dump}")
        steps.append(f"dag-acfl db renew-epoch --data-dir {home} --database-url {ours}")
    else:  # models after the rows that name them
        steps = [f"mkdir -m 700 {shlex.quote(str(folder))}", f"pg_dump --format=custom --file={dump} {database}"]
        steps += [f"cp -a {here} {there}"] if has_models else []
    raise BackupError("PostgreSQL copies itself: " + " && ".join(steps))


def _opened(database: Path) -> sqlite3.Connection:
    # A backup may lie on a medium that cannot be written: without a log beside it, nobody writes to it.
    how = "mode=rw" if Path(f"{database}-wal").exists() or os.access(database, os.W_OK) else "immutable=1"
    return sqlite3.connect(f"{database.absolute().as_uri()}?{how}", uri=True, timeout=10, isolation_level=None)


def _copy(database: Path, home: Path, to_database: Path, to_home: Path, *, link: bool, progress: Progress) -> Copied:
    """Database and models; anew when models that the snapshot names were pruned while they were copied."""
    source, target = DirectoryBlobs(home / MODELS_FOLDER), DirectoryBlobs(to_home / MODELS_FOLDER)
    while True:
        _copy_snapshot(database, to_database, progress)
        with closing(_opened(to_database)) as copy:
            (place,) = copy.execute("SELECT models FROM journal").fetchone() or ("",)
            (transactions,) = copy.execute("SELECT count(*) FROM transactions").fetchone()
            held = _held(copy)
        if not place:
            raise BackupError(f"there is no ledger in {database} yet; make one with: dag-acfl ledger init")
        if place != "directory":
            return Copied(transactions, len(held), place, missing=0)
        target.claim(source.owner() or "")
        missing = set()
        for number, digest in enumerate(sorted(held), 1):
            if not _copy_file(source.path(digest), target.path(digest), link=link):
                missing.add(digest)
            progress("models", number, len(held))
        for folder in target.folder.glob("??/"):
            sync_folder(folder)
        with closing(_opened(database)) as now:
            if missing <= _held(now):
                return Copied(transactions, len(held), place, missing=len(missing))


def _copy_snapshot(database: Path, target: Path, progress: Progress) -> None:
    """The database at one time. In WAL mode nobody waits for a reader, however long it takes."""
    with closing(_opened(database)) as source, closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # SQLite starts a backup anew whenever another process commits in between, under load for ever. Not when
        # the connection that it reads from is inside a transaction: that is one snapshot from first page to last.
        source.execute("BEGIN")
        source.execute("SELECT 1 FROM sqlite_master").fetchone()
        source.backup(copy, pages=_STEP_PAGES, progress=lambda _, left, whole: progress("pages", whole - left, whole))
    _sync(target)


def _held(connection: sqlite3.Connection) -> set[Digest]:
    rows = connection.execute("SELECT digest FROM models WHERE pruned_at_ms IS NULL")
    return {Digest(bytes(digest).hex()) for (digest,) in rows}


def _copy_file(source: Path, target: Path, *, link: bool) -> bool:
    """Copy or link a file unless it is there; False if there is none to copy."""
    if target.exists():
        return True
    if not source.exists():
        return False
    try:
        if link:
            target.hardlink_to(source)
            return True
    except OSError:  # another disk, a file system without hard links; or it is gone meanwhile
        pass
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        return False
    _sync(target)
    return True


def _copy_key(source: Path, target: Path) -> None:
    load_key(source)  # that it is one, and its owner's only
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as copy:
        copy.write(source.read_bytes())
    _sync(target)


def _look_at(database: Path, home: Path, check: Check | None, settings: Settings) -> None:
    if check is not None:
        url = URL.create("sqlite", database=str(database.absolute())).render_as_string(hide_password=False)
        with open_store(url, data_dir=home, s3=settings.blobs.s3) as store:
            check(StoreSource(store))


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
