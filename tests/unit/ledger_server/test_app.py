"""``create_app`` closes what it opened, whichever of its parts fails."""

from pathlib import Path

import pytest

import ledger_server.app as module
from ledger_server.change_point_process import ChangePointProcess
from ledger_server.publishing import LedgerService
from ledger_server.settings import load_settings
from ledger_server.store.journal import Store
from tests.serving import ISSUER, prepare


def test_a_failure_closes_what_is_open(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url)
    prepare(sqlite_url, tmp_path)
    closed: list[str] = []
    for kind in (LedgerService, ChangePointProcess, Store):

        def close(self: object, close: object = kind.close) -> None:
            closed.append(type(self).__name__)
            close(self)  # type: ignore[operator]

        monkeypatch.setattr(kind, "close", close)
    monkeypatch.setattr(module, "register", None)
    with pytest.raises(TypeError):
        module.create_app(settings, key=ISSUER)
    assert closed == ["LedgerService", "ChangePointProcess", "Store"]
