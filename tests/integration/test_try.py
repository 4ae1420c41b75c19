"""``dag-acfl try`` with a file of one's own, whose trainer needs no torch: what is told, what is left, what goes wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from dag_acfl.trial.processes import Command
from tests.integration.test_demo import ROOT, Finished, environment, none_left_over

FILE = """
import sys
from tests.tiny_trainer import TinyTrainer

class Mine(TinyTrainer):
    def train(self, arrays, *, epochs, hints=None):
        if {fails}:
            raise ValueError("no data in the cupboard")
        return super().train(arrays, epochs=epochs, hints=hints)

def trainer(site=0, far=3.0):
    return Mine(far if site % 2 else 0.0)
"""

pytestmark = pytest.mark.timeout(120)


def tried(folder: Path, *more: str, fails: str = "False") -> Finished:
    file = folder / "my_client.py"
    file.write_text(FILE.format(fails=fails))
    out = folder / "tried"
    done = subprocess.run(
        [sys.executable, "-m", "dag_acfl", "try", str(file), "--out", str(out), "--port", "0", *more],
        cwd=ROOT,
        env={**environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return Finished(out, done.stdout + done.stderr, done.returncode)


def test_four_sites_of_two_kinds_find_each_other(tmp_path: Path) -> None:
    done = tried(tmp_path, "--sites", "4", "--updates", "3", "--epochs", "1", "--set", "far=5")
    assert done.code == 0, done.text
    for said in ("loading 4 sites", "everybody has 3 of 3 updates", "local-only", "FedAvg", "DAG-ACFL", "sharing buys"):
        assert said in done.text
    assert "sites 0 2, 1 3" in done.text
    assert "dag-acfl ledger init --name pilot --client" in done.text
    assert "\x1b" not in done.text
    summary = json.loads((done.out / "summary.json").read_text())
    assert summary["clusters"]["sites"] == [[0, 2], [1, 3]]
    alone, common, _ = (method["values"] for method in summary["methods"])
    # After four epochs alone a model has gone 15/16 of the way from 1 to 0 or to 5: accuracy is 1 / (1 + distance).
    assert alone == pytest.approx([1 / (1 + 1 / 16), 1 / (1 + 4 / 16)] * 2, abs=1e-4)
    assert common[0] < alone[0], "one model for all lies between"
    assert none_left_over(done.out)


def test_a_mistake_of_the_file_is_told_before_any_process_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begins(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a process begins")

    monkeypatch.setattr(Command, "__init__", begins)
    file = tmp_path / "my_client.py"
    file.write_text(FILE.format(fails="True"))
    assert main(["try", str(file), "--out", str(tmp_path / "tried"), "--port", "0"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert "my_client.py" in said
    assert "line 8: ValueError: no data in the cupboard" in said
    assert not (tmp_path / "tried" / "run" / "ledger").exists()


def test_a_client_that_fails_ends_the_trial_with_its_own_error(tmp_path: Path) -> None:
    done = tried(tmp_path, "--sites", "2", "--updates", "2", fails="'run' in sys.argv")
    assert done.code == 1
    last = done.text.strip().splitlines()[-1]
    assert last.startswith("error: site ")
    assert "my_client.py" in last
    assert "line 8: ValueError: no data in the cupboard" in last
    assert none_left_over(done.out)
