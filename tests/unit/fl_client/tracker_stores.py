"""MLflow and Weights & Biases, read back from their own stores: ``make trackers``, in an environment of its own.

Both bring some sixty packages, and MLflow an older cachetools than the rest is tested with; so no test of ``make test``.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb
from mlflow.tracking import MlflowClient
from wandb.proto import wandb_internal_pb2

from tests.unit.fl_client.test_trackers import AUTHOR, report, run

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def test_mlflow_holds_one_run_of_two_runs_of_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-3"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    run(folder, report(0, 3.0, **{"gpu (s)": 1.5}), report(1, 2.0), names=("mlflow",))
    run(folder, report(2, 1.0), names=("mlflow",))
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("dag-acfl")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("site-3", "FINISHED")
    assert found.data.tags["dag_acfl.author"] == AUTHOR
    history = client.get_metric_history(found.info.run_id, "mae/trained")
    assert sorted((each.step, each.value) for each in history) == [(0, 1.5), (1, 1.0), (2, 0.5)]
    assert found.data.metrics["gpu _s_"] == 1.5
    assert [path.name for path in tmp_path.iterdir()] == ["site-3"], "nothing lies about elsewhere"


def records(file: Path) -> Iterator[bytes]:
    """What a ``.wandb`` file holds: a magic of 7 bytes, then LevelDB's log of blocks of 32 KiB."""
    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        if kind:
            whole += data[at + 7 : at + 7 + size]
            if kind in (1, 4):  # the only part, or the last one
                yield whole
                whole = b""
        at += 7 + size
        if 0x8000 - at % 0x8000 < 7:
            at += 0x8000 - at % 0x8000


def test_wandb_leaves_a_folder_for_each_run_offline_and_sends_nothing(tmp_path: Path) -> None:
    run(tmp_path, report(0, 3.0), report(1, 2.0), names=("wandb",))
    run(tmp_path, report(2, 1.0), names=("wandb",))
    assert wandb.run is None
    steps, ids = {}, set()
    for file in (tmp_path / "wandb").glob("offline-run-*/run-*.wandb"):
        for data in records(file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                ids.add((record.run.project, record.run.run_id))
            if record.HasField("history"):
                values = {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
                }
                steps[values["_step"]] = values["mae/trained"]
    assert steps == {0: 1.5, 1: 1.0, 2: 0.5}
    assert ids == {("dag-acfl", "5" * 32)}
