"""The demo with few clients, one of whose servers is killed in the middle: it finishes and leaves its files.

What it shares with a trial of one's own file (terminals, Ctrl-C, a server that cannot start) is in ``test_try.py``.
"""

import csv
import json
import os
import socket
import subprocess
import sys
import time
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
PNG = b"\x89PNG\r\n\x1a\n"

pytestmark = pytest.mark.timeout(300)


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


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One demo without a terminal, for all that can be read off it; the last of its servers is killed and comes back."""
    out = tmp_path_factory.mktemp("plain") / "demo"
    few = ["--clients", "3", "--updates", "3", "--port", "0", "--kill-server"]
    command = [sys.executable, "-m", "dag_acfl", "demo", *few, "--out", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
    return Finished(out, done.stdout + done.stderr, done.returncode)


def test_without_a_terminal_it_prints_plain_lines_and_the_result(finished: Finished) -> None:
    assert finished.code == 0, finished.text
    assert "\x1b" not in finished.text
    assert "Traceback" not in finished.text
    assert "everybody has 3 of 3 updates" in finished.text
    for word in (
        "local-only",
        "FedAvg",
        "DAG-ACFL",
        "sharing buys",
        "of 9 updates began with an average with others' models",
        "modularity",
        "of the own cluster's models on offer",
        "Eq. 8",
        "verified: 10 transactions",
        "site 0 moved from server 1 to server 2",
        "server 3 was killed",
        "server 3 is back",
        "all 3 ledgers equal",
        "arrivals on other servers",
        "bytes per update and receiver",
        "clients switched servers ",
    ):
        assert word in finished.text


def test_it_leaves_every_file_whole(finished: Finished) -> None:
    assert {path.name for path in finished.out.iterdir()} == {*FILES, "run"}
    for name in ("curves.png", "dag.png"):
        assert (finished.out / name).read_bytes().startswith(PNG)


def test_three_servers_with_a_database_and_a_key_each_end_equal_though_one_was_killed(finished: Finished) -> None:
    network = json.loads((finished.out / "summary.json").read_text())["network"]
    assert sum(network["updates"]) == 9
    assert all(network["updates"][:2]), "site 0 has published on both"
    assert network["switches"] >= 1
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
    assert len(held.pop()) == 10


def test_the_bundle_verifies_and_holds_every_transaction(finished: Finished) -> None:
    with Bundle(finished.out / "ledger.dagacfl") as bundle:
        assert bundle.count == 1 + 3 * 3
        assert list(verify(bundle)) == []


def test_metrics_and_summary_say_what_the_panel_said(finished: Finished) -> None:
    with (finished.out / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["site"], row["number"]) for row in rows] == [(str(c), str(n)) for c in range(3) for n in (1, 2, 3)]
    assert {row["cluster"] for row in rows} == {"0°", "90°", "180°"}
    assert all(0 <= float(row["accuracy"]) <= 1 for row in rows)
    assert [row["server"] for row in rows[:3]] == ["1", "2", "2"], "the first client has moved"
    summary = json.loads((finished.out / "summary.json").read_text())
    for method in summary["methods"]:
        assert f"{method['mean']:.3f}" in finished.text
        assert len(method["values"]) == 3
    assert summary["costs"]["equation_8"] == 2 * (32 + 9928) < summary["costs"]["measured"]


def test_no_process_is_left(finished: Finished) -> None:
    assert none_left_over(finished.out)


def test_a_server_chooses_another_port_when_its_was_taken_and_is_waited_for_no_longer_than_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dag-acfl.toml").write_text('database_url = "sqlite:///elsewhere.sqlite3"\n')  # the person's own server's
    servers = Servers(tmp_path, make_genesis(), model(0), count=1, port=0)
    with closing(servers), socket.create_server(("127.0.0.1", int(servers.urls[0].rpartition(":")[2]))):
        before = servers.urls
        servers.start()
        assert servers.urls[0] != before[0]
        servers.wait_until_equal(1)
        with pytest.raises(TrialError, match=r"do not hold all 2 transactions after 0 s, but 1 "):
            servers.wait_until_equal(2, within_s=0.1)
        servers.kill(0)
        servers.check()
        with pytest.raises(TrialError, match="no answer"):
            servers.wait_until_equal(1, within_s=0.1)
    assert not Path("elsewhere.sqlite3").exists()
