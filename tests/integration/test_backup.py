"""A ledger is copied while its server is written to, and put back: nothing that was acknowledged before is missing.

The command copies SQLite's file, so these tests are on SQLite; on PostgreSQL it names the programs to type, and the
two tests named so hold it to that.
"""

import errno
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from dag_acfl.__main__ import main
from dag_acfl.sources import open_source
from fl_core.models import ModelLayout, TensorSpec
from fl_core.verify import verify
from ledger_server.admin import backup as module
from ledger_server.admin.backup import DATABASE, Copied, Progress
from ledger_server.app import create_app
from ledger_server.keys import KEY_FILE, create_key, load_key
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from ledger_server.store.engine import make_engine, parse_url
from ledger_server.store.opening import BlobPlace
from tests.builders import ISSUER, make_genesis, model
from tests.live import client_of, eventually, run_app
from tests.network import network, settle
from tests.postgres import Databases, _binaries, conninfo
from tests.serving import NOW_MS, Server, prepare, serving

LAYOUT = ModelLayout.of([TensorSpec("w", "F32", (400,))])
PLACES: tuple[BlobPlace, ...] = ("directory", "database")
ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own settings."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith("DAG_ACFL_")]:
        monkeypatch.delenv(name)


def make_ledger(folder: Path, *, blobs: BlobPlace = "directory", transactions: int = 4) -> list[str]:
    """A data folder with a ledger of so many transactions beside genesis; returns their ids."""
    folder.mkdir()
    url = f"sqlite:///{folder / DATABASE}"
    genesis, first = make_genesis(layout=LAYOUT), model(1, layout=LAYOUT)
    with serving(url, folder, genesis=genesis, first=first, blobs={"store": blobs}) as server:
        return [
            server.publish(parents=[server.ledger_id], model=model(1, number, layout=LAYOUT))["id"]
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


def back_up(site: Path, target: Path, *, progress: Progress = lambda *_: None) -> Copied:
    """A backup without its proof."""
    settings = load_settings(data_dir=site)
    return module.backup(settings, target, with_key=False, check=None, progress=progress)


def ids_in(folder: Path) -> set[str]:
    with open_source(str(folder)) as source:
        return {identity for identity, _ in source.transactions()}


def assert_sound(folder: Path) -> None:
    with open_source(str(folder)) as source:
        assert list(verify(source)) == []


@contextmanager
def writers(url: str, app: Server, *, count: int) -> Iterator[Callable[[], set[str]]]:
    """Threads that publish again and again; gives what has been acknowledged up to now."""
    acknowledged: list[str] = []
    stop = threading.Event()
    faults: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with client_of(url, timeout_s=WAIT_S) as client:
                server = Server(app.app, client, app.settings)  # type: ignore[arg-type]
                turn = 0
                while not stop.wait(0.05):  # without a pause they would take the processor that the backup needs
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


@pytest.mark.parametrize("blobs", PLACES)
def test_a_backup_under_load_has_all_that_was_acknowledged_before(blobs: BlobPlace, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    url = f"sqlite:///{site / DATABASE}"
    prepare(url, site, genesis=make_genesis(layout=LAYOUT), first=model(1, layout=LAYOUT), blobs=blobs)
    settings = load_settings(data_dir=site, database_url=url)
    app = create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        run_app(app, settings) as live,
        writers(live.url, Server(app, None, settings), count=4) as acknowledged,  # type: ignore[arg-type]
    ):
        while len(acknowledged()) < 20:
            threading.Event().wait(0.01)
        before = acknowledged()
        command = [sys.executable, "-m", "dag_acfl", "ledger", "backup", str(tmp_path / "copy")]
        done = subprocess.run(
            [*command, "--data-dir", str(site)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "sound: " in done.stdout
        copied = ids_in(tmp_path / "copy")
        assert before < copied, "genesis is there too"
        eventually(lambda: acknowledged() - copied != set())
    run("ledger", "restore", tmp_path / "copy", "--data-dir", tmp_path / "again")
    assert ids_in(tmp_path / "again") == copied
    assert_sound(tmp_path / "again")


def test_a_backup_ends_although_others_commit_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own backup would begin anew each time; every page would be copied again with every commit."""
    make_ledger(tmp_path / "site", blobs="database")
    monkeypatch.setattr(module, "_STEP_PAGES", 1)
    seen: list[int] = []
    with closing(sqlite3.connect(tmp_path / "site" / DATABASE, isolation_level=None)) as other:

        def commit(doing: str, done: int, whole: int) -> None:
            assert len(seen) <= whole, "begun anew"
            if doing == "pages":
                seen.append(done)
                other.execute("INSERT INTO selections VALUES (?, 0, x'00')", (os.urandom(32),))

        back_up(tmp_path / "site", tmp_path / "copy", progress=commit)
    with closing(sqlite3.connect(tmp_path / "copy" / DATABASE)) as copy:
        assert copy.execute("SELECT count(*) FROM selections").fetchone() == (0,), "one moment, before all of them"
    assert seen == sorted(seen)
    assert len(seen) > 10


def test_a_restored_server_gets_back_from_its_peers_what_came_after_the_backup(tmp_path: Path) -> None:
    with network(tmp_path, 3, genesis=make_genesis(layout=LAYOUT), first=model(1, layout=LAYOUT)) as servers:
        lost, *others = servers
        lost.publish(parents=[lost.ledger_id], model=model(1, 0.25, layout=LAYOUT))
        settle(servers)
        run("ledger", "backup", "copy", "--data-dir", lost.folder)
        in_backup = ids_in(tmp_path / "copy")
        lost.publish(parents=[lost.ledger_id], model=model(1, 0.5, layout=LAYOUT))
        settle(servers)
        lost.stop()
        (lost.folder / DATABASE).rename(tmp_path / "broken")
        others[0].publish(parents=[others[0].ledger_id], model=model(1, 0.75, layout=LAYOUT))
        run("ledger", "restore", "copy", "--data-dir", lost.folder)
        assert not (lost.folder / "gossip-cursors.json").exists()
        lost.start()
        assert len(settle(servers)) == len(in_backup) + 2
        lost.publish(parents=[lost.ledger_id], model=model(1, 0.125, layout=LAYOUT))
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


def test_a_backup_is_its_owners_only_and_links_to_the_models(tmp_path: Path) -> None:
    make_ledger(tmp_path / "site", transactions=2)
    made = back_up(tmp_path / "site", tmp_path / "copy")
    assert made == Copied(transactions=3, models=3, place="directory", missing=0)
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    files = [each for each in (tmp_path / "copy").rglob("*") if each.is_file()]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert sorted(each.name for each in (tmp_path / "copy").iterdir()) == [DATABASE, "models"]
    files = [sorted((tmp_path / folder / "models").glob("??/*")) for folder in ("site", "copy")]
    assert len(files[0]) == 3
    assert all(ours.samefile(copied) for ours, copied in zip(*files, strict=True))
    assert_sound(tmp_path / "copy")


def test_models_are_copied_to_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ledger(tmp_path / "site")

    def other_disk(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(Path, "hardlink_to", other_disk)
    assert back_up(tmp_path / "site", tmp_path / "copy").models == 5
    files = [path.stat() for path in (tmp_path / "copy" / "models").glob("??/*")]
    assert [(each.st_nlink, stat.S_IMODE(each.st_mode)) for each in files] == [(1, 0o600)] * 5
    assert_sound(tmp_path / "copy")


def test_an_interrupted_backup_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ledger(tmp_path / "site", transactions=1)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_copy_file", interrupt)
        run("ledger", "backup", "copy", "--data-dir", "site", code=130)
    assert [each.name for each in tmp_path.iterdir()] == ["site"]
    run("ledger", "backup", "copy", "--data-dir", "site")
    assert_sound(tmp_path / "copy")


@pytest.mark.parametrize("point", ["_copy_file", "_look_at"])
def test_an_interrupted_restore_leaves_nothing(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ledger(tmp_path / "site")
    run("ledger", "backup", "copy", "--data-dir", "site")
    with monkeypatch.context() as patched:
        patched.setattr(module, point, interrupt)
        run("ledger", "restore", "copy", "--data-dir", "again", code=130)
    assert list((tmp_path / "again").iterdir()) == []
    run("ledger", "restore", "copy", "--data-dir", "again")
    assert sorted(each.name for each in (tmp_path / "again").iterdir()) == [DATABASE, "models"]
    assert ids_in(tmp_path / "again") == ids_in(tmp_path / "site")


def test_a_full_disk_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger(tmp_path / "site")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "_copy_file", full)
    line = refused("ledger", "backup", "copy", "--data-dir", "site", capsys=capsys)
    assert "No space left on device" in line
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("blobs", PLACES)
def test_a_pruned_ledger_is_copied_without_what_was_dropped(blobs: BlobPlace, tmp_path: Path) -> None:
    make_ledger(tmp_path / "site", transactions=4, blobs=blobs)
    prune_first(tmp_path / "site", 2)
    run("ledger", "backup", "copy", "--data-dir", "site", "--no-verify")
    run("ledger", "restore", "copy", "--data-dir", "again", "--no-verify")
    with open_store(f"sqlite:///{tmp_path / 'again' / DATABASE}", data_dir=tmp_path / "again") as store:
        digests = [each.transaction.header.model_digest for each in store.replay()]
        assert [store.model(digest) is None for digest in digests] == [False, True, True, False, False]


def test_a_model_that_is_pruned_while_it_is_copied_is_pruned_in_the_copy_too(tmp_path: Path) -> None:
    make_ledger(tmp_path / "site", transactions=3)
    pruned: list[int] = []

    def prune(doing: str, done: int, whole: int) -> None:
        if doing == "pages" and done == whole and not pruned:
            pruned.append(1)
            prune_first(tmp_path / "site", 1)

    assert back_up(tmp_path / "site", tmp_path / "copy", progress=prune) == Copied(4, 3, "directory", missing=0)
    with open_store(f"sqlite:///{tmp_path / 'copy' / DATABASE}", data_dir=tmp_path / "copy") as store:
        assert store.removal.count() == 1


def test_a_damaged_ledger_is_copied_only_when_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ledger(tmp_path / "site")
    next((tmp_path / "site" / "models").glob("??/*")).unlink()
    line = refused("ledger", "backup", "copy", "--data-dir", "site", capsys=capsys)
    assert "1 fault" in line
    assert "--no-verify" in line
    run("ledger", "backup", "copy", "--data-dir", "site", "--no-verify")
    assert "1 of 5 models are gone" in capsys.readouterr().out


def test_a_backup_that_rotted_is_not_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ledger(tmp_path / "site")
    run("ledger", "backup", "copy", "--data-dir", "site")
    damage(next((tmp_path / "copy" / "models").glob("??/*")), at=500)
    assert "1 fault" in refused("ledger", "restore", "copy", "--data-dir", "again", capsys=capsys)
    assert not (tmp_path / "again" / DATABASE).exists()


def test_the_servers_key_is_copied_only_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ledger(tmp_path / "site")
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


def test_a_second_connection_keeps_the_log_from_another_process(tmp_path: Path) -> None:
    make_ledger(tmp_path / "site")
    database = tmp_path / "site" / DATABASE
    log = Path(f"{database}-wal")
    read = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM journal').fetchall(); c.close()"
    engine = make_engine(parse_url(f"sqlite:///{database}"))
    with engine.connect() as first, engine.connect() as second:
        for connection in (first, second):
            connection.exec_driver_sql("SELECT * FROM journal").fetchall()
        made = log.stat().st_ino
        subprocess.run([sys.executable, "-c", read, str(database)], check=True)
        assert log.exists(), "SQLite takes it away only with the last connection of all processes"
        assert log.stat().st_ino == made
    engine.dispose()


def test_a_key_that_the_settings_name_is_compared_and_not_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger(tmp_path / "site")
    create_key(tmp_path / "site" / KEY_FILE)
    run("ledger", "backup", tmp_path / "whole", "--data-dir", tmp_path / "site", "--with-key")
    create_key(tmp_path / "other.pem")
    monkeypatch.setenv("DAG_ACFL_SERVER_KEY", str(tmp_path / "other.pem"))
    assert "another server" in refused("ledger", "restore", "whole", "--data-dir", "first", capsys=capsys)
    monkeypatch.setenv("DAG_ACFL_SERVER_KEY", str(tmp_path / "site" / KEY_FILE))
    run("ledger", "restore", "whole", "--data-dir", "first")
    assert not (tmp_path / "first" / KEY_FILE).exists()


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ledger(tmp_path / "site")
    make_ledger(tmp_path / "other", blobs="database")
    run("ledger", "backup", "copy", "--data-dir", "site")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "file").write_text("mine")
    for target in ("copy", "file", "other"):
        assert "exists already" in refused("ledger", "backup", target, "--data-dir", "site", capsys=capsys)
    assert "remove" not in refused("ledger", "backup", "copy", "--data-dir", "site", capsys=capsys)
    (tmp_path / "models-only" / "models").mkdir(parents=True)
    for folder in ("site", "other", "models-only"):
        assert "exists already" in refused("ledger", "restore", "copy", "--data-dir", folder, capsys=capsys)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("backup", "copy", "--data-dir", "nowhere"), "there is no ledger in nowhere"),
        (("backup", "no/such/folder", "--data-dir", "site"), "is no folder"),
        (("backup", "/", "--data-dir", "site"), "is no folder"),
        (
            ("backup", "half", "--data-dir", "site"),
            "half.partial is an unfinished backup; if none is at work, remove it",
        ),
        (("restore", "nowhere", "--data-dir", "again"), "is no finished backup"),
        (("restore", "file", "--data-dir", "again"), "is no finished backup"),
        (("restore", "garbage", "--data-dir", "again"), "not a SQLite database"),
        (("restore", "half.partial", "--data-dir", "again"), "is no finished backup"),
        (("restore", "copied", "--data-dir", "file"), "file"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: tuple[str, ...], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_ledger(tmp_path / "site", transactions=1)
    run("ledger", "backup", "copied", "--data-dir", "site")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / DATABASE).write_text("not SQLite's" * 100)
    (tmp_path / "half.partial").mkdir()
    assert why in refused("ledger", *arguments, capsys=capsys)


def test_for_postgresql_the_command_says_what_to_type(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAG_ACFL_DATABASE_URL", "postgresql+psycopg://ledger:sesame@db.example:5433/pilot")
    line = refused("ledger", "backup", "my copy", "--data-dir", "site", capsys=capsys)
    assert "sesame" not in line
    assert (
        "pg_dump --format=custom --compress=0 --file='my copy/ledger.dump' postgresql://ledger@db.example:5433/pilot ("
        in line
    )
    assert "docs/operations.md, Backup and restore" in line


def test_what_the_command_says_for_postgresql_makes_a_sound_copy(
    postgresql: Databases,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way of docs/operations.md, with models in a directory."""
    monkeypatch.setenv("DAG_ACFL_BLOBS__STORE", "directory")
    site, again = tmp_path / "site", tmp_path / "again"
    again.mkdir()
    with postgresql.fresh() as url, postgresql.fresh(migrated=False) as empty:
        with serving(url, site, genesis=make_genesis(layout=LAYOUT), first=model(1, layout=LAYOUT)) as server:
            new = server.publish(parents=[server.ledger_id], model=model(1, 0.5, layout=LAYOUT))["id"]
            monkeypatch.setenv("DAG_ACFL_DATABASE_URL", url)
            line = refused("ledger", "backup", "copy", "--data-dir", site, capsys=capsys)
            dump = line.partition("itself: ")[2].partition(" (")[0]
            type_in(f"mkdir -m 700 copy && {dump} && cp -a site/models copy/", postgresql)
            epoch = server.service.epoch
        monkeypatch.setenv("DAG_ACFL_DATABASE_URL", empty)
        line = refused("ledger", "restore", "copy", "--data-dir", again, capsys=capsys)
        load = line.partition("itself: ")[2].partition(" (")[0]
        type_in(f"cp -a copy/models again/ && {load}", postgresql)
        run("db", "renew-epoch", "--data-dir", again)
        monkeypatch.setenv("DAG_ACFL_DATA_DIR", str(again))
        run("ledger", "verify", empty)
        with serving(empty, again, new=False) as server:
            assert server.publish(parents=[new], model=model(2, layout=LAYOUT))["parents"] == [new]
            assert server.service.epoch != epoch


# -- what the tests do to the copies ------------------------------------------------------------------


def interrupt(*_: object, **__: object) -> None:
    """Ctrl-C, in the place of a step."""
    raise KeyboardInterrupt


def prune_first(site: Path, count: int) -> None:
    """Prune the models of the first transactions behind genesis, as another process does."""
    with open_store(f"sqlite:///{site / DATABASE}", data_dir=site) as store:
        digests = [each.transaction.header.model_digest for each in store.page(after=0, limit=count)]
        assert store.removal.prune(digests, known=store.length(), now_ms=NOW_MS).models == count


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
