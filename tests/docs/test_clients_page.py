"""docs/clients.md: its client of one's own figures runs as printed, and its figures are wherever the page says."""

import re
import sys
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from dag_acfl.commands.options import figure
from fl_client import LedgerClient
from fl_client.integrations.trackers import TRACKERS
from fl_client.integrations.trackers.csv_file import read_rows
from fl_client.scaffold import load_trainer
from fl_core.models import encode_model
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.builders import make_genesis
from tests.docs.test_docs import ROOT, code_blocks
from tests.live import run_app
from tests.serving import prepare

PAGE = ROOT / "docs" / "clients.md"
CLIENT, CALLBACK = (block for block in code_blocks(PAGE, "python") if "trainer" in block)
PUBLISHED = {"mae", "loss", "train_loss", "base_price"}


def test_a_regression_client_sees_its_own_figures_everywhere(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        assert main(arguments) == 0, capsys.readouterr()
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "my_client.py"
    file.write_text(CLIENT)
    trainer = load_trainer(file)
    first = encode_model(trainer.layout(), trainer.initial_arrays())
    prepare(sqlite_url, tmp_path, genesis=make_genesis(layout=trainer.layout(), selector="beast"), first=first)
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url)
    with run_app(create_app(settings), settings) as live:
        text = run("client", "run", "my_client.py", "--server", live.url, "--transactions", "1")
        measured = re.search(
            r"  mae (\S+) → (\S+)  loss \S+ → \S+  train_loss \S+  base_price \S+  \d\.\d s$", text, re.MULTILINE
        )
        assert measured is not None, text
        with LedgerClient(live.url) as client:
            (newest,) = client.clients().items
        assert newest.metrics.keys() == PUBLISHED
        assert figure(newest.metrics["mae"]) == measured[1]
        assert float(measured[2]) < float(measured[1]), "it has learnt"
        shown = run("client", "status", "my_client-state")
        assert re.search(rf"^given .*safetensors  mae {measured[1]}  loss ", shown, re.MULTILINE)
        assert re.search(rf"^trained .*safetensors  mae {measured[2]}  loss ", shown, re.MULTILINE)
        inspected = run("ledger", "inspect", live.url)
        for name in PUBLISHED:
            assert f"{name}={figure(newest.metrics[name])}" in inspected
        assert max(map(len, inspected.splitlines())) <= 80

        monkeypatch.syspath_prepend(str(tmp_path))
        sys.modules.pop("my_client", None)  # another page's
        exec(compile(CALLBACK.replace("http://127.0.0.1:8900", live.url), PAGE.name, "exec"), {})
        del sys.modules["my_client"]
    assert [row["sequence"] for row in read_rows(tmp_path / "site-3")] == ["0", "1"]
    assert list((tmp_path / "site-3" / "tensorboard").iterdir())


def test_every_tracker_is_in_the_page() -> None:
    rows = set(re.findall(r"^\| `([a-z]+)` \| `pip install", PAGE.read_text("utf-8"), re.MULTILINE))
    assert rows == TRACKERS.keys() - {"csv"}
