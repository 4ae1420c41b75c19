"""A further server of a ledger begins with the same genesis, and with nothing that is not proven."""

import os
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from fl_core.types import Digest
from ledger_server.admin.bundle import write_bundle
from ledger_server.admin.join import JoinError, take_genesis
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from ledger_server.store.journal import Store
from tests.builders import CREATED_AT_MS, ISSUER, make_genesis, model, unreceipted
from tests.databases import DatabaseUrls
from tests.live import run_app
from tests.serving import NOW_MS, prepare, serving
from tests.sources import MemorySource, sound_ledger


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own settings."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith("DAG_ACFL_")]:
        monkeypatch.delenv(name)


def test_a_server_that_joined_serves_the_same_ledger(
    database_urls: DatabaseUrls, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first_url, database_url = database_urls(2)
    ledger = prepare(first_url, tmp_path)
    settings = load_settings(data_dir=tmp_path, database_url=first_url)
    with run_app(create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS), settings) as live:
        monkeypatch.setenv("DAG_ACFL_DATABASE_URL", database_url)
        arguments = ("ledger", "join", live.url, "--ledger", ledger)
        assert main(arguments) == 0
        assert f"ledger {ledger} is joined" in capsys.readouterr().out
        assert main(arguments) == 0
        assert f"ledger {ledger} is here already" in capsys.readouterr().out
    with serving(database_url, tmp_path, new=False) as server:
        assert server.ledger_id == ledger
        assert server.service.genesis == make_genesis()
        assert server.publish(parents=[ledger], model=model(1, 2))["parents"] == [ledger]


def test_a_bundle_brings_genesis_and_no_more(store: Store, tmp_path: Path) -> None:
    ledger = sound_ledger()
    write_bundle(ledger.source(), tmp_path / "pilot.dagacfl")
    assert main(("ledger", "join", "pilot.dagacfl", "--data-dir", "site")) == 0
    assert take_genesis(ledger.source(), store, expected=None, now_ms=7) == (ledger.tiny.genesis_id, True)
    (only,) = store.replay()
    assert (only.transaction.id, only.received_at_ms) == (ledger.tiny.genesis_id, 7)
    assert store.model(only.transaction.header.model_digest) == ledger.tiny.genesis_model


def damaged(what: str) -> MemorySource:
    source = sound_ledger().source()
    genesis = source.kept[source.ledger]
    if what == "model":
        source.models[genesis.header.model_digest] = model(9)
    elif what == "no model":
        del source.models[genesis.header.model_digest]
    elif what == "document":
        source.attachments[genesis.header.attachment_digest] = b"{}"
    elif what == "signature":
        source.kept[source.ledger] = unreceipted(genesis)
    elif what == "not genesis":
        source.ledger = next(reversed(source.kept))
    else:
        del source.kept[source.ledger]
    return source


@pytest.mark.parametrize("what", ["model", "no model", "document", "signature", "not genesis", "nothing"])
def test_a_genesis_that_is_not_sound_is_not_stored(what: str, store: Store) -> None:
    with pytest.raises(JoinError):
        take_genesis(damaged(what), store, expected=None, now_ms=CREATED_AT_MS)
    assert store.genesis() is None


def test_another_ledger_than_the_expected_or_the_present_is_refused(store: Store) -> None:
    source = sound_ledger().source()
    with pytest.raises(JoinError, match="not 00"):
        take_genesis(source, store, expected=Digest("00" * 32), now_ms=CREATED_AT_MS)
    take_genesis(source, store, expected=source.ledger, now_ms=CREATED_AT_MS)
    source.ledger = "11" * 32
    with pytest.raises(JoinError, match="another ledger here"):
        take_genesis(source, store, expected=None, now_ms=CREATED_AT_MS)


@pytest.mark.parametrize("source", ["nowhere", "http://127.0.0.1:9", ""])
def test_a_place_without_a_ledger_is_one_line(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dag_acfl.sources.SERVER_TIMEOUT_S", 0.5)
    assert main(("ledger", "join", source, "--data-dir", "site")) == 1
    *retries, line = capsys.readouterr().err.splitlines()
    assert bool(retries) == source.startswith("http"), "a server that is down is asked again, and told so"
    assert line.startswith("error: ")
    assert not Path("site").exists()
