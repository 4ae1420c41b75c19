"""``dag-acfl simulate --report``: what it prints and writes of results that are there."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dag_acfl.__main__ import app
from fl_simulator.config.experiment import read_experiment, scenario_toml
from fl_simulator.run.folder import RunFolder
from fl_simulator.run.record import RoundRecord

EXPERIMENT = """
name = "small/table"
title = "A small table"
seeds = [0, 1]
[base]
data.pixels = "unit"
run.rounds = 1
[[settings]]
label = "digits"
[[methods]]
label = "FedAvg"
strategy.name = "fedavg"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "table.toml"
    found.write_text(EXPERIMENT)
    return found


def keep_first_run(file: Path, out: Path) -> None:
    """Seed 0's results; seed 1 has none."""
    planned = read_experiment(file).runs[0]
    path = out / "small" / "table" / planned.label.folder_name
    with RunFolder.open(path, scenario=scenario_toml(planned.scenario), label=planned.label) as folder:
        folder.append(
            RoundRecord(round=0, virtual_time_s=1.0, participants=1, up_bytes=4, down_bytes=4, accuracy=0.75, loss=0.5)
        )
        folder.finish()


def test_report_prints_the_table_and_writes_it_with_its_pictures(file: Path, tmp_path: Path) -> None:
    keep_first_run(file, tmp_path / "out")
    done = CliRunner().invoke(app, ["simulate", str(file), "--report", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "0.7500 (1)" in done.stdout
    command = f"dag-acfl simulate {file} --out {tmp_path / 'out'}"
    assert f"missing: digits-1-fedavg-seed-1; play them with: {command}" in done.stderr
    target = tmp_path / "out" / "small" / "table" / "report"
    assert {path.name for path in target.iterdir()} == {"report.md", "summary.csv", "curves.csv", "curves-1.png"}
    assert f"{target}: report.md" in done.stderr
    assert "# A small table" in (target / "report.md").read_text("utf-8")


def test_report_of_nothing_names_the_command_and_writes_nothing(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "none"
    done = CliRunner().invoke(app, ["simulate", str(file), "--report", "--out", str(out), "--set", "run.rounds=3"])
    assert done.exit_code == 0, done.output
    assert f"play them with: dag-acfl simulate {file} --set run.rounds=3 --out {out}" in done.stderr
    assert not out.exists()


def test_a_run_in_virtual_time_is_listed_by_its_moments(file: Path, tmp_path: Path) -> None:
    file.write_text(EXPERIMENT + "asynchronous = { duration_s = 60.0, evaluate_every_s = 20.0 }\n")
    planned = read_experiment(file).runs[0]
    path = tmp_path / "out" / "small" / "table" / planned.label.folder_name
    with RunFolder.open(path, scenario=scenario_toml(planned.scenario), label=planned.label) as folder:
        folder.append(
            RoundRecord(round=0, virtual_time_s=20.0, participants=1, up_bytes=4, down_bytes=4, results=1, lost=0)
        )
    command = ["simulate", str(file), "--out", str(tmp_path / "out")]
    listed = CliRunner().invoke(app, [*command, "--list"])
    assert [line.split(maxsplit=1)[1] for line in listed.stdout.splitlines()] == ["1 of 3 evaluations", "not begun"]


def test_list_without_a_file_names_the_experiments_that_are_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiments" / "paper").mkdir(parents=True)
    (tmp_path / "experiments" / "paper" / "table.toml").write_text(EXPERIMENT)
    (tmp_path / "experiments" / "unfinished.toml").write_text("title =")
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(app, ["simulate", "--list"])
    table, unfinished = (line.split(maxsplit=1) for line in listed.stdout.splitlines())
    assert table == ["experiments/paper/table.toml", "A small table"]
    assert unfinished[0] == "experiments/unfinished.toml"
    assert unfinished[1].startswith("cannot be read: Invalid value")


def test_a_clients_own_file_is_simulated_and_says_where_its_models_are(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from tests.tiny_trainer import TinyTrainer\n"
        "def trainer(site: int) -> TinyTrainer:\n"
        "    return TinyTrainer(3.0 if site % 2 else 0.0)\n"
    )
    out = tmp_path / "my results"
    command = [
        "simulate",
        "--client",
        str(file),
        "--sites",
        "4",
        "--jobs",
        "1",
        "--set",
        "run.rounds=2",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "DAG-ACFL finds 2 groups of sites" in done.stdout
    assert "over training alone" in done.stdout
    export = shlex.split(done.stdout.splitlines()[-1].partition(": ")[2])
    exported = CliRunner().invoke(app, [*export[1:], "--out", str(tmp_path / "group.safetensors")])
    assert exported.stdout.startswith("cluster 1 of 2, the average of its 2 authors' newest models")
