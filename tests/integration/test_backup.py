"""A ledger is copied while its server is written to, and put back: nothing that was acknowledged before is missing.

The command copies SQLite's file, so these tests are on SQLite; on PostgreSQL it names the programs to type, and the
two tests named so hold it to that.
"""

import errno
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from dag_acfl.__main__ import main
from dag_acfl.sources import open_source
from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import Digest
from fl_core.verify import verify
from ledger_server.admin import backup as module
from ledger_server.admin.backup import DATABASE, BackupError, read_manifest
from ledger_server.app import create_app
from ledger_server.keys import KEY_FILE, create_key, load_key
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from ledger_server.store.blobs.protocol import Blob, Place
from tests.builders import ISSUER, make_genesis, model
from tests.live import run_app
from tests.network import network, settle
from tests.postgres import Databases, _binaries, conninfo
from tests.serving import NOW_MS, Server, prepare, serving

IN_FILES = ModelLayout.of([TensorSpec("w", "F32", (40_000,))])
"""160 KB: such models lie in segment files."""
IN_ROWS = ModelLayout.of([TensorSpec("w", "F32", (400,))])
ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own settings."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith("DAG_ACFL_")]:
        monkeypatch.delenv(name)


def make_ledger(folder: Path, *, layout: ModelLayout = IN_FILES, transactions: int = 4) -> list[str]:
    """A data folder with a ledger of so many transactions beside genesis; returns their ids."""
    folder.mkdir()
    url = f"sqlite:///{folder / DATABASE}"
    with serving(url, folder, genesis=make_genesis(layout=layout), first=model(1, layout=layout)) as server:
        return [
            server.publish(parents=[server.ledger_id], model=model(1, number, layout=layout))["id"]
            for number in range(1, transactions + 1)
        ]


def run(*arguments: object, code: int = 0) -> None:
    assert main([str(each) for each in arguments]) == code


def refused(*arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    """Run what must fail; returns its one line."""
    capsys.readouterr()
    run(*arguments, code=1)
    (line,) = capsys.readouterr().err.splitlines()
    return line


def ids_in(folder: Path) -> set[str]:
    with open_source(str(folder)) as source:
        return {identity for identity, _ in source.transactions()}


def assert_sound(folder: Path) -> None:
    with open_source(str(folder)) as source:
        assert list(verify(source)) == []


@contextmanager
def writers(url: str, app: Server, *, count: int) -> Iterator[Callable[[], set[str]]]:
    """Threads that publish without pause; gives what has been acknowledged up to now."""
    acknowledged: list[str] = []
    stop = threading.Event()
    faults: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with httpx2.Client(base_url=url, timeout=WAIT_S) as client:
                server = Server(app.app, client, app.settings)  # type: ignore[arg-type]
                turn = 0
                while not stop.is_set():
                    data = model(1, number, turn / 1024, layout=app.service.genesis.layout)
                    acknowledged.append(server.publish(parents=[server.ledger_id], model=data)["id"])
                    turn += 1
        except BaseException as error:  # noqa: BLE001 -- told to the test below
            faults.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()

    def so_far() -> set[str]:
        assert not faults
        return set(acknowledged)

    try:
        yield so_far
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
        assert not faults


@pytest.mark.parametrize("layout", [IN_FILES, IN_ROWS], ids=["models in files", "models in rows"])
def test_a_backup_under_load_has_all_that_was_acknowledged_before(layout: ModelLayout, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    url = f"sqlite:///{site / DATABASE}"
    prepare(url, site, genesis=make_genesis(layout=layout), first=model(1, layout=layout))
    settings = load_settings(data_dir=site, database_url=url)
    app = create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        run_app(app, settings) as live,
        writers(live.url, Server(app, None, settings), count=4) as acknowledged,  # type: ignore[arg-type]
    ):
        for turn in range(3):
            while len(acknowledged()) < 20 * (turn + 1):
                threading.Event().wait(0.01)
            before = acknowledged()
            command = [sys.executable, "-m", "dag_acfl", "ledger", "backup", str(tmp_path / f"copy-{turn}")]
            done = subprocess.run(
                [*command, "--data-dir", str(site)], env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert "sound: " in done.stdout
            copied = ids_in(tmp_path / f"copy-{turn}")
            assert before < copied, "genesis is there too"
        assert acknowledged() - copied, "publishing went on meanwhile"
    run("ledger", "restore", tmp_path / "copy-2", "--data-dir", tmp_path / "again")
    assert ids_in(tmp_path / "again") == copied
    assert_sound(tmp_path / "again")


def test_a_backup_ends_although_others_commit_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own backup would begin anew each time; every page would be copied again with every commit."""
    make_ledger(tmp_path / "site", layout=IN_ROWS)
    monkeypatch.setattr(module, "_STEP_PAGES", 1)
    seen: list[int] = []
    with closing(sqlite3.connect(tmp_path / "site" / DATABASE, isolation_level=None)) as other:

        def commit(doing: str, done: int, whole: int) -> None:
            assert len(seen) <= whole, "begun anew"
            if doing == "database":
                seen.append(done)
                other.execute("INSERT INTO selections VALUES (?, 0, x'00')", (os.urandom(32),))

        module.backup(tmp_path / "site" / DATABASE, tmp_path / "copy", progress=commit)
    with closing(sqlite3.connect(tmp_path / "copy" / DATABASE)) as copy:
        assert copy.execute("SELECT count(*) FROM selections").fetchone() == (0,), "one moment, before all of them"
    assert seen == sorted(seen)
    assert len(seen) > 10


def test_a_restored_ledger_is_served_and_grows(tmp_path: Path) -> None:
    published = make_ledger(tmp_path / "site")
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site")
    run("ledger", "restore", tmp_path / "copy", "--data-dir", tmp_path / "again")
    again = tmp_path / "again"
    with serving(f"sqlite:///{again / DATABASE}", again, new=False) as server:
        new = server.publish(parents=[published[-1]], model=model(2, 2, layout=IN_FILES))
    assert ids_in(again) - ids_in(tmp_path / "site") == {new["id"]}
    assert_sound(again)


def test_a_restored_server_gets_back_from_its_peers_what_came_after_the_backup(tmp_path: Path) -> None:
    with network(tmp_path, 3, genesis=make_genesis(layout=IN_FILES), first=model(1, layout=IN_FILES)) as servers:
        lost, *others = servers
        lost.publish(parents=[lost.ledger_id], model=model(1, 0.25, layout=IN_FILES))
        settle(servers)
        run("ledger", "backup", "copy", "--data-dir", lost.folder)
        in_backup = ids_in(tmp_path / "copy")
        lost.publish(parents=[lost.ledger_id], model=model(1, 0.5, layout=IN_FILES))
        settle(servers)
        lost.stop()
        for each in (DATABASE, f"{DATABASE}-models"):
            (lost.folder / each).rename(tmp_path / f"broken-{each}")
        others[0].publish(parents=[others[0].ledger_id], model=model(1, 0.75, layout=IN_FILES))
        run("ledger", "restore", "copy", "--data-dir", lost.folder)
        assert not (lost.folder / "gossip-cursors.json").exists()
        lost.start()
        assert len(settle(servers)) == len(in_backup) + 2
        lost.publish(parents=[lost.ledger_id], model=model(1, 0.125, layout=IN_FILES))
        assert len(settle(servers)) == len(in_backup) + 3
    assert_sound(lost.folder)


def test_a_backup_is_verified_beside_a_server_whose_database_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger(tmp_path / "site", transactions=1)
    run("ledger", "backup", "copy", "--data-dir", "site")
    make_ledger(tmp_path / "other", transactions=2)
    monkeypatch.setenv("DAG_ACFL_DATABASE_URL", f"sqlite:///{tmp_path / 'other' / DATABASE}")
    assert len(ids_in(tmp_path / "copy")) == 2
    assert len(ids_in(tmp_path / "other")) == 3


def test_a_backup_is_its_owners_only_and_says_what_it_holds(tmp_path: Path) -> None:
    make_ledger(tmp_path / "site", transactions=2)
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site")
    copy = tmp_path / "copy"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert sorted(each.name for each in copy.iterdir()) == [DATABASE, f"{DATABASE}-models", "manifest.json"]
    manifest = read_manifest(copy)
    assert (manifest.transactions, manifest.models, manifest.damaged) == (3, 3, 0)
    assert manifest.model_bytes == 3 * len(model(1, layout=IN_FILES))
    assert manifest.ledger in ids_in(copy)
    assert not manifest.has_key


def test_an_interrupted_backup_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ledger(tmp_path / "site", transactions=5)
    with interrupted_after_models(3, monkeypatch):
        run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site", code=130)
    assert not (tmp_path / "copy").exists()
    written = count_writes(monkeypatch)
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site")
    assert len(written) == 6 - 3, "the models that were there were not copied again"
    assert not (tmp_path / "copy.partial").exists()
    assert_sound(tmp_path / "copy")


def test_bytes_that_an_interrupted_backup_left_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger(tmp_path / "site", transactions=3)
    with interrupted_after_models(4, monkeypatch, at_end=True):
        run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site", code=130)
    segment = tmp_path / "copy.partial" / f"{DATABASE}-models" / "00000001.segment"
    damage(segment, at=5000)
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site")
    assert_sound(tmp_path / "copy")


@pytest.mark.parametrize("which", ["models", "database"])
def test_a_restore_that_ended_between_its_renames_goes_on(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger(tmp_path / "site")
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site")
    rename = Path.rename

    def stopping(self: Path, target: Path) -> Path:
        if self.name == (DATABASE if which == "database" else f"{DATABASE}-models"):
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", stopping)
        run("ledger", "restore", tmp_path / "copy", "--data-dir", tmp_path / "again", code=130)
    assert not (tmp_path / "again" / DATABASE).exists()
    run("ledger", "restore", tmp_path / "copy", "--data-dir", tmp_path / "again")
    assert sorted(each.name for each in (tmp_path / "again").iterdir()) == [DATABASE, f"{DATABASE}-models"]
    assert ids_in(tmp_path / "again") == ids_in(tmp_path / "site")


def test_a_full_disk_is_one_line_and_the_backup_goes_on_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger(tmp_path / "site")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        line = refused("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site", capsys=capsys)
    assert "No space left on device" in line
    assert "run it again to go on" in line
    assert not (tmp_path / "copy").exists()
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site")
    assert_sound(tmp_path / "copy")


def test_a_disk_that_will_be_too_small_is_said_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger(tmp_path / "site")
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=17_000_000))
    for command in ("backup", "restore"):
        named = ("other", "--data-dir", "site") if command == "backup" else ("copy", "--data-dir", "again")
        line = refused("ledger", command, *named, capsys=capsys)
        assert "17 MB free and 18 MB are needed" in line
    assert {each.name for each in tmp_path.iterdir()} == {"site", "copy", "again"}
    assert list((tmp_path / "again").iterdir()) == []


def test_holes_stay_holes(tmp_path: Path) -> None:
    make_ledger(tmp_path / "site", transactions=8)
    with closing(sqlite3.connect(tmp_path / "site" / DATABASE)) as database:
        rows = database.execute("SELECT digest, size, segment, starts_at FROM models ORDER BY starts_at").fetchall()
    with open_store(f"sqlite:///{tmp_path / 'site' / DATABASE}", data_dir=tmp_path) as store:
        for digest, size, segment, start in rows[1:-1]:
            store._drop_blob(blob_at(digest, size, segment, start))
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site", "--no-verify")
    segments = [tmp_path / site / f"{DATABASE}-models" / "00000001.segment" for site in ("site", "copy")]
    taken = [512 * segment.stat().st_blocks for segment in segments]
    assert taken[1] <= taken[0] < segments[1].stat().st_size / 2
    assert read_manifest(tmp_path / "copy").damaged == len(rows) - 2


@pytest.mark.parametrize("layout", [IN_FILES, IN_ROWS], ids=["models in files", "models in rows"])
@pytest.mark.parametrize("is_given_back", [True, False])
def test_a_pruned_ledger_is_copied_without_what_was_dropped(
    layout: ModelLayout, tmp_path: Path, *, is_given_back: bool
) -> None:
    make_ledger(tmp_path / "site", transactions=4, layout=layout)
    with open_store(f"sqlite:///{tmp_path / 'site' / DATABASE}", data_dir=tmp_path) as store:
        store.prune([1, 2], known=5, now_ms=NOW_MS)
        if is_given_back:
            store.drop_pruned()
    run("ledger", "backup", "copy", "--data-dir", "site", "--no-verify")
    run("ledger", "restore", "copy", "--data-dir", "again", "--no-verify")
    assert read_manifest(tmp_path / "copy").damaged == 0
    with open_store(f"sqlite:///{tmp_path / 'again' / DATABASE}", data_dir=tmp_path) as store:
        digests = [each.transaction.header.model_digest for each in store.replay()]
        assert [store.model(digest) is None for digest in digests] == [False, True, True, False, False]
        store.drop_pruned()


def test_a_model_that_is_dropped_while_it_is_copied_is_dropped_in_the_copy_too(tmp_path: Path) -> None:
    make_ledger(tmp_path / "site", transactions=3)
    database = tmp_path / "site" / DATABASE
    dropped: list[int] = []

    def drop_the_last(doing: str, done: int, whole: int) -> None:
        if doing == "database" or dropped:
            return
        with open_store(f"sqlite:///{database}", data_dir=tmp_path) as store:
            store.prune([3], known=4, now_ms=NOW_MS)
            store.drop_pruned()
        dropped.append(3)

    made = module.backup(database, tmp_path / "copy", progress=drop_the_last)
    assert (made.models, made.damaged) == (3, 0), "genesis and two of three"
    with closing(sqlite3.connect(tmp_path / "copy" / DATABASE)) as copy:
        assert copy.execute("SELECT model FROM prunings").fetchall() == [(3,)]


def test_a_damaged_ledger_is_copied_only_when_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ledger(tmp_path / "site")
    damage(tmp_path / "site" / f"{DATABASE}-models" / "00000001.segment", at=5000)
    line = refused("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site", capsys=capsys)
    assert "1 fault" in line
    assert "--no-verify" in line
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site", "--no-verify")
    assert "1 of 5 models in files are damaged" in capsys.readouterr().out
    assert read_manifest(tmp_path / "copy").damaged == 1


def test_a_backup_that_rotted_is_not_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ledger(tmp_path / "site")
    run("ledger", "backup", tmp_path / "copy", "--data-dir", tmp_path / "site")
    damage(tmp_path / "copy" / f"{DATABASE}-models" / "00000001.segment", at=5000)
    assert "1 fault" in refused("ledger", "restore", "copy", "--data-dir", "again", capsys=capsys)
    assert not (tmp_path / "again" / DATABASE).exists()
    with closing(sqlite3.connect(tmp_path / "copy" / DATABASE)) as database, database:
        database.execute("CREATE TABLE stranger (a)")
    line = refused("ledger", "restore", "copy", "--data-dir", "third", "--no-verify", capsys=capsys)
    assert "not as it was written" in line


def test_the_servers_key_is_copied_only_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ledger(tmp_path / "site", layout=IN_ROWS)
    create_key(tmp_path / "site" / KEY_FILE)
    run("ledger", "backup", tmp_path / "plain", "--data-dir", tmp_path / "site")
    run("ledger", "backup", tmp_path / "whole", "--data-dir", tmp_path / "site", "--with-key")
    assert not (tmp_path / "plain" / KEY_FILE).exists()
    run("ledger", "restore", "plain", "--data-dir", "first")
    assert "keys peer" in capsys.readouterr().err
    run("ledger", "restore", "whole", "--data-dir", "second")
    keys = [load_key(tmp_path / folder / KEY_FILE).private_bytes_raw() for folder in ("site", "second")]
    assert keys[0] == keys[1]
    assert stat.S_IMODE((tmp_path / "second" / KEY_FILE).stat().st_mode) == 0o600
    create_key(tmp_path / "third" / KEY_FILE)
    assert "another server" in refused("ledger", "restore", "whole", "--data-dir", "third", capsys=capsys)


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ledger(tmp_path / "site")
    make_ledger(tmp_path / "other", layout=IN_ROWS)
    run("ledger", "backup", "copy", "--data-dir", "site")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "file").write_text("mine")
    (tmp_path / "strange.partial").mkdir()
    (tmp_path / "strange.partial" / "mine").write_text("mine")
    for target in ("copy", "file", "other"):
        assert "exists already" in refused("ledger", "backup", target, "--data-dir", "site", capsys=capsys)
    assert "mine" in refused("ledger", "backup", "strange", "--data-dir", "site", capsys=capsys)
    for folder in ("site", "other"):
        assert "exists already" in refused("ledger", "restore", "copy", "--data-dir", folder, capsys=capsys)
    (tmp_path / "models-only" / f"{DATABASE}-models").mkdir(parents=True)
    assert "exists already" in refused("ledger", "restore", "copy", "--data-dir", "models-only", capsys=capsys)
    assert {path: path.read_bytes() for path in before} == before


def test_an_unfinished_backup_of_another_ledger_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger(tmp_path / "site")
    make_ledger(tmp_path / "other", layout=IN_ROWS)
    with interrupted_after_models(2, monkeypatch):
        run("ledger", "backup", "copy", "--data-dir", "site", code=130)
    assert "another ledger" in refused("ledger", "backup", "copy", "--data-dir", "other", capsys=capsys)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("backup", "copy", "--data-dir", "nowhere"), "there is no ledger in nowhere"),
        (("backup", "no/such/folder", "--data-dir", "site"), "is no folder"),
        (("backup", "/", "--data-dir", "site"), "is no folder"),
        (("backup", "copy", "--database-url", "mysql://x/y"), "must begin with sqlite"),
        (("restore", "nowhere", "--data-dir", "again"), "is no backup"),
        (("restore", "site", "--data-dir", "again"), "is no backup"),
        (("restore", "garbage", "--data-dir", "again"), "cannot be read"),
        (("restore", "fields", "--data-dir", "again"), "cannot be read"),
        (("restore", "types", "--data-dir", "again"), "transactions is no int"),
        (("restore", "future", "--data-dir", "again"), "no format that this release knows"),
        (("restore", "half.partial", "--data-dir", "again"), "it was interrupted"),
        (("restore", "copied", "--data-dir", "file"), "file"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: tuple[str, ...], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_ledger(tmp_path / "site", layout=IN_ROWS, transactions=1)
    run("ledger", "backup", "copied", "--data-dir", "site")
    (tmp_path / "file").write_text("mine")
    sound = json.loads((tmp_path / "copied" / "manifest.json").read_text())
    for name, text in (
        ("garbage", "[" * 100_000),
        ("fields", json.dumps({**sound, "more": 1})),
        ("types", json.dumps({**sound, "transactions": "2"})),
        ("future", json.dumps({**sound, "format": "dag-acfl/backup/v2"})),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(text)
    (tmp_path / "half.partial").mkdir()
    assert why in refused("ledger", *arguments, capsys=capsys)


def test_two_backups_do_not_write_into_one_folder(tmp_path: Path) -> None:
    make_ledger(tmp_path / "site", layout=IN_ROWS)
    with module._at_work_on(tmp_path / "copy.partial"), pytest.raises(BackupError, match="at work on"):
        module.backup(tmp_path / "site" / DATABASE, tmp_path / "copy", progress=lambda *_: None)


def test_for_postgresql_the_command_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql+psycopg://ledger:sesame@db.example:5433/pilot"
    line = refused("ledger", "backup", "copy", "--data-dir", "site", "--database-url", url, capsys=capsys)
    assert "sesame" not in line
    assert "pg_dump --format=custom --file=copy/ledger.dump postgresql://ledger@db.example:5433/pilot" in line
    assert "cp -a" not in line
    monkeypatch.setenv("DAG_ACFL_BLOBS__STORE", "directory")
    line = refused("ledger", "backup", "copy", "--data-dir", "site", "--database-url", url, capsys=capsys)
    assert line.index("pg_dump") < line.index("cp -a --sparse=always site/models copy/")
    line = refused("ledger", "restore", "copy", "--data-dir", "site", "--database-url", url, capsys=capsys)
    assert "cp -a --sparse=always copy/models site/" in line
    assert "pg_restore --exit-on-error --no-owner --dbname=postgresql://ledger@db.example:5433/pilot" in line


def test_what_the_command_says_for_postgresql_makes_a_sound_copy(
    postgresql: Databases,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DAG_ACFL_BLOBS__STORE", "directory")
    site, again = tmp_path / "site", tmp_path / "again"
    again.mkdir()
    with postgresql.fresh() as url, postgresql.fresh(migrated=False) as empty:
        with serving(url, site, genesis=make_genesis(layout=IN_FILES), first=model(1, layout=IN_FILES)) as server:
            new = server.publish(parents=[server.ledger_id], model=model(1, 0.5, layout=IN_FILES))["id"]
            line = refused("ledger", "backup", "copy", "--data-dir", site, "--database-url", url, capsys=capsys)
            type_in(line.partition("serves: ")[2], postgresql)
            epoch = server.service.epoch
        line = refused("ledger", "restore", "copy", "--data-dir", again, "--database-url", empty, capsys=capsys)
        type_in(line.partition("empty database: ")[2].partition(", then")[0], postgresql)
        monkeypatch.setenv("DAG_ACFL_DATA_DIR", str(again))
        run("ledger", "verify", empty)
        with serving(empty, again, new=False) as server:
            assert server.publish(parents=[new], model=model(2, layout=IN_FILES))["parents"] == [new]
            assert server.service.epoch != epoch


# -- what the tests do to the copies ------------------------------------------------------------------


@contextmanager
def interrupted_after_models(count: int, monkeypatch: pytest.MonkeyPatch, *, at_end: bool = False) -> Iterator[None]:
    """Ctrl-C before one more model is copied, or behind the last."""
    copy, sync = module._SegmentPair.copy, module._sha256_of
    copied: list[int] = []

    def counting(self: module._SegmentPair, start: int, size: int, digest: bytes) -> bool:
        if len(copied) == count:
            raise KeyboardInterrupt
        copied.append(start)
        return copy(self, start, size, digest)

    def stopping(path: Path) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module._SegmentPair, "copy", counting)
        patched.setattr(module, "_sha256_of", stopping if at_end else sync)
        yield
    assert len(copied) == count


def count_writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    pwrite, written = os.pwrite, list[int]()

    def counting(file: int, data: memoryview, at: int) -> int:
        written.append(at)
        return pwrite(file, data, at)

    monkeypatch.setattr(os, "pwrite", counting)
    return written


def type_in(command: str, postgresql: Databases) -> None:
    """Run what was printed, with the programs of the server's own release."""
    with psycopg.connect(conninfo(postgresql.server)) as connection:
        major = connection.info.server_version // 10_000
    folders = [folder for folder in _binaries() if f") {major}." in version_of(folder / "pg_dump")]
    ours = Path(sys.executable).parent
    path = os.pathsep.join([*map(str, (*folders, ours)), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def version_of(program: Path) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def damage(path: Path, *, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def blob_at(digest: bytes, size: int, segment: int, start: int) -> Blob:
    return Blob(Digest(digest.hex()), size, Place(segment, start))
