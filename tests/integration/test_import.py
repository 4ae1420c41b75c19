"""``dag-acfl ledger import``: a bundle becomes a server's ledger, on either database."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fl_core.wire import v1
from ledger_server.admin.bundle import write_bundle
from ledger_server.keys import create_key
from tests.integration.test_cli import refused, run
from tests.live import client_of
from tests.sources import sound_ledger

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("configured_database")
def test_a_bundle_becomes_a_servers_ledger_and_nothing_comes_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, site = tmp_path / "run.dagacfl", str(tmp_path / "site")
    write_bundle(sound_ledger().source(), bundle)
    for _ in range(2):
        said = run("ledger", "import", str(bundle), "--data-dir", site, capsys=capsys)
        assert "6 transactions" in said
        assert "dag-acfl keys peer" in said, "no key of a founder is beside it"
    assert "sound: 6 transactions, 6 models" in run("ledger", "verify", site, capsys=capsys)


def test_what_is_no_whole_ledger_of_this_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound, bundle = sound_ledger(), tmp_path / "run.dagacfl"
    command = ("ledger", "import", str(bundle), "--data-dir", str(tmp_path / "site"))
    write_bundle(sound.source(), bundle)
    create_key(tmp_path / "run.dagacfl.key")
    assert "is not the key of a founder" in refused(*command, capsys=capsys)
    source = sound.source()
    source.prune(sound.ann)
    write_bundle(source, bundle)
    assert "1 of its models were pruned" in refused(*command, capsys=capsys)
    del source.models[sound.source().kept[sound.bob].header.model_digest]
    write_bundle(source, bundle)
    assert "fault: model-missing" in run(*command, code=1, capsys=capsys)


def test_a_bundle_is_looked_at_by_a_server_of_its_own_that_ends_without_a_trace(tmp_path: Path) -> None:
    bundle = tmp_path / "run.dagacfl"
    write_bundle(sound_ledger().source(), bundle)
    create_key(tmp_path / "run.dagacfl.key")
    before = bundle.read_bytes()
    command = [sys.executable, "-m", "dag_acfl", "ledger", "view", str(bundle)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path),
        "DAG_ACFL_DATABASE_URL": "sqlite:///x",
    }
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("serving on ")).split()[-1]
        with client_of(url) as client:
            assert client.get("/ui/").status_code == 200
            assert client.get(v1.VIEW_UPDATES).json()["transactions"] == 6
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert bundle.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.dagacfl", "run.dagacfl.key"]
