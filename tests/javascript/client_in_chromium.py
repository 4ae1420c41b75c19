"""The JavaScript client in Debian's Chromium, against a real server: ``make js``."""

import os
import queue
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fl_client import LedgerClient
from tests.javascript.client_in_node import findings, live
from tests.javascript.origin import CLIENT, Origin, origin, path_of
from tests.live import Live

__all__ = ["live"]
KILLS = int(os.environ.get("BROWSER_KILLS", "4"))
CHROMIUM = shutil.which("chromium")


@contextmanager
def chromium(url: str, profile: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Chromium on a page, until the block ends."""
    assert CHROMIUM is not None, "install chromium"
    quiet = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking"
    command = [CHROMIUM, *quiet.split(), *options, f"--user-data-dir={profile}", url]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        killed(process)


@contextmanager
def browser(
    server: Origin, profile: Path, *, host: str = "127.0.0.1", **query: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Chromium on the tests' page; ``host`` is where it believes the origin to be."""
    url = f"http://{host}:{server.port}{path_of(CLIENT / 'test' / 'lib' / 'page.html')}?{urlencode(query)}"
    with chromium(url, profile, f"--host-resolver-rules=MAP {host} 127.0.0.1") as process:
        yield process


def killed(process: subprocess.Popen[bytes]) -> None:
    """The browser with all its processes, at once."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


def done(server: Origin, profile: Path, **query: object) -> Any:
    """What a page reports of a task."""
    with browser(server, profile, **query):
        report = server.reports.get(timeout=60)
    assert "error" not in report, report["error"]
    return report["result"]


@pytest.mark.parametrize("host", ["127.0.0.1", "ledger.example"])
def test_the_vectors_hold_in_a_browser(live: Live, tmp_path: Path, host: str) -> None:
    with origin(live) as server:
        report = done(server, tmp_path / "profile", host=host, task="conformance")
    has_cryptography = host == "127.0.0.1"  # a name over plain HTTP is no secure context
    assert (report["isSecure"], report["hasSubtle"]) == (has_cryptography, has_cryptography)
    assert sum(report["held"].values()) >= 95


def test_a_page_takes_part_and_goes_on_after_a_reload(live: Live, tmp_path: Path) -> None:
    host = "ledger.example"  # which has to do without the browser's cryptography
    with origin(live) as server:
        first = done(server, tmp_path / "profile", host=host, task="steps", target=2, steps=2)
        second = done(server, tmp_path / "profile", host=host, task="steps", target=2, steps=1)
        seen = done(server, tmp_path / "profile", host=host, task="event")
    assert first["author"] == second["author"] != seen["author"]
    assert [each["sequence"] for each in first["reports"] + second["reports"]] == [0, 1, 2]
    with LedgerClient(live.url) as reader:
        assert reader.tips().transactions == 1 + 3 + 1
    assert findings(live) == []


def test_a_page_trains_in_a_worker(live: Live, tmp_path: Path) -> None:
    with origin(live) as server:
        assert done(server, tmp_path / "profile", task="worker")["accuracy"] == 1


def test_a_browser_killed_in_mid_publication_loses_and_doubles_nothing(live: Live, tmp_path: Path) -> None:
    stages: queue.Queue[str] = queue.Queue()
    with origin(live) as server:
        for kill in range(KILLS):
            moment = ("begun", "half", "answered", "told")[kill % 4]
            with browser(server, tmp_path / "profile", task="steps", target=kill + 1, steps=2) as process:

                def watch(stage: str, moment: str = moment, process: subprocess.Popen[bytes] = process) -> None:
                    if stage == moment and process.poll() is None:
                        killed(process)
                        stages.put(stage)

                server.watch = watch
                assert stages.get(timeout=60) == moment
        server.watch = lambda _: None
        last = done(server, tmp_path / "profile", task="steps", target=9, steps=2)
    with LedgerClient(live.url) as reader:
        mine = [each for each in reader.transactions(limit=1000).items if each.author == last["author"]]
    assert [each.sequence for each in mine] == list(range(len(mine)))
    assert len({each.created_at_ms for each in mine}) == len(mine), "a publication was doubled"
    assert mine[-1].id == last["reports"][-1]["transaction"]
    assert findings(live) == []
