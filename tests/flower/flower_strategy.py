"""The Flower strategy of docs/flower.md in an app that changes one import: ``make flower``, as ``flower_apps``."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import ServerApp

from dag_acfl.flower import DagAcfl
from fl_client.integrations.flower import FlowerApp
from fl_client.integrations.flower.founding import _ListeningGrid
from fl_core.errors import ParameterError
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.flower.flower_apps import APPS, ROOT, app_with, node, refused, run
from tests.live import run_app

NODES = range(1, 9)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder and a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


class EightNodes(_ListeningGrid):
    """Eight nodes in this process: each message is answered by the app's own ClientApp."""

    def __init__(self, app: FlowerApp) -> None:
        super().__init__(app)
        self._client_app = app.client_app()
        self.contexts = {
            each: Context(1, each, {"partition-id": each - 1, "num-partitions": 8}, RecordDict(), app.run_config)
            for each in NODES
        }

    def get_node_ids(self) -> list[int]:
        return [*NODES]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        del timeout
        sent = [(message, self.contexts[message.metadata.dst_node_id]) for message in messages]
        return [self._client_app(*each) for each in sent]


def play(app: FlowerApp, server_app: ServerApp | None = None) -> EightNodes:
    """Run the ServerApp as ``flwr run`` does."""
    grid = EightNodes(app)
    (server_app or app.server_app())(grid, Context(1, 0, {}, RecordDict(), app.run_config))
    return grid


def app_of_the_page(folder: Path, name: str, bundle: str, *, rounds: int = 1) -> FlowerApp:
    """The app with BatchNorm, changed as docs/flower.md changes one, and eight nodes waited for, not forty."""
    page = (ROOT / "docs" / "flower.md").read_text("utf-8")
    (diff,) = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    (old,) = re.findall(r"^-(.*)$", diff, re.MULTILINE)
    new, export = re.findall(r"^\+(.*)$", diff, re.MULTILINE)
    assert '"/home/me/run.dagacfl"' in export
    end = "    torch.save("
    export = export.replace("/home/me/run.dagacfl", bundle)
    changed = app_with(
        folder,
        name,
        ("APP/server_app.py", old, new),
        ("APP/server_app.py", "min_available_nodes=40", "min_available_nodes=8"),
        ("APP/server_app.py", end, f"{export}\n{end}"),
    )
    return FlowerApp(changed, run_config=f"fraction-train=1.0 num-server-rounds={rounds}")


def test_an_app_that_changes_one_import_is_a_ledger_that_a_site_goes_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = play(app_of_the_page(tmp_path / "app", "changed", "run.dagacfl", rounds=3))
    assert {each.state["history"]["trainings"] for each in grid.contexts.values()} == {3}
    assert "fc1.weight" in torch.load("final_model.pt"), "result.arrays, as the app goes on with them"

    assert run("ledger", "verify", "run.dagacfl", capsys=capsys).startswith("sound: 25 transactions, 25 models")
    assert "2 of 4 + 4" in run("ledger", "inspect", "run.dagacfl", capsys=capsys)
    text = run("ledger", "import", "run.dagacfl", "--data-dir", "pilot", capsys=capsys)
    assert "25 transactions" in text
    assert "serve it with: dag-acfl serve --data-dir pilot" in text
    settings = load_settings(data_dir=Path("pilot"))
    with run_app(create_app(settings), settings) as live:
        text = run(
            "client", "flower", str(APPS / "batchnorm"), "--server", live.url, *node(4), "--transactions", "2",
            capsys=capsys,
        )  # fmt: skip
    assert "average with" in text
    assert run("ledger", "verify", "pilot", capsys=capsys).startswith("sound: 27 transactions")
    assert re.search(r"2 of (5 \+ 4|4 \+ 5)", run("ledger", "inspect", "pilot", capsys=capsys)), "with its group"


def test_each_node_is_sent_its_groups_average_and_its_own_count_of_batches() -> None:
    strategy = DagAcfl(min_available_nodes=8)
    server_app = ServerApp()

    @server_app.main()
    def main(grid: EightNodes, context: Context) -> None:
        del context
        from batchnorm.task import Net

        torch.manual_seed(1)
        config = ConfigRecord({"lr": 0.1})
        result = strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=3, train_config=config)
        assert result.evaluate_metrics_clientapp[3]["eval_acc"] > result.evaluate_metrics_clientapp[1]["eval_acc"]

    play(FlowerApp(APPS / "batchnorm"), server_app)
    assert strategy.clusters() in ([[1, 3, 5, 7], [2, 4, 6, 8]], [[2, 4, 6, 8], [1, 3, 5, 7]])
    weights = {each: strategy.arrays_of(each)["fc1.weight"].numpy() for each in NODES}
    assert np.array_equal(weights[1], weights[3])
    assert not np.array_equal(weights[1], weights[2])
    count = strategy.arrays_of(1)["bn1.num_batches_tracked"].numpy()
    assert (count.dtype, int(count)) == (np.int64, 3 * 2 * 5), "three trainings of two epochs of five batches"
    assert strategy.node_metrics[1]["accuracy"] > 0.7


def test_a_reply_that_the_ledger_refuses_is_left_out_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of_the_page(tmp_path / "app", "spoilt", "spoilt.dagacfl")

    class OneIsSpoilt(EightNodes):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            replies = super().send_and_receive(messages, timeout=timeout)
            for reply in replies:
                if reply.metadata.src_node_id == 5 and reply.content.array_records:
                    (record,) = reply.content.array_records.values()
                    record["fc2.bias"] = Array(np.full(10, np.nan, np.float32))
            return replies

    grid = OneIsSpoilt(app)
    app.server_app()(grid, Context(1, 0, {}, RecordDict(), app.run_config))
    assert "the reply of node 5 is left out: tensor 'fc2.bias' holds nan" in caplog.text
    assert all(torch.isfinite(each).all() for each in torch.load("final_model.pt").values()), "FedAvg's without it"


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ParameterError, match=r"before its own start\(\)"):
        DagAcfl().arrays_of(1)
    play(app_of_the_page(tmp_path / "app", "once", "once.dagacfl"))
    play(app_of_the_page(tmp_path / "again", "twice", "twice.dagacfl"))
    run("ledger", "import", "once.dagacfl", "--data-dir", "once", capsys=capsys)
    assert "another ledger here" in refused("ledger", "import", "twice.dagacfl", "--data-dir", "once", capsys=capsys)
    Path("once.dagacfl.key").replace("twice.dagacfl.key")
    assert "is not the key of a founder" in refused(
        "ledger", "import", "twice.dagacfl", "--data-dir", "twice", capsys=capsys
    )
