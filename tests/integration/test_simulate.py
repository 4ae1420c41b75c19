"""``dag-acfl simulate`` as a person runs it: stopped, killed, gone on with, and what it says meanwhile."""

import csv
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dag_acfl.__main__ import main
from fl_simulator.config.experiment import overrides_of, read_experiment
from fl_simulator.errors import ResultsError
from fl_simulator.run.folder import (
    CHECKPOINT,
    CHOICES,
    CLIENTS,
    EDGES,
    EVIDENCE,
    LEDGER,
    ROUNDS,
    SUMMARY,
    read_rounds,
    read_summary,
)
from fl_simulator.run.processes import usable_cores
from fl_simulator.run.results import runs_in, shown_runs

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "experiments" / "digits.toml"
ON_A_GRAPH = ROOT / "experiments" / "graph_digits.toml"
NAMES = [
    f"digits-digits-mlp-0.5-{method}-seed-{seed}"
    for method in ("local-only", "fedavg", "dag-acfl", "oracle")
    for seed in (0, 1)
]
SHORT = ("--set", "run.rounds=2", "--set", "training.initial_epochs=1")
OWN_FILE = """
import os, time
from pathlib import Path
from fl_simulator.run import parallel
from tests.tiny_trainer import TinyTrainer

HERE = Path(__file__).parent

class Mine(TinyTrainer):
    def train(self, arrays, *, epochs, hints=None):
        while (HERE / "hold").exists() and is_held():
            (HERE / f"stands-{os.getpid()}").touch()
            time.sleep(0.01)
        return super().train(arrays, epochs=epochs, hints=hints)

def is_held():
    ended, checkpoints = (len(list(HERE.rglob(name))) for name in ("summary.json", "checkpoint.npz"))
    return ended >= int((HERE / "hold").read_text()) and checkpoints and not parallel._stop.is_set()

def trainer(site=0):
    return Mine(3.0 if site % 2 else 0.0)
"""
"""A client without torch. While the file ``hold`` says 2, the run after two others stands as soon as it has a
checkpoint, until it is told to stop: whatever is to come before its end surely does."""
OF_THE_MACHINE = ("seconds_", "peak_memory_bytes")
DAG = "digits-digits-mlp-0.5-dag-acfl-seed-0"
OWN_DAG = "my-client-8-sites-1-dag-acfl-seed-0"

pytestmark = pytest.mark.timeout(180)


def command(out: Path, *more: str, file: Path = DIGITS) -> list[str]:
    return [sys.executable, "-m", "dag_acfl", "simulate", str(file), "--out", str(out), *more]


def own_command(folder: Path, *more: str, hold: int | None = None) -> list[str]:
    """Six rounds of the three methods on eight sites of ``OWN_FILE``: as many as are worth processes that select.

    Args:
        folder: For the file and for results.
        more: Further arguments.
        hold: After so many ended runs the next ones stand; None: none does.
    """
    file = folder / "my_client.py"
    file.write_text(OWN_FILE)
    for old in (folder / "hold", *folder.glob("stands-*")):
        old.unlink(missing_ok=True)
    if hold is not None:
        (folder / "hold").write_text(str(hold))
    said = ("--set", "run.rounds=6", "--set", "run.checkpoint_every=2", *more)
    said = said if "--only" in more else (*said, "--only", "*")  # and no report
    return [*command(folder)[:4], "--client", str(file), "--sites", "8", "--out", str(folder), *said]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DAG_ACFL_")}
    return {**kept, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40", "PYTHONPATH": str(ROOT)}


@dataclass
class Finished:
    """An ended command."""

    code: int
    out: str
    err: str


def simulate(out: Path, *more: str, file: Path = DIGITS, columns: int = 160) -> Finished:
    return finished(command(out, *more, file=file), columns=columns)


def finished(arguments: list[str], *, columns: int = 160) -> Finished:
    done = subprocess.run(
        arguments,
        env={**environment(), "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "\x1b" not in done.stderr
    return Finished(done.returncode, done.stdout, done.stderr)


@contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, as a shell starts it; ended at the end, whatever happens."""
    process = subprocess.Popen(arguments, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # all have ended, as they should
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(happened: Callable[[], object], *, within_s: float = 100) -> None:
    until = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


def none_left_of(session: int) -> bool:
    """Whether no process of the command's session is left."""
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                return False
        except (ProcessLookupError, psutil.NoSuchProcess, PermissionError):
            continue
    return True


def figures(run: Path) -> list[dict[str, str]]:
    with (run / ROUNDS).open() as file:
        rows = list(csv.DictReader(file))
    return [{name: cell for name, cell in row.items() if not name.startswith(OF_THE_MACHINE)} for row in rows]


def assert_same_runs(left: Path, right: Path, names: list[str]) -> None:
    for name in names:
        assert figures(left / name) == figures(right / name), name
        assert (left / name / CLIENTS).read_bytes() == (right / name / CLIENTS).read_bytes()
        for file in (LEDGER, CHOICES):
            assert (left / name / file).exists() == (right / name / file).exists() == ("dag-acfl" in name)
            if "dag-acfl" in name:
                assert (left / name / file).read_bytes() == (right / name / file).read_bytes(), file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """All eight runs of the shipped experiment, two rounds each, without a terminal."""
    out = tmp_path_factory.mktemp("whole")
    return out, simulate(out, *SHORT, "--jobs", "1")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs on ``OWN_FILE``, one after the other."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert finished(own_command(folder, "--jobs", "1")).code == 0
    return folder / "my_client"


# -- played to the end -----------------------------------------------------------------------------------


def test_without_a_terminal_each_run_is_a_line_and_the_report_follows(whole: tuple[Path, Finished]) -> None:
    out, done = whole
    assert done.code == 0
    assert "Rotated digits: four clusters of clients" in done.out
    first, *runs, last, hint = done.err.splitlines()
    assert first == f"Rotated digits: four clusters of clients: 8 runs into {out / 'digits'}"
    assert len(runs) == 8
    assert all(
        re.fullmatch(r"digits-digits-mlp 0\.5 .+ seed [01]: accuracy 0\.\d{4} after 2 rounds", each) for each in runs
    )
    assert last == f"{out / 'digits' / 'report'}: report.md, summary.csv, curves.csv, curves-1.png"
    assert hint.endswith(f"dag-acfl ledger view {out / 'digits'}")


def test_every_run_has_its_folder_with_all_that_a_finished_run_has(whole: tuple[Path, Finished]) -> None:
    out, _ = whole
    assert sorted(path.name for path in (out / "digits").iterdir()) == sorted([*NAMES, "report"])
    for name in NAMES:
        files = {path.name for path in (out / "digits" / name).iterdir() if not path.name.startswith(".")}
        assert files == {"scenario.toml", "run.json", "environment.json", ROUNDS, CLIENTS, SUMMARY, EDGES} | (
            {CHOICES, LEDGER, EVIDENCE} if "dag-acfl" in name else set()
        )
        assert len(figures(out / "digits" / name)) == 2


def test_a_console_is_told_all_runs_with_the_rounds_that_were_evaluated(whole: tuple[Path, Finished]) -> None:
    folder = whole[0] / "digits"
    runs = {each.folder: each for each in shown_runs(runs_in(folder))}
    assert [*runs] == sorted(NAMES)
    assert [name for name in runs if runs[name].has_ledger] == [name for name in sorted(NAMES) if "dag-acfl" in name]
    found, (first, last) = runs[DAG], read_rounds(folder / DAG)
    assert (found.method, found.seed, found.rounds, found.is_finished) == ("DAG-ACFL", 0, 2, True)
    assert found.columns["round"] == [1.0], "every second round is evaluated"
    assert found.columns["accuracy"] == [last.accuracy]
    assert found.columns["bytes"] == [first.up_bytes + first.down_bytes + last.up_bytes + last.down_bytes]
    assert found.costs is not None
    assert found.costs["formula_round_bytes"] == read_summary(folder / DAG)["costs"]["formula_round_bytes"]
    assert "backdoor" not in found.columns, "nobody attacks"


def test_a_runs_folder_stands_for_those_beside_it_and_a_folder_without_runs_names_some(
    whole: tuple[Path, Finished], tmp_path: Path
) -> None:
    folder = whole[0] / "digits"
    assert [each.name for each in runs_in(folder / DAG)] == sorted(NAMES)
    with pytest.raises(ResultsError, match=f"there are some in {folder}$"):
        runs_in(whole[0])
    with pytest.raises(ResultsError, match="dag-acfl simulate"):
        runs_in(tmp_path)


def test_a_runs_ledger_is_one_that_the_verifying_command_accepts(
    whole: tuple[Path, Finished], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "verify", str(whole[0] / "digits" / DAG / LEDGER)]) == 0
    assert "sound: 41 transactions" in capsys.readouterr().out, "genesis, and 20 of 40 clients in each of 2 rounds"


@pytest.fixture(scope="module")
def in_terminal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Three runs of the shipped experiment on a graph, and what a terminal was sent."""
    short = [word for said in ("run.rounds=3", "run.evaluate_every=3") for word in ("--set", said)]
    some = [word for method in ("isolation", "decdiff", "d-cliques") for word in ("--only", f"*{method}*seed-0")]
    out = tmp_path_factory.mktemp("graph")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(out, *short, *some, "--jobs", "1", file=ON_A_GRAPH),
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while True:
                ready, _, _ = select.select([ours], [], [], 100)
                assert ready, "it fell silent"
                said += os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            pass
        finally:
            os.close(ours)
        assert process.wait(100) == 0, said
    return out / "graph_digits", said.decode()


def test_the_shipped_experiment_on_a_graph_tells_of_messages_spreads_and_the_graph(
    in_terminal: tuple[Path, str],
) -> None:
    out, _ = in_terminal
    runs = {each.name: figures(each)[-1] for each in out.iterdir() if (each / ROUNDS).exists()}
    assert len(runs) == 3
    for name, cells in runs.items():
        last = {column: float(cell) for column, cell in cells.items()}
        assert last["best_client"] >= last["accuracy"], name
        assert last["down_bytes"] == 0, "nobody is a server"
        summary = json.loads((out / name / SUMMARY).read_text())
        assert 0.4 < summary["gini"] < 0.8
        if "isolation" in name:
            assert "messages" not in last
            continue
        d_cliques = "cliques" in name
        # A model to each neighbour; with Clique Averaging a gradient, too, to the four others of the clique of five.
        assert last["messages"] == pytest.approx(summary["edges_per_node"] + 4 * d_cliques)
        assert last["change_by_aggregation"] > 0
        assert 0 < last["sigma_an"] < last["sigma_ap"]


def test_in_a_terminal_bars_move_and_lines_stay(in_terminal: tuple[Path, str]) -> None:
    _, text = in_terminal
    assert "\x1b[?25l" in text, "the cursor is hidden while bars move"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "and is there again"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "━" in plain
    assert "9/9" in plain.replace(" ", ""), "the bar of all rounds ends full"
    assert plain.count(" after 3 rounds") >= 3
    assert "Traceback" not in plain


def test_finished_runs_are_skipped_and_left_as_they_are(
    whole: tuple[Path, Finished], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = whole
    before = {path: path.stat().st_mtime_ns for path in (out / "digits").rglob("*") if path.is_file()}
    assert main(command(out, *SHORT, "--only", "*-seed-0", "--jobs", "1")[3:]) == 0
    assert capsys.readouterr().err.count(": finished before\n") == 4
    assert {path: path.stat().st_mtime_ns for path in (out / "digits").rglob("*") if path.is_file()} == before


def test_overwrite_begins_anew_to_the_same_figures_whatever_the_number_of_jobs(
    uninterrupted: Path, tmp_path: Path
) -> None:
    shutil.copytree(uninterrupted, tmp_path / "my_client")
    names = [each.name for each in uninterrupted.iterdir()]
    for name in names:
        (tmp_path / "my_client" / name / ROUNDS).write_text("of another day")
    done = finished(own_command(tmp_path, "--jobs", "2", "--overwrite"))
    assert done.code == 0
    assert "finished before" not in done.err
    assert len(names) == 3
    assert_same_runs(uninterrupted, tmp_path / "my_client", names)


def test_list_names_the_runs_and_where_they_stand_and_plays_none(
    whole: tuple[Path, Finished], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed(out: Path, *more: str) -> list[list[str]]:
        assert main(command(out, *more, "--list")[3:]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        return [line.split(maxsplit=1) for line in shown.out.splitlines()]

    assert listed(whole[0], *SHORT) == [[name, "finished"] for name in NAMES]
    assert listed(tmp_path / "none", "--only", "*oracle*") == [
        [name, "not begun"] for name in NAMES if "oracle" in name
    ]
    assert not (tmp_path / "none").exists()


def test_the_scenario_that_a_run_keeps_is_a_file_to_run_again(whole: tuple[Path, Finished]) -> None:
    changes = overrides_of([each for each in SHORT if "=" in each])
    for planned in read_experiment(DIGITS, overrides=changes).runs:
        (kept,) = read_experiment(whole[0] / "digits" / planned.label.folder_name / "scenario.toml").runs
        assert kept.scenario == planned.scenario
        assert kept.label.folder_name == planned.label.folder_name


# -- interrupted --------------------------------------------------------------------------------------------


def selecting_processes(command: subprocess.Popen[str]) -> int:
    """How many there are below those of the command's own pool."""
    process = psutil.Process(command.pid)
    return len(process.children(recursive=True)) - len(process.children())


@contextmanager
def standing(folder: Path, *more: str, hold: int, runs: int = 1) -> Iterator[subprocess.Popen[str]]:
    """The command at a moment when its runs, so many at a time, stand."""
    with started(own_command(folder, *more, hold=hold)) as process:
        wait_for(lambda: len(list(folder.glob("stands-*"))) == runs or process.poll() is not None)
        yield process


def interrupt(process: subprocess.Popen[str]) -> list[str]:
    """Ctrl-C to all processes of the command, which then end; what was said."""
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=100)
    wait_for(lambda: none_left_of(process.pid), within_s=20)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1] == "stopped; the same command goes on from here"
    return said.splitlines()


def states(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Where the runs stand, as ``--list`` says it."""
    assert main([*own_command(folder)[3:], "--list"]) == 0
    return [line.split(maxsplit=1)[1].strip() for line in capsys.readouterr().out.splitlines()]


def test_ctrl_c_keeps_ended_runs_and_a_checkpoint_and_the_same_command_goes_on_to_the_same_figures(
    uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with standing(tmp_path, "--jobs", "1", hold=2) as process:
        assert usable_cores() == 1 or selecting_processes(process) > 1
        said = interrupt(process)
    assert said[-2].endswith("DAG-ACFL seed 0: stopped, with a checkpoint")
    run = tmp_path / "my_client" / OWN_DAG
    assert (run / CHECKPOINT).exists()
    assert not (run / SUMMARY).exists()
    assert states(tmp_path, capsys) == ["finished", "finished", "3 of 6 rounds"]
    assert finished(own_command(tmp_path, "--jobs", "1")).code == 0
    assert_same_runs(uninterrupted, run.parent, [OWN_DAG])


def test_ctrl_c_stops_all_runs_that_are_at_work_and_those_that_wait_do_not_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with standing(tmp_path, "--jobs", "2", hold=0, runs=2) as process:
        said = interrupt(process)
    assert sum(line.endswith("stopped, with a checkpoint") for line in said) == 2
    assert len(list(tmp_path.rglob(CHECKPOINT))) == 2
    *stopped, waiting = states(tmp_path, capsys)
    assert all(re.fullmatch("[123] of 6 rounds", each) for each in stopped)
    assert waiting == "not begun"


def test_ctrl_c_while_everything_is_still_starting_is_heard_and_said_once(tmp_path: Path) -> None:
    with started(command(tmp_path, "--set", "run.rounds=1000")) as process:
        assert process.stderr is not None
        assert "8 runs into" in process.stderr.readline()
        interrupt(process)
    assert not list(tmp_path.rglob(SUMMARY))


def test_a_process_that_is_killed_is_told_and_a_killed_command_leaves_a_checkpoint_and_no_process(
    tmp_path: Path,
) -> None:
    only = ("--only", OWN_DAG, "--jobs", "1")
    run = tmp_path / "my_client" / OWN_DAG
    with standing(tmp_path, *only, hold=0) as process:
        (stands,) = tmp_path.glob("stands-*")
        psutil.Process(int(stands.name.removeprefix("stands-"))).kill()
        _, said = process.communicate(timeout=100)
        assert process.returncode == 1
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "a process was killed" in line
    assert "--jobs" in line
    assert "Traceback" not in said
    with standing(tmp_path, *only, hold=0) as process:
        process.kill()
        process.wait(10)
        wait_for(lambda: none_left_of(process.pid), within_s=20)
    assert (run / CHECKPOINT).exists()
    assert not (run / SUMMARY).exists()


# -- failures ---------------------------------------------------------------------------------------------


def test_a_run_that_fails_is_one_line_and_the_others_finish(tmp_path: Path) -> None:
    file = tmp_path / "mixed.toml"
    text = DIGITS.read_text().replace('label = "DAG-ACFL"', 'label = "DAG-ACFL"\ntraining.learning_rate = 1e30')
    file.write_text(text)
    two = ("--only", "*fedavg-seed-0", "--only", "*dag-acfl-seed-0")
    done = simulate(tmp_path, *SHORT, *two, "--jobs", "1", file=file, columns=60)
    assert done.code == 1
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.err
    assert "DAG-ACFL seed 0" in errors[0]
    assert "learning_rate" in errors[0]
    assert len(done.err.splitlines()) == 3, "the title, a run, a failure"
    assert len(list((tmp_path / "digits").rglob(SUMMARY))) == 1
    assert not (tmp_path / "digits" / DAG / SUMMARY).exists()


def test_a_run_whose_training_diverged_says_so_beside_its_accuracy(tmp_path: Path) -> None:
    one = ("--only", "*fedavg-seed-0", "--set", "training.learning_rate=1e30")
    done = simulate(tmp_path, *SHORT, *one)
    assert done.code == 0
    last = next(line for line in done.err.splitlines() if "after 2 rounds" in line)
    assert re.fullmatch(
        r".* accuracy 0\.\d{4} after 2 rounds; loss nan: training diverged, lower .*learning_rate", last
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--only", "nonesuch"), 2, ["--only", NAMES[0]]),
        (("--set", "run.rounds=many"), 1, [str(DIGITS), "[run]: rounds must be int"]),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_begun(
    arguments: tuple[str, ...], code: int, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path / "out", *arguments)[3:]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("error: ")
    assert all(word in line for word in words), line
    assert not (tmp_path / "out").exists()


def test_a_data_set_that_is_not_here_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAG_ACFL_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said = ("data.name=mnist", "model.name=lr", "partition.name=iid", "partition.clients=2", "run.seed=0")
    file = tmp_path / "mnist.toml"
    file.write_text('data.pixels = "unit"')
    arguments = [word for each in said for word in ("--set", each)]
    assert main(command(tmp_path, *arguments, file=file)[3:]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "dag-acfl data fetch mnist" in line
