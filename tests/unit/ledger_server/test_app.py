"""``create_app`` closes what it opened, whichever of its parts fails, and says when it starts and stops."""

import logging
from pathlib import Path

import pytest

import ledger_server.app as module
from fl_core.dag.signature import public_key_of
from ledger_server.build import build
from ledger_server.peers import Peer
from ledger_server.publishing import LedgerService
from ledger_server.settings import load_settings
from ledger_server.store.journal import Store
from tests.builders import key_from_seed
from tests.live import run_app
from tests.serving import ISSUER, prepare


def test_a_failure_closes_what_is_open(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url)
    prepare(sqlite_url, tmp_path)
    closed: list[str] = []
    for kind in (LedgerService, Store):

        def close(self: object, close: object = kind.close) -> None:
            closed.append(type(self).__name__)
            close(self)  # type: ignore[operator]

        monkeypatch.setattr(kind, "close", close)
    monkeypatch.setattr(module, "register", None)
    with pytest.raises(TypeError):
        module.create_app(settings, key=ISSUER)
    assert closed == ["LedgerService", "Store"]


def test_a_start_and_a_stop_are_logged(tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer("second", "http://127.0.0.1:9", public_key_of(key_from_seed(2)))
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url, peers=(peer,))
    ledger = prepare(sqlite_url, tmp_path)
    with caplog.at_level(logging.INFO), run_app(module.create_app(settings, key=ISSUER), settings):
        pass
    said = [record for record in caplog.records if record.name == module.__name__]
    assert [record.getMessage() for record in said] == ["server started", "server stopped"]
    facts = {**build(), "ledger": ledger, "data_dir": str(tmp_path), "peers": ["second"]}
    assert facts.items() <= vars(said[0]).items()
