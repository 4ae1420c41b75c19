"""Flower apps in a ledger, as they are: ``make flower``, in environments with the oldest and the newest flwr.

flwr pins older releases of what the other tests run with; so no test of ``make test``.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dag_acfl.__main__ import main
from fl_client import LedgerClient
from fl_client.integrations.flower import FlowerApp, FlowerTrainer, Opening, opening_of
from fl_client.integrations.flower.opening import Request
from fl_client.integrations.flower.trainer import CONTEXT_FILE
from fl_client.scaffold import load_trainer
from fl_core.wire.v1 import TransactionOut
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.live import eventually, run_app

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).with_name("apps")
PINNED = {
    "batchnorm": "2c84d7b7cf1d4d5dbe7da8e53dcbcd989ea4da23e29cf0bccce283e980b58b7c",
    "private": "752fcb0ce35f5afdb394e9d3e2e12c8f858dd5ea44ef6bfbedec8bbb865c9462",
    "numpy_client": "d595e6b6d671e2dba5f1c1ce2ba8362d2b6563bc261adcc11bbbe9f939103256",
}
"""Of each app SHA-256 over its files: whoever changes an app changes what it shows."""


def digest_of_app(folder: Path) -> str:
    """Over names and contents of all files but Python's own."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(folder).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder and a wide terminal; in the end the apps are as they were."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    yield
    assert {name: digest_of_app(APPS / name) for name in PINNED} == PINNED


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 0, capsys.readouterr()
    return capsys.readouterr().out


def refused(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run what must fail; returns its one line."""
    capsys.readouterr()
    assert main(arguments) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("asking the ServerApp")]
    assert len(lines) == 1, lines
    return lines[0]


@contextmanager
def founded(app: str, *options: str) -> Iterator[str]:
    """A ledger that the app has founded, served; gives its URL."""
    assert (
        main(["ledger", "init", "--name", app, "--flower-app", str(APPS / app), "--data-dir", "server", *options]) == 0
    )
    settings = load_settings(data_dir=Path("server"))
    with run_app(create_app(settings), settings) as live:
        yield live.url


def node(partition: int) -> tuple[str, str]:
    return ("--node-config", f"partition-id={partition} num-partitions=8")


def updates_at(url: str) -> list[TransactionOut]:
    with LedgerClient(url) as client:
        return [each for each in client.transactions().items if each.kind == "update"]


def test_an_app_of_the_message_api_with_batch_norm_finds_its_two_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with founded("batchnorm") as url:
        for turn in range(2):
            for partition in range(4):
                text = run(
                    "client", "flower", str(APPS / "batchnorm"), "--server", url, *node(partition),
                    "--transactions", "1", capsys=capsys,
                )  # fmt: skip
                assert f"state in batchnorm-{partition}-state" in text
                assert f"trainings {turn + 2}.000" in text, "Context.state, kept from one run to the next"
        updates = updates_at(url)
    authors = list(dict.fromkeys(each.author for each in updates))
    group = {author: place % 2 for place, author in enumerate(authors)}
    author_of = {each.id: each.author for each in updates}
    shared = [
        (group[each.author], group[author_of[parent]])
        for each in updates
        for parent in each.parents
        if parent in author_of and author_of[parent] != each.author
    ]
    assert len(shared) >= 4
    assert all(mine == others for mine, others in shared), "digits that stand, and digits that lie on their side"
    last = {each.author: each.metrics for each in updates}
    assert all(figures["accuracy"] > 0.7 for figures in last.values())
    assert all(each.num_examples == 80 for each in updates)


def test_the_server_app_says_how_a_ledger_begins() -> None:
    opening = opening_of(FlowerApp(APPS / "batchnorm"))
    assert opening.train.configs == {"config": {"lr": 0.1, "server-round": 1}}
    assert opening.evaluate is not None
    names = [each.name for each in opening.specs]
    assert names[:2] == ["fc1.weight", "fc1.bias"], "torch's order, not the ledger's"
    assert list(opening.kept) == ["bn1.num_batches_tracked"]
    assert opening.statistics == ("bn1.running_mean", "bn1.running_var")
    again = Opening.of_hints(opening.as_hints())
    assert (again.specs, again.train, again.evaluate) == (opening.specs, opening.train, opening.evaluate)
    assert again.kept == opening.kept
    changed = opening_of(FlowerApp(APPS / "batchnorm", run_config="optimiser.lr=0.5"))
    assert changed.train.configs["config"]["lr"] == 0.5


def test_an_update_of_a_private_app_is_clipped_to_the_norm_of_its_server_app(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = FlowerApp(APPS / "private", node_config="partition-id=0 num-partitions=8", run_config="lr=2.0")
    opening = opening_of(app)
    assert opening.train.configs["config"]["clipping_norm"] == 0.7
    trainer = FlowerTrainer(app, opening)
    start = trainer.initial_arrays()
    result = trainer.train(start, epochs=1)
    step = np.concatenate([(result.arrays[name] - start[name]).ravel() for name in start])
    assert np.linalg.norm(step) == pytest.approx(0.7, rel=1e-5)
    with founded("private") as url:
        text = run(
            "client", "flower", str(APPS / "private"), "--server", url, *node(1), "--transactions", "1",
            "--metric", "accuracy=top-1", capsys=capsys,
        )  # fmt: skip
        assert re.search(r"  accuracy 0\.\d+ → 0\.\d+  ", text), text


def test_a_numpy_client_gives_the_first_model_and_keeps_its_count_of_batches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with founded("numpy_client", *node(0)) as url:
        for turn in range(2):
            text = run(
                "client", "flower", str(APPS / "numpy_client"), "--server", url, *node(3), "--transactions", "1",
                capsys=capsys,
            )  # fmt: skip
            assert f"round {turn + 2}.000" in text, "what on_fit_config_fn was told"
        with LedgerClient(url) as client:
            genesis = client.genesis().genesis
        assert genesis.buffers == ("4", "5"), "mean and variance, by their place before the count of batches"
        first, second = updates_at(url)
        assert second.metrics["accuracy"] > first.metrics["accuracy"] > 0.3
    app = FlowerApp(APPS / "numpy_client", node_config="partition-id=3 num-partitions=8")
    trainer = FlowerTrainer(app, Opening.of_hints(genesis.training), folder=Path("numpy_client-3-state"))
    assert trainer._kept["6"] == 3 * 2 * 5, "three trainings of two epochs of five batches"
    assert trainer._kept["6"].dtype == np.int64


def test_a_client_killed_in_mid_training_goes_on_with_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    with founded("private") as url:
        common = ["client", "flower", str(APPS / "private"), "--server", url, *node(0), "--transactions", "1"]
        assert "trainings 2.000" in run(*common, capsys=capsys)
        state = Path("private-0-state") / CONTEXT_FILE
        before = state.read_bytes(), state.stat().st_mtime_ns
        endless = [sys.executable, "-m", "dag_acfl", *common, "--run-config", "local-epochs=1000000000"]
        with subprocess.Popen(endless, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
            # It is written after the evaluation, and training follows that.
            eventually(lambda: state.stat().st_mtime_ns != before[1])
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert state.read_bytes() == before[0]
        assert "trainings 3.000" in run(*common, capsys=capsys)
        assert [each.sequence for each in updates_at(url)] == [0, 1]


def test_the_pages_file_makes_an_app_a_client_of_try(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "flower.md").read_text("utf-8"), re.DOTALL)
    assert '"quickstart"' in block
    file = tmp_path / "my_flower_app.py"
    file.write_text(block.replace('"quickstart"', repr(str(APPS / "batchnorm"))))
    trainer = load_trainer(file, {"site": 2})
    first = trainer.initial_arrays()
    trained = trainer.train(first, epochs=3).arrays
    assert trainer.evaluate(trained)["accuracy"] > trainer.evaluate(first)["accuracy"]


def test_an_apps_partitions_are_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--sites", "8", "--only", "*dag-acfl*", "--set", "run.rounds=2", "--set", "client.set.local-epochs=3")
    run("simulate", "--flower-app", str(APPS / "batchnorm"), *options, capsys=capsys)
    (ledger,) = Path("results").rglob("ledger.dagacfl")
    assert "2 of 4 + 4" in run("ledger", "inspect", str(ledger), capsys=capsys)
    assert "no folder of a Flower app" in refused("simulate", "--flower-app", str(APPS), capsys=capsys)


def app_with(folder: Path, name: str, *changes: tuple[str, str, str]) -> Path:
    """A copy of ``batchnorm`` under another name, with texts of its files replaced."""
    shutil.copytree(APPS / "batchnorm", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "batchnorm").rename(folder / name)
    for file in (folder / "pyproject.toml", *folder.rglob("*.py")):
        file.write_text(re.sub(r"\bbatchnorm\b(?=\.\w+_app:|\.task import)", name, file.read_text()))
    for file, old, new in changes:
        path = folder / file.replace("APP", name)
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    return folder


def test_an_app_without_evaluation_publishes_no_accuracy(tmp_path: Path) -> None:
    app = app_with(
        tmp_path / "app",
        "silent",
        ("APP/server_app.py", "FedAvg(", "FedAvg(fraction_evaluate=0.0, "),
        ("APP/client_app.py", "@app.evaluate()\n", ""),
    )
    opening = opening_of(FlowerApp(app))
    assert opening.evaluate is None
    trainer = FlowerTrainer(FlowerApp(app, node_config="partition-id=0 num-partitions=8"), opening)
    assert trainer.evaluate(trainer.initial_arrays()) == {}
    asked = replace(opening, evaluate=Request("evaluate", "arrays", {}))
    unregistered = FlowerTrainer(FlowerApp(app), asked)
    assert unregistered.evaluate(trainer.initial_arrays()) == {}, "Flower's server counts it as a failure, and goes on"


def test_what_an_app_lacks_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def line(*arguments: str) -> str:
        return refused(*arguments, capsys=capsys)

    batchnorm = str(APPS / "batchnorm")
    assert "is no Flower app" in line("ledger", "init", "--name", "x", "--flower-app", str(tmp_path))
    assert "tool.flwr.app.components" in line("client", "flower", str(ROOT))
    assert "has no 'lr'" in line("client", "flower", batchnorm, "--run-config", "lr=0.1")
    assert "--node-config" in line("client", "flower", batchnorm, "--node-config", "partition-id")
    assert "--metric" in line("client", "flower", batchnorm, "--metric", "recall=r")
    missing = app_with(tmp_path / "a", "lacking", ("APP/task.py", "import torch\n", "import torch\nimport no_such\n"))
    assert "No module named 'no_such'; install the app's dependencies" in line("client", "flower", str(missing))
    hidden = app_with(
        tmp_path / "b",
        "hidden",
        ("APP/client_app.py", "app = ClientApp()", "from flwr.client.mod import secaggplus_mod\napp = ClientApp(mods=[secaggplus_mod])"),
    )  # fmt: skip
    assert "secaggplus_mod hides each model" in line("client", "flower", str(hidden))
    broken = app_with(tmp_path / "c", "broken", ("APP/server_app.py", "FedAvg(", "1 / 0 or FedAvg("))
    said = line("ledger", "init", "--name", "x", "--flower-app", str(broken))
    assert re.search(r"founds no ledger: .*server_app\.py, line \d+: ZeroDivisionError", said)
    assert list(tmp_path.glob("*-state")) == [], "nothing is written"
    with founded("batchnorm") as url:
        unnamed = line(
            "client", "flower", batchnorm, "--server", url, "--state", "s", "--node-config", "partition-id=1"
        )
        assert (
            "asks its node for 'num-partitions'; give it by --node-config \"partition-id=1 num-partitions=…\""
            in unnamed
        )
        (Path("s") / CONTEXT_FILE).write_bytes(b"nonsense")
        assert "is damaged" in line("client", "flower", batchnorm, "--server", url, "--state", "s", *node(1))
