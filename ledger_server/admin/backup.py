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
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy.engine import URL

from fl_core.errors import DagAcflError
from fl_core.types import Digest
from fl_core.verify import LedgerSource
from ledger_server.admin.store_source import StoreSource
from ledger_server.keys import KEY_FILE, key_file, load_key
from ledger_server.private_files import write_private
from ledger_server.settings import Settings
from ledger_server.store import open_store
from ledger_server.store.blobs.directory import DirectoryBlobs, sync
from ledger_server.store.engine import our_errors, parse_url
from ledger_server.store.errors import SchemaBehindError
from ledger_server.store.opening import MODELS_FOLDER

DATABASE: Final = "ledger.sqlite3"
_STEP_PAGES: Final = 2048

Progress = Callable[[str, int, int], None]  # what is being copied, how much is done, the whole: pages, then models
Check = Callable[[LedgerSource], None]  # looks at the copy before it gets its name; raises when it is not to have it


class BackupError(DagAcflError):
    """A backup cannot be made or put back; the message names what stands in the way."""

    code = "backup-refused"


class Copied(NamedTuple):
    transactions: int
    models: int
    place: str  # database, directory, or s3: these are not in the copy
    missing: int  # of a directory's: what was not there to be copied


def backup(settings: Settings, target: Path, *, with_key: bool, check: Check | None, progress: Progress) -> Copied:
    """Copy a server's ledger while it writes; ``target`` appears only when all of it is on disk.

    Raises BackupError or StoreError, and leaves nothing.
    """
    database = _sqlite_file(settings, "pg_dump --format=custom --compress=0 --file={}", target)
    if not target.name or not target.absolute().parent.is_dir():
        raise BackupError(f"{target.absolute().parent} is no folder to make {target.name} in")
    draft = target.with_name(f"{target.name}.partial")
    if target.exists():
        raise BackupError(f"{target} exists already; choose another name")
    if draft.exists():
        raise BackupError(f"{draft} is an unfinished backup; if none is at work, remove it and run this again")
    with our_errors(f"the backup {target} is not made"):
        draft.mkdir(mode=0o700)
        try:
            copied = _copy(database, settings.data_dir, draft / DATABASE, draft, link=True, progress=progress)
            if with_key:
                load_key(key_file(settings))  # that it is one, and its owner's only
                _copy_file(key_file(settings), draft / KEY_FILE)
            _look_at(draft / DATABASE, draft, check, settings)
            sync(draft)
        except SchemaBehindError:
            shutil.rmtree(draft, ignore_errors=True)
            raise BackupError(
                "the ledger is an older release's: back it up with that one, or with --no-verify before you upgrade it"
            ) from None
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        draft.rename(target)
        sync(target.absolute().parent)
    return copied


def restore(settings: Settings, source: Path, *, check: Check | None, progress: Progress) -> Copied:
    """Put a backup where a server will look for its ledger; nothing that is there is written over.

    Raises BackupError or StoreError, and leaves nothing.
    """
    database = _sqlite_file(settings, "pg_restore --exit-on-error --no-owner {} --dbname", source)
    if source.name.endswith(".partial") or not (source / DATABASE).is_file():
        raise BackupError(f"{source} is no finished backup of dag-acfl ledger backup")
    draft = database.with_name(f"{database.name}.restoring")
    models, key, its_key = settings.data_dir / MODELS_FOLDER, key_file(settings), source / KEY_FILE
    for place in (database, Path(f"{database}-wal"), draft, models):
        if place.exists():
            raise BackupError(f"{place} exists already; choose another folder with --data-dir, or move it away")
    if its_key.exists() and key.exists() and load_key(key).public_key() != load_key(its_key).public_key():
        raise BackupError(f"{key} is the key of another server than the backup's; move one of the two away")
    with our_errors(f"the ledger in {settings.data_dir} is not restored"):
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            copied = _copy(source / DATABASE, source, draft, settings.data_dir, link=False, progress=progress)
            _look_at(draft, settings.data_dir, check, settings, upgrade=True)
            with closing(_opened(draft)) as restored:
                # Peers and readers shall see that this journal is not the one that had gone on from here.
                restored.execute("PRAGMA synchronous=FULL")
                restored.execute("UPDATE journal SET epoch = randomblob(16)")
                with suppress(sqlite3.OperationalError):  # of an older release, which noted no key
                    restored.execute("UPDATE journal SET server_key = NULL")
            if its_key.exists() and settings.server_key is None:  # else it lies where others put it
                _copy_file(its_key, key)
        except BaseException:
            shutil.rmtree(models, ignore_errors=True)
            for each in database.parent.glob(f"{draft.name}*"):
                each.unlink()
            raise
        # Positions in the peers' journals that a newer ledger in this folder had reached: this one has not.
        (settings.data_dir / "gossip-cursors.json").unlink(missing_ok=True)
        # The database last: it is by its file that a server, and the next restore, see a ledger.
        sync(settings.data_dir)
        draft.rename(database)
        sync(database.parent)
    return copied


def _sqlite_file(settings: Settings, instead: str, folder: Path) -> Path:
    """The database; or, where it is PostgreSQL's, which copies itself, a refusal that says what to type instead."""
    url = parse_url(settings.resolved_database_url)
    if url.get_backend_name() == "sqlite":
        return Path(str(url.database))
    # Without its password, which PostgreSQL's programs ask for or read in ~/.pgpass.
    bare = URL.create("postgresql", url.username, host=url.host, port=url.port, database=url.database, query=url.query)
    command = f"{instead.format(shlex.quote(str(folder / 'ledger.dump')))} {shlex.quote(bare.render_as_string())}"
    raise BackupError(f"PostgreSQL copies itself: {command} (the whole way: docs/operations.md, Backup and restore)")


def _copy(database: Path, home: Path, to_database: Path, to_home: Path, *, link: bool, progress: Progress) -> Copied:
    """Database and models; anew when models that the snapshot names were pruned while they were copied."""
    source, target = DirectoryBlobs(home / MODELS_FOLDER), DirectoryBlobs(to_home / MODELS_FOLDER)
    to_database.touch(mode=0o600)
    while True:
        with closing(_opened(database)) as live, closing(sqlite3.connect(to_database, isolation_level=None)) as copy:
            # Inside a transaction, which is one snapshot and, in WAL mode, in nobody's way. Outside of one, SQLite
            # would start anew whenever another process commits in between: under load for ever.
            live.execute("BEGIN")
            live.execute("SELECT 1 FROM sqlite_master").fetchone()
            live.backup(copy, pages=_STEP_PAGES, progress=lambda _, left, all_: progress("pages", all_ - left, all_))
            facts = "SELECT models, (SELECT count(*) FROM transactions) FROM journal"
            place, transactions = copy.execute(facts).fetchone() or ("", 0)
            held = _held(copy)
        sync(to_database)
        if not place:
            raise BackupError(f"there is no ledger in {database} yet; make one with: dag-acfl ledger init")
        if place != "directory":
            return Copied(transactions, len(held), place, missing=0)
        target.claim(source.owner() or "", ledger="")
        missing = set(held)
        for number, digest in enumerate(sorted(held), 1):
            with suppress(FileNotFoundError):
                _copy_file(source.path(digest), target.path(digest), link=link)
                missing.remove(digest)
            progress("models", number, len(held))
        for folder in target.folder.glob("??/"):
            sync(folder)
        with closing(_opened(database)) as now:
            if missing <= _held(now):
                return Copied(transactions, len(held), place, missing=len(missing))


def _opened(database: Path) -> sqlite3.Connection:
    # A backup may lie on a medium that cannot be written: without a log beside it, nobody writes to it.
    how = "mode=rw" if Path(f"{database}-wal").exists() or os.access(database, os.W_OK) else "immutable=1"
    return sqlite3.connect(f"{database.absolute().as_uri()}?{how}", uri=True, timeout=10, isolation_level=None)


def _held(connection: sqlite3.Connection) -> set[Digest]:
    held = connection.execute("SELECT digest FROM models WHERE pruned_at_ms IS NULL")
    return {Digest(digest.hex()) for (digest,) in held}


def _copy_file(source: Path, target: Path, *, link: bool = False) -> None:
    """Copy or link a file unless it is there, for this user only."""
    if target.exists():
        return
    if link:
        with suppress(OSError):  # another disk, or a file system without hard links
            target.hardlink_to(source)
            return
    write_private(target, source.read_bytes())


def _look_at(database: Path, home: Path, check: Check | None, settings: Settings, *, upgrade: bool = False) -> None:
    if check is not None:
        url = URL.create("sqlite", database=str(database.absolute())).render_as_string()
        with open_store(url, data_dir=home, s3=settings.blobs.s3, upgrade=upgrade) as store:
            check(StoreSource(store))
