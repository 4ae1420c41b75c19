"""The JavaScript client in Node, against a real server: ``make js``."""

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dag_acfl.__main__ import main
from dag_acfl.sources import open_source
from fl_client import LedgerClient, Participant, ParticipantState
from fl_core.verify import verify
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.builders import ISSUER, make_genesis
from tests.javascript.origin import CLIENT, Origin, origin
from tests.live import Live, run_app
from tests.serving import prepare
from tests.tiny_trainer import TinyTrainer

KILLS = int(os.environ.get("KILLS", "10"))
MOMENTS = ("begun", "half", "answered", "told", "a moment later")


@pytest.fixture
def live(sqlite_url: str, tmp_path: Path) -> Iterator[Live]:
    """A server with a new ledger: all weights 1, top-k selection."""
    settings = load_settings(data_dir=tmp_path / "server", database_url=sqlite_url)
    prepare(sqlite_url, settings.data_dir, genesis=make_genesis(selector="top-k", selector_params={"k": 2}))
    with run_app(create_app(settings, key=ISSUER), settings) as running:
        yield running


@cache
def executable() -> str:
    """Node itself: what is found by name may be a script that starts it, and would be killed in its place."""
    return subprocess.check_output(["node", "-p", "process.execPath"], text=True).strip()


def node(server: str, folder: Path, target: float, steps: int, *token: str) -> subprocess.Popen[bytes]:
    words = [server, str(folder), str(target), str(steps), *token]
    command = [executable(), "--no-warnings", "test/lib/client.js", *words]
    return subprocess.Popen(command, cwd=CLIENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE if token else None)


def ran(process: subprocess.Popen[bytes]) -> Any:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(out)


def findings(live: Live) -> list[Any]:
    with open_source(live.url) as ledger:
        return [finding for finding in verify(ledger) if not finding.kind.is_warning]


def test_a_node_client_and_a_python_client_average_with_each_other(live: Live, tmp_path: Path) -> None:
    def python(steps: int) -> None:
        with ParticipantState(tmp_path / "bob") as state, LedgerClient(live.url, key=state.key) as client:
            assert Participant(client, TinyTrainer(target=3), state).run(steps) == steps

    (first,) = ran(node(live.url, tmp_path / "ann", 2, 1))["reports"]
    assert (first["source"], first["sequence"], first["created"]) == ("own", 0, True)
    python(1)
    second = ran(node(live.url, tmp_path / "ann", 2, 1))
    python(1)
    (report,) = second["reports"]
    assert (report["source"], report["numChosen"], report["sequence"]) == ("parents", 1, 1)
    with LedgerClient(live.url) as reader:
        assert {item.sequence for item in reader.clients().items} == {1}
        (cluster,) = reader.clusters().clusters
        newest = reader.transaction(report["transaction"])
    assert second["author"] in cluster.authors
    assert len(cluster.authors) == 2
    assert newest.metrics["loss"] == report["before"]["loss"]
    assert findings(live) == []


def test_a_server_that_asks_for_a_token_takes_who_shows_one(sqlite_url: str, tmp_path: Path) -> None:
    auth = {"required_for": ("reads", "writes")}
    settings = load_settings(data_dir=tmp_path / "server", database_url=sqlite_url, auth=auth)
    prepare(sqlite_url, settings.data_dir, genesis=make_genesis(selector="top-k", selector_params={"k": 2}))
    token = tmp_path / "ann.token"
    assert main(["tokens", "create", "ann", "--data-dir", str(settings.data_dir), "--out", str(token)]) == 0
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        for shown, code in (("", b"token-required"), (f"dagacfl_{'0' * 43}", b"token-invalid")):
            _, told = node(live.url, tmp_path / "ann", 2, 1, shown).communicate(timeout=60)
            assert code in told
            assert b"status: 401" in told
        (report,) = ran(node(live.url, tmp_path / "ann", 2, 1, token.read_text()))["reports"]
    assert (report["sequence"], report["created"]) == (0, True)


def test_a_step_that_is_too_long_is_given_up_and_the_next_run_goes_on(sqlite_url: str, tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path / "server", database_url=sqlite_url)
    prepare(sqlite_url, settings.data_dir, genesis=make_genesis(max_first_step=0.5))
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        far = node(live.url, tmp_path / "ann", 50, 1, "")
        _, said = far.communicate(timeout=60)
        assert (far.returncode, b"step-too-long" in said) == (1, True)
        (report,) = ran(node(live.url, tmp_path / "ann", 1.1, 1))["reports"]
        assert (report["sequence"], report["created"], report["resumed"]) == (0, True, False)


def test_kills_in_mid_publication_lose_nothing_and_double_nothing(live: Live, tmp_path: Path) -> None:
    """Each run ends the publication of the one before, takes a step more, and is killed while it publishes that one."""
    chance = random.Random(15)
    pending: list[str] = []
    with origin(live) as server:
        for kill in range(KILLS):
            killed_while_publishing(server, tmp_path / "ann", MOMENTS[kill % len(MOMENTS)], chance)
            position = json.loads((tmp_path / "ann" / "position").read_text())
            pending.append(position["pending"]["model_digest"] if "pending" in position else position["model"])
        server.watch = lambda _: None
        last = ran(node(server.url, tmp_path / "ann", 2, 1))
    with LedgerClient(live.url) as reader:
        mine = [each for each in reader.transactions(limit=1000).items if each.author == last["author"]]
    published = Counter(each.model.digest for each in mine)
    lost = sum(published[digest] == 0 for digest in pending)
    sys.stdout.write(f"\n{KILLS} kills, {len(mine)} publications, {lost} lost\n")
    assert sorted(each.sequence for each in mine) == list(range(len(mine)))
    assert lost == 0
    assert max(published.values()) == 1, "a publication was doubled"
    assert KILLS <= len(mine) <= KILLS + 1
    assert findings(live) == []


def killed_while_publishing(server: Origin, folder: Path, moment: str, chance: random.Random) -> None:
    """Run until the second publication (the first may be the end of an earlier one) comes to the moment."""
    resumes = folder.exists() and "pending" in json.loads((folder / "position").read_text())
    process = node(server.url, folder, chance.uniform(0, 4), 2 if resumes else 1)
    seen: list[str] = []
    delay_s = chance.uniform(0, 0.02)

    def watch(stage: str) -> None:
        seen.append(stage)
        if seen.count("begun") < (2 if resumes else 1):
            return
        if stage == moment:
            process.kill()
        elif stage == "begun" and moment == "a moment later":
            threading.Timer(delay_s, process.kill).start()

    server.watch = watch
    process.wait(timeout=60)
    assert process.stdout is not None
    process.stdout.close()
