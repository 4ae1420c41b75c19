"""A process ends where the database is not any more what it was started for: upgraded, put back, or another key's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from httpx2 import Response
from sqlalchemy import text

from dag_acfl.__main__ import main
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.errors import ParameterError
from fl_core.types import PublicKey
from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.keys import load_or_create_key
from ledger_server.members import Membership
from ledger_server.serving_key import claim
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from ledger_server.store.journal import Store
from tests.builders import CREATED_AT_MS, ISSUER, START, key_from_seed, make_genesis, model, new_secret
from tests.serving import Server, prepare, serving


def upgrade_beyond(store: Store, revision: str = "9999") -> None:
    """As a newer release does."""
    with store.database.writing(durable=True) as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))


def publish(server: Server, value: float) -> Response:
    fields = {"num_examples": 1, "secret": new_secret(), "sequence": 0, "start": START, "parents": [server.ledger_id]}
    return server.post(fields, model(value))


def test_nothing_is_written_and_nothing_answered_on_tables_of_a_newer_release(
    database_url: str, tmp_path: Path
) -> None:
    with serving(database_url, tmp_path) as server:
        assert publish(server, 1).status_code == 201
        upgrade_beyond(server.service.store)
        for answer in (publish(server, 2), server.get(v1.TIPS)):
            assert answer.status_code == 503
            assert answer.json()["type"].endswith("store-unavailable")
            assert "9999" not in answer.text, "what the operator is told"
        assert server.service.store.length() == 2


def test_a_writer_that_waits_for_the_lock_meanwhile_writes_nothing(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path) as server:
        store = server.service.store
        waiting = store.appending

        @contextmanager
        def after_an_upgrade(nbytes: int) -> Iterator[object]:
            upgrade_beyond(store)
            with waiting(nbytes) as append:
                yield append

        store.appending = after_an_upgrade  # type: ignore[method-assign, assignment]
        assert publish(server, 1).status_code == 503
        assert store.length() == 1


def test_a_process_is_told_to_end_by_a_new_epoch_and_by_another_key(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path) as server:
        store = server.service.store
        assert store.server_key() == public_key_of(ISSUER)
        store.set_server_key(public_key_of(key_from_seed(7)), former=public_key_of(ISSUER))
        assert publish(server, 1).status_code == 503
        store.set_server_key(public_key_of(ISSUER), former=public_key_of(key_from_seed(7)))
        assert publish(server, 1).status_code == 201
        store.renew_epoch()
        assert publish(server, 2).status_code == 503


# -- one ledger, one key ------------------------------------------------------------------------------


def start(database_url: str, folder: Path, key: Ed25519PrivateKey | None = None) -> None:
    """Make the application and let go of it again, as a process does that starts and ends."""
    app = create_app(load_settings(data_dir=folder, database_url=database_url), key=key)
    app.state.service.store.close()


def test_a_second_machine_with_another_key_or_none_does_not_serve(database_url: str, tmp_path: Path) -> None:
    prepare(database_url, tmp_path / "one")
    start(database_url, tmp_path / "one")
    start(database_url, tmp_path / "one")
    with pytest.raises(ParameterError, match=r"there is none here; put its server-key.pem at .*two/server-key.pem"):
        start(database_url, tmp_path / "two")
    assert not (tmp_path / "two" / "server-key.pem").exists(), "the next start would take it for the right one"
    load_or_create_key(tmp_path / "two" / "server-key.pem")
    with pytest.raises(ParameterError, match=r"this ledger is served with the key .*, not .*dag-acfl keys replace"):
        start(database_url, tmp_path / "two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAG_ACFL_DATABASE_URL", database_url)
        assert main(["keys", "replace", "--data-dir", str(tmp_path / "two")]) == 0
    start(database_url, tmp_path / "two")
    with pytest.raises(ParameterError, match="this ledger is served with the key"):
        start(database_url, tmp_path / "one")


def test_processes_that_start_together_serve_with_their_key(database_url: str, tmp_path: Path) -> None:
    prepare(database_url, tmp_path)
    with open_store(database_url, data_dir=tmp_path) as store:
        note, own = store.set_server_key, public_key_of(ISSUER)

        def note_after_another(key: PublicKey, *, former: PublicKey | None) -> bool:
            note(own, former=former)
            return note(key, former=former)

        store.set_server_key = note_after_another  # type: ignore[method-assign]
        acts = Membership(store, key=ISSUER).acts
        claim(store, acts, own, file=tmp_path)
        store.set_server_key(own, former=own)
        with pytest.raises(ParameterError, match="is served with the key"):
            claim(store, acts, public_key_of(key_from_seed(7)), file=tmp_path)


def test_a_database_that_was_put_back_is_whoever_serves_it_next(database_url: str, tmp_path: Path) -> None:
    prepare(database_url, tmp_path)
    start(database_url, tmp_path, ISSUER)
    with open_store(database_url, data_dir=tmp_path) as store:
        store.renew_epoch()
    start(database_url, tmp_path, key_from_seed(7))
    with pytest.raises(ParameterError, match="is served with the key"):
        start(database_url, tmp_path, ISSUER)


def test_a_key_that_the_members_have_rotated_is_taken_over(database_url: str, tmp_path: Path) -> None:
    genesis = replace(make_genesis(), members=(Member(public_key_of(ISSUER), "a"),))
    prepare(database_url, tmp_path, genesis=genesis)
    start(database_url, tmp_path, ISSUER)
    with open_store(database_url, data_dir=tmp_path) as store:
        Membership(store, key=ISSUER).rotate(key_from_seed(7), url=None, now_ms=CREATED_AT_MS)
        Membership(store, key=key_from_seed(7)).rotate(key_from_seed(8), url=None, now_ms=CREATED_AT_MS)
    with pytest.raises(ParameterError):
        start(database_url, tmp_path, key_from_seed(9))
    start(database_url, tmp_path, key_from_seed(8))
    with pytest.raises(ParameterError):
        start(database_url, tmp_path, ISSUER)


# -- the command --------------------------------------------------------------------------------------


def await_started(served: subprocess.Popen[str], workers: int) -> None:
    """Each process says so in the log, which is read up to there."""
    assert served.stderr is not None
    for line in served.stderr:
        workers -= "server started" in line
        if not workers:
            return
    raise AssertionError("it has ended")


@pytest.mark.parametrize("workers", [1, 2])
def test_what_serves_ends_with_the_reason_when_the_database_is_upgraded(workers: int, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    prepare(url, tmp_path)
    command = [sys.executable, "-m", "dag_acfl", "serve", "--port", "0", "--data-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [*command, "--workers", str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
        text=True,
    ) as served:
        try:
            assert served.stdout is not None
            assert served.stdout.readline().startswith("serving on ")
            await_started(served, workers)
            with open_store(url, data_dir=tmp_path) as store:
                upgrade_beyond(store)
            _, log = served.communicate(timeout=90)
        finally:
            served.kill()
    assert served.returncode == 1
    assert "it was upgraded to revision 9999" in log
    if workers == 1:
        assert log.splitlines()[-1].startswith("error: this process serves the database no more")
    else:  # those that should take the places do not start
        assert "error: " in log.splitlines()[-1]
