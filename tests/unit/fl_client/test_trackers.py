"""A client's figures beside the ledger: each tracker's own files, read back with its own package."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from fl_client.integrations import trackers
from fl_client.integrations.trackers import tracking
from fl_client.integrations.trackers.csv_file import CsvTracker, read_rows
from fl_client.step_report import StepReport
from fl_core.errors import ParameterError, UnknownNameError
from fl_core.registry import Registry
from fl_core.types import TxId

AUTHOR = "key:" + "5" * 64


def report(sequence: int, mae: float, *, resumed: bool = False, **trained: float) -> StepReport:
    """A regression client's step: ``mae`` is halved by the training."""
    return StepReport(
        transaction=TxId(f"{sequence:064x}"),
        sequence=sequence,
        created=True,
        server="http://127.0.0.1:8900",
        resumed=resumed,
        parents=(TxId("a" * 64), TxId("b" * 64)),
        rule=None if resumed else "robust: change point",
        source=None if resumed else "parents",
        num_candidates=5,
        num_chosen=2,
        num_examples=150,
        metrics_before={"mae": mae},
        metrics_after={} if resumed else {"mae": mae / 2},
        train_metrics=trained,
        bytes_sent=100,
        bytes_received=200,
        seconds={"publish": 0.25},
    )


def run(folder: Path, *reports: StepReport, names: tuple[str, ...] = ()) -> None:
    """One run of a client."""
    with tracking(names, folder, author=AUTHOR) as track:
        for each in reports:
            track(each)


def columns(folder: Path, *names: str) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in names) for row in read_rows(folder)]


# -- the file that is always written ------------------------------------------------------------------


def test_each_step_is_a_row_and_each_figure_a_column(tmp_path: Path) -> None:
    run(tmp_path, report(0, 3.0, gpu_seconds=1.5))
    (row,) = csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines())
    assert row.pop("utc").endswith("+00:00")
    assert row == {
        "sequence": "0",
        "transaction": "0" * 64,
        "server": "http://127.0.0.1:8900",
        "source": "parents",
        "rule": "robust: change point",
        "num_examples": "150",
        "mae/given": "3.0",
        "mae/trained": "1.5",
        "gpu_seconds": "1.5",
        "step/kept": "1.0",
        "selection/chosen": "2",
        "selection/candidates": "5",
        "selection/refused": "0.0",
        "seconds/publish": "0.25",
        "bytes/sent": "100",
        "bytes/received": "200",
    }


def test_a_later_run_goes_on_and_new_figures_get_columns(tmp_path: Path) -> None:
    run(tmp_path, report(0, 3.0), report(1, 2.0))
    run(tmp_path, report(2, 1.0, gpu_seconds=1.5))
    assert columns(tmp_path, "sequence", "mae/given", "gpu_seconds") == [
        ("0", "3.0", ""),
        ("1", "2.0", ""),
        ("2", "1.0", "1.5"),
    ]


def test_a_row_that_a_kill_cut_short_is_dropped(tmp_path: Path) -> None:
    run(tmp_path, report(0, 3.0), report(1, 2.0))
    file = tmp_path / "metrics.csv"
    file.write_bytes(file.read_bytes()[:-20])
    run(tmp_path, report(2, 1.0))
    assert columns(tmp_path, "sequence", "bytes/received") == [("0", "200"), ("2", "200")]


def test_rows_wait_while_the_file_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, report(0, 3.0))
    file = tmp_path / "metrics.csv"
    with tracking((), tmp_path, author=AUTHOR) as track:
        file.rename(tmp_path / "elsewhere")
        file.mkdir()  # as little to be written as what Excel has open
        track(report(1, 2.0))
        file.rmdir()
        (tmp_path / "elsewhere").rename(file)
        track(report(2, 1.0))
    assert columns(tmp_path, "sequence") == [("0",), ("1",), ("2",)]
    assert [record.getMessage() for record in caplog.records] == [
        f"{file} cannot be written (Is a directory): tried again after the next step"
    ]


def test_a_client_begins_while_the_file_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.mkdir()
    with tracking((), tmp_path, author=AUTHOR) as track:
        track(report(0, 3.0))
        file.rmdir()
        track(report(1, 2.0))
    assert columns(tmp_path, "sequence") == [("0",), ("1",)]


# -- TensorBoard; for the others see tracker_stores.py ------------------------------------------------


def test_tensorboard_shows_two_runs_of_a_client_as_one_curve(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    run(tmp_path, report(0, 3.0, gpu_seconds=1.5), report(1, 2.0), names=("tensorboard",))
    run(tmp_path, report(2, 1.0), names=("tensorboard",))
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    curve = [(each.step, float(make_ndarray(each.tensor_proto))) for each in events.Tensors("mae/trained")]
    assert curve == [(0, 1.5), (1, 1.0), (2, 0.5)]
    assert [each.step for each in events.Tensors("gpu_seconds")] == [0]
    assert events.SummaryMetadata("mae/trained").plugin_data.plugin_name == "scalars"


# -- what can go wrong --------------------------------------------------------------------------------


def test_an_unknown_tracker_is_refused_by_a_list_of_the_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="known: csv, mlflow, tensorboard, wandb"):
        run(tmp_path, names=("comet",))


def registered(monkeypatch: pytest.MonkeyPatch, **more: Callable[[Path, str], trackers.Tracker] | str) -> None:
    monkeypatch.setattr(trackers, "TRACKERS", Registry("tracker", {"csv": CsvTracker, **more}))


def test_a_tracker_whose_package_is_missing_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lonely.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registered(monkeypatch, lonely="lonely:Tracker")
    with pytest.raises(ParameterError, match=r"tracker lonely: .*; run: pip install no_such_package"):
        run(tmp_path, names=("lonely",))


def test_a_tracker_that_fails_is_left_out_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def __init__(self, *_: object) -> None:
            self.steps = 0

        def on_step(self, _: StepReport) -> None:
            raise OSError("no route\nto host")

        def close(self) -> None:
            raise AssertionError("it was left out")

    registered(monkeypatch, failing=Failing)
    run(tmp_path, report(0, 3.0), report(1, 2.0), names=("failing",))
    assert columns(tmp_path, "sequence") == [("0",), ("1",)]
    assert [record.getMessage() for record in caplog.records] == [
        "tracker failing has failed and is left out from now on: OSError: no route to host"
    ]
