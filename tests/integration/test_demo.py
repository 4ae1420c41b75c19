"""The demo with few clients: it finishes, leaves its files, fails loudly, and never leaves a process behind."""

import csv
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
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dag_acfl.sources import open_source
from dag_acfl.trial.processes import TrialError
from dag_acfl.trial.run import FILES
from dag_acfl.trial.servers import Servers
from fl_core.verify import verify
from ledger_server.admin.bundle import Bundle
from tests.builders import make_genesis, model

ROOT = Path(__file__).parents[2]
MANY = "80"
"""Updates of a demo that is ended long before; its baselines are trained for as many rounds first."""
SOME_UPDATES = rb" [1-9]\d*/80"  # of a client in the panel, which does not show every one
PNG = b"\x89PNG\r\n\x1a\n"

pytestmark = pytest.mark.timeout(300)


def command(out: Path, *more: str) -> list[str]:
    few = ["--clients", "3", "--updates", "2", "--port", "0"]
    return [sys.executable, "-m", "dag_acfl", "demo", *few, "--out", str(out), *more]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DAG_ACFL_")}
    return {**kept, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}


def left_over(out: Path) -> list[str]:
    """Processes that still have to do with this demo: its server names the folder, clients work in it."""
    found = []
    for process in psutil.process_iter():
        try:
            opened = [file.path for file in process.open_files()]
            if process.pid != os.getpid() and any(str(out) in text for text in (*process.cmdline(), *opened)):
                found.append(f"{process.pid} {process.cmdline()}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def none_left_over(out: Path) -> bool:
    until = time.monotonic() + 20
    while left_over(out) and time.monotonic() < until:
        time.sleep(0.1)
    return left_over(out) == []


@dataclass
class Finished:
    out: Path
    text: str
    code: int


def run(out: Path, *more: str) -> Finished:
    done = subprocess.run(
        command(out, *more), cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
    return Finished(out, done.stdout + done.stderr, done.returncode)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One demo without a terminal, for all that can be read off it."""
    out = tmp_path_factory.mktemp("plain") / "demo"
    return run(out)


def test_without_a_terminal_it_prints_plain_lines_and_the_result(finished: Finished) -> None:
    assert finished.code == 0, finished.text
    assert "\x1b" not in finished.text
    assert "everybody has 2 of 2 updates" in finished.text
    for word in (
        "local-only",
        "FedAvg",
        "DAG-ACFL",
        "sharing buys",
        "of 6 updates began with an average with others' models",
        "modularity",
        "of the own cluster's models on offer",
        "Eq. 8",
        "verified: 7 transactions",
        "site 0 moved from server 1 to server 2",
        "all 3 ledgers equal",
        "of 12 arrivals on other servers",
        "bytes per update and receiver",
        "clients switched servers once; nobody lost its place",
    ):
        assert word in finished.text


def test_it_leaves_every_file_whole(finished: Finished) -> None:
    assert {path.name for path in finished.out.iterdir()} == {*FILES, "run"}
    for name in ("curves.png", "dag.png"):
        assert (finished.out / name).read_bytes().startswith(PNG)


def test_three_servers_with_a_database_and_a_key_each_end_equal(finished: Finished) -> None:
    network = json.loads((finished.out / "summary.json").read_text())["network"]
    assert sum(network["updates"]) == 6
    assert all(network["updates"]), "every server has taken some"
    assert network["switches"] == 1
    assert network["peer_bytes"] > network["equation_8"] > 9928
    assert 0 < network["visibility"]["median_s"] <= network["visibility"]["p95_s"]
    held, keys = set(), set()
    for number in (1, 2, 3):
        folder = finished.out / "run" / f"server-{number}"
        keys.add((folder / "server-key.pem").read_bytes())
        with open_source(str(folder)) as source:
            held.add(frozenset(id_ for id_, _ in source.transactions()))
            assert [finding for finding in verify(source) if not finding.kind.is_warning] == []
    assert len(keys) == 3
    assert len(held) == 1
    assert len(held.pop()) == 7


def test_the_bundle_verifies_and_holds_every_transaction(finished: Finished) -> None:
    with Bundle(finished.out / "ledger.dagacfl") as bundle:
        assert bundle.count == 1 + 3 * 2
        assert list(verify(bundle)) == []


def test_metrics_and_summary_say_what_the_panel_said(finished: Finished) -> None:
    with (finished.out / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["site"], row["number"]) for row in rows] == [(str(c), str(n)) for c in range(3) for n in (1, 2)]
    assert {row["cluster"] for row in rows} == {"0°", "90°", "180°"}
    assert all(0 <= float(row["accuracy"]) <= 1 for row in rows)
    assert [row["server"] for row in rows[:2]] == ["1", "2"], "the first client has moved"
    summary = json.loads((finished.out / "summary.json").read_text())
    for method in summary["methods"]:
        assert f"{method['mean']:.3f}" in finished.text
        assert len(method["values"]) == 3
    assert summary["costs"]["equation_8"] == 2 * (32 + 9928) < summary["costs"]["measured"]


def test_no_process_is_left(finished: Finished) -> None:
    assert none_left_over(finished.out)


def in_terminal(arguments: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start with a pseudo-terminal for its output; gives our end of it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        arguments,
        cwd=ROOT,
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    return process, ours


def press_ctrl_c(process: subprocess.Popen[bytes]) -> None:
    """What a terminal does: every process of the foreground group gets the signal."""
    os.killpg(process.pid, signal.SIGINT)


def output(ours: int, *, until: bytes = b"", timeout_s: float = 250) -> Iterator[bytes]:
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


def test_one_server_in_a_terminal_serves_on_until_ctrl_c(tmp_path: Path) -> None:
    """A table that changes in place, nothing about several servers, and in the end a ledger that can be asked."""
    out = tmp_path / "demo"
    process, ours = in_terminal(command(out, "--clients", "2", "--servers", "1", "--keep-serving"))
    try:
        text = b"".join(output(ours, until=b"Ctrl-C to stop")).decode()
        assert "\x1b[" in text
        assert "foreign" in text
        assert text.count("● 90°") > 3  # drawn again and again
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
        assert "verified: 5 transactions" in plain
        for word in ("ledgers equal", "moved from", "server to server"):
            assert word not in plain
        url = re.search(r"still served on (http://127\.0\.0\.1:\d+)", plain)
        assert url is not None, plain[-3000:]
        with open_source(url[1]) as source:
            assert len(list(source.transactions())) == 5
        press_ctrl_c(process)
        list(output(ours))
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert json.loads((out / "summary.json").read_text())["network"] is None
    assert (out / "run" / "ledger" / "ledger.sqlite3").is_file()
    assert none_left_over(out)


def test_ctrl_c_stops_everything_and_says_what_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    process, ours = in_terminal(command(out, "--updates", MANY, "--clients", "2", "--servers", "2"))
    try:
        list(output(ours, until=SOME_UPDATES))
        press_ctrl_c(process)
        text = b"".join(output(ours)).decode()
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "all processes have ended" in text
    assert "Traceback" not in text
    assert (out / "run" / "server-1" / "ledger.sqlite3").is_file()
    assert none_left_over(out)


def test_a_demo_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    process, ours = in_terminal(command(out, "--updates", MANY, "--clients", "2", "--servers", "1"))
    try:
        list(output(ours, until=SOME_UPDATES))
        assert left_over(out), "there is something to take along"
        process.kill()
        process.wait(10)
        assert none_left_over(out)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_server_that_cannot_start_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            command(tmp_path / "demo", "--servers", "1", "--port", port),
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"port {port} is already in use" in done.stderr
    assert none_left_over(tmp_path / "demo")


def test_a_server_that_is_killed_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    finished = run(tmp_path / "demo", "--clients", "2", "--servers", "2", "--updates", "6", "--kill-server")
    assert finished.code == 0, finished.text
    assert "server 2 was killed" in finished.text
    assert "server 2 is back" in finished.text
    assert "verified: 13 transactions" in finished.text
    assert "all 2 ledgers equal" in finished.text
    assert "Traceback" not in finished.text
    assert none_left_over(finished.out)


def test_servers_choose_other_ports_when_one_was_taken_and_differ_where_one_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dag-acfl.toml").write_text('database_url = "sqlite:///elsewhere.sqlite3"\n')  # the person's own server's
    servers = Servers(tmp_path, make_genesis(), model(0), count=2, port=0)
    with closing(servers), socket.create_server(("127.0.0.1", int(servers.urls[0].rpartition(":")[2]))):
        before = servers.urls
        servers.start()
        assert servers.urls[0] != before[0]
        digest, _ = servers.wait_until_equal(1)
        with pytest.raises(TrialError, match=r"do not hold all 2 transactions after 0 s, but 1 .*, 1 "):
            servers.wait_until_equal(2, within_s=0.1)
        servers.kill(1)
        servers.check()
        with pytest.raises(TrialError, match="no answer"):
            servers.wait_until_equal(1, within_s=0.1)
        servers.restart()
        assert servers.wait_until_equal(1)[0] == digest
    assert not Path("elsewhere.sqlite3").exists()
