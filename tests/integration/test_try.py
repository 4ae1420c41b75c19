"""``dag-acfl try`` with a file of one's own, whose trainer needs no torch: what is told, what is left, what goes wrong."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from dag_acfl.sources import open_source
from dag_acfl.trial.processes import Command
from tests.integration.test_demo import ROOT, environment, left_over, none_left_over

FILE = """
import sys, time
from tests.tiny_trainer import TinyTrainer

class Mine(TinyTrainer):
    def train(self, arrays, *, epochs, hints=None):
        if {fails}:
            raise ValueError("no data in the cupboard")
        if "run" in sys.argv:
            time.sleep(self.slow)
        return super().train(arrays, epochs=epochs, hints=hints)

def trainer(site=0, far=3.0, slow=0.0):
    made = Mine(far if site % 2 else 0.0)
    made.slow = slow
    return made
"""
LONG = ("--sites", "2", "--updates", "80", "--set", "slow=0.25")
"""Twenty seconds of a client's waiting, of which it is left a part."""
SOME_UPDATES = rb" [1-9]\d*/80"  # of a client in the panel, which does not show every one

pytestmark = pytest.mark.timeout(120)


def command(folder: Path, *more: str, fails: str = "False") -> list[str]:
    file = folder / "my_client.py"
    file.write_text(FILE.format(fails=fails))
    few = ["--epochs", "1", "--port", "0"]
    return [sys.executable, "-m", "dag_acfl", "try", str(file), "--out", str(folder / "tried"), *few, *more]


def own_environment() -> dict[str, str]:
    return {**environment(), "PYTHONPATH": str(ROOT)}


def test_a_mistake_of_the_file_is_told_before_any_process_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begins(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a process begins")

    monkeypatch.setattr(Command, "__init__", begins)
    assert main(command(tmp_path, fails="True")[3:]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert "my_client.py" in said
    assert "line 8: ValueError: no data in the cupboard" in said
    assert not (tmp_path / "tried" / "run" / "ledger").exists()


def test_a_client_that_fails_ends_the_trial_with_its_own_error(tmp_path: Path) -> None:
    arguments = command(tmp_path, "--sites", "2", "--updates", "2", fails="'run' in sys.argv")
    ended = subprocess.run(arguments, cwd=ROOT, env=own_environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    *_, last = ended.stderr.splitlines()
    assert last.startswith("error: site ")
    assert "my_client.py" in last
    assert "line 8: ValueError: no data in the cupboard" in last
    assert none_left_over(tmp_path / "tried")


def test_clients_that_end_without_a_word_end_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dag_acfl.trial.run._SILENT_S", 0.5)
    ends = command(tmp_path, "--sites", "2", "--updates", "2", fails="'run' in sys.argv and __import__('os')._exit(0)")
    assert main(ends[3:]) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert "all clients have ended, and 0 of 4 updates were published; does " in last
    assert none_left_over(tmp_path / "tried")


@contextmanager
def in_terminal(arguments: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Started with a pseudo-terminal for its output; gives our end of it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        arguments,
        cwd=ROOT,
        env=own_environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def press_ctrl_c(process: subprocess.Popen[bytes]) -> None:
    """What a terminal does: every process of the foreground group gets the signal."""
    os.killpg(process.pid, signal.SIGINT)


def output(ours: int, *, until: bytes = b"", timeout_s: float = 100) -> Iterator[bytes]:
    """What comes, until the pattern ``until`` has come or the terminal is closed."""
    seen = b""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        ready, _, _ = select.select([ours], [], [], 0.2)
        if not ready:
            continue
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            return
        seen += piece
        yield piece
        if until and re.search(until, seen):
            return


def test_four_sites_of_two_kinds_find_each_other_and_are_served_until_ctrl_c(tmp_path: Path) -> None:
    """A table that changes in place, nothing about several servers, and in the end a ledger that can be asked."""
    out = tmp_path / "tried"
    arguments = command(tmp_path, "--sites", "4", "--updates", "3", "--set", "far=5", "--keep-serving")
    with in_terminal(arguments) as (process, ours):
        text = b"".join(output(ours, until=b"ledger init --name pilot --client")).decode()
        assert "\x1b[" in text
        assert text.count("ETA") > 3  # drawn again and again
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
        for said in (
            "loading 4 sites",
            "local-only",
            "FedAvg",
            "DAG-ACFL",
            "sharing buys",
            "sites 0 2, 1 3",
            "verified: 13 transactions",
            "dag-acfl ledger init --name pilot --client",
        ):
            assert said in plain, plain[-3000:]
        for word in ("ledgers equal", "moved from", "server to server"):
            assert word not in plain
        url = re.search(r"(http://127\.0\.0\.1:\d+)/ui/\s+\(still", plain)
        assert url is not None, plain[-3000:]
        with open_source(url[1]) as source:
            assert len(list(source.transactions())) == 13
        press_ctrl_c(process)
        list(output(ours))
        assert process.wait(30) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["network"] is None
    assert summary["clusters"]["sites"] == [[0, 2], [1, 3]]
    alone, common, _ = (method["values"] for method in summary["methods"])
    # After four epochs alone a model has gone 15/16 of the way from 1 to 0 or to 5: accuracy is 1 / (1 + distance).
    assert alone == pytest.approx([1 / (1 + 1 / 16), 1 / (1 + 4 / 16)] * 2, abs=1e-4)
    assert common[0] < alone[0], "one model for all lies between"
    assert (out / "run" / "ledger" / "ledger.sqlite3").is_file()
    assert none_left_over(out)


def test_ctrl_c_stops_everything_and_says_what_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "tried"
    with in_terminal(command(tmp_path, *LONG, "--servers", "2")) as (process, ours):
        list(output(ours, until=SOME_UPDATES))
        press_ctrl_c(process)
        text = b"".join(output(ours)).decode()
        assert process.wait(30) == 130
    assert "all processes have ended" in text
    assert "Traceback" not in text
    assert (out / "run" / "server-1" / "ledger.sqlite3").is_file()
    assert none_left_over(out)


def test_a_trial_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    out = tmp_path / "tried"
    with in_terminal(command(tmp_path, *LONG)) as (process, ours):
        list(output(ours, until=SOME_UPDATES))
        assert left_over(out), "there is something to take along"
        process.kill()
        process.wait(10)
        assert none_left_over(out)


def test_a_server_that_cannot_start_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main([*command(tmp_path)[3:], "--sites", "2", "--updates", "1", "--port", port]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert f"port {port} is already in use" in said
    assert none_left_over(tmp_path / "tried")
