"""Runs as tables: two methods and two seeds on digits, played once; and tables of numbers that a person can check."""

from io import StringIO
from pathlib import Path

import pytest

from experiments.reporting import read_clients
from fl_simulator.config.experiment import Experiment, read_experiment
from fl_simulator.errors import ResultsError
from fl_simulator.report import (
    RUN,
    accuracy_table,
    draw_curves,
    mean_and_spread,
    missing_runs,
    paired_differences,
    read_results,
    summarise_runs,
    thin_curves,
    to_markdown,
    write_report,
)
from fl_simulator.run.folder import ROUNDS, RunFolder
from fl_simulator.run.play import open_folder, run
from fl_simulator.run.record import RoundRecord, RunLabel

pandas = pytest.importorskip("pandas")
pytest.importorskip("torch")

EXPERIMENT = """
name = "small"
title = "A small table"
seeds = [0, 1]
[base]
data.pixels = "unit"
run = { rounds = 4, evaluate_every = 2 }
partition = { name = "iid", clients = 4, samples = 20 }
[[settings]]
label = "digits"
[[methods]]
label = "local"
strategy.name = "local-only"
[[methods]]
label = "FedAvg"
strategy.name = "fedavg"
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    """All runs but the last."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.toml").write_text(EXPERIMENT)
    experiment = read_experiment(folder / "small.toml")
    for planned in experiment.runs[:-1]:
        with open_folder(planned, folder / planned.label.folder_name, overwrite=False) as opened:
            assert run(planned, opened, workers=1)
    return experiment, folder


def write_run(folder: Path, *accuracies: float | None, method: str = "A", seed: int = 0, finish: bool = True) -> None:
    label = RunLabel(experiment="x", setting="S", participation=1.0, method=method, seed=seed, rounds=len(accuracies))
    with RunFolder.open(folder / label.folder_name, scenario="", label=label) as opened:
        for number, accuracy in enumerate(accuracies):
            sizes = {"participants": 1, "up_bytes": 8, "down_bytes": 4, "storage_bytes": number}
            opened.append(
                RoundRecord(round=number, virtual_time_s=number + 1.0, accuracy=accuracy, loss=accuracy, **sizes)
            )
        if finish:
            opened.finish()


def test_a_round_is_a_row(played: tuple[Experiment, Path]) -> None:
    experiment, folder = played
    rounds = read_results(folder, experiment)
    assert list(rounds.columns[:7]) == [
        "experiment",
        "setting",
        "participation",
        "method",
        "seed",
        "rounds",
        "finished",
    ]
    assert rounds.groupby(["method", "seed"], sort=False).size().to_dict() == {
        ("local", 0): 4,
        ("local", 1): 4,
        ("FedAvg", 0): 4,
    }
    assert "modularity" not in rounds, "no method has it"
    judged = rounds.dropna(subset="accuracy")
    assert judged[["round", "seed"]].drop_duplicates()["round"].tolist() == [1, 3, 1, 3]


def test_a_summary_is_the_last_evaluation(played: tuple[Experiment, Path]) -> None:
    experiment, folder = played
    summary = summarise_runs(read_results(folder, experiment)).set_index(["method", "seed"])
    clients = read_clients(folder, experiment).groupby(["method", "seed"]).accuracy
    assert summary.accuracy.sort_index().tolist() == pytest.approx(clients.mean().sort_index().tolist(), abs=1e-6)
    assert (clients.size() == 4).all()


def test_last_best_mean_and_sums(tmp_path: Path) -> None:
    write_run(tmp_path, 0.2, 0.9, 0.4, 0.4, 0.4, 0.4, None)
    (row,) = summarise_runs(read_results(tmp_path)).to_dict("records")
    assert (row["accuracy"], row["best_accuracy"]) == (0.4, 0.9)
    assert row["accuracy_last_5"] == pytest.approx((0.9 + 4 * 0.4) / 5)
    assert (row["up_bytes"], row["down_bytes"], row["storage_bytes"]) == (56, 28, 6)


def test_unfinished_runs_are_read_and_not_summarised(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5)
    write_run(tmp_path, 0.5, None, seed=1, finish=False)
    rounds = read_results(tmp_path)
    assert rounds.finished.tolist() == [True, False, False]
    assert summarise_runs(rounds).seed.tolist() == [0]


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5, 0.75)
    file = next(tmp_path.glob(f"*/{ROUNDS}"))
    file.write_text(file.read_text()[:-6])
    assert read_results(tmp_path).accuracy.tolist() == [0.5]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5)
    next(tmp_path.glob(f"*/{ROUNDS}")).write_text("round\n1,2,3\n1,2,3,4\n")
    with pytest.raises(ResultsError, match=ROUNDS):
        read_results(tmp_path)


def test_no_run_is_an_empty_table(tmp_path: Path) -> None:
    assert summarise_runs(read_results(tmp_path)).empty


def test_cells_are_mean_spread_and_seeds() -> None:
    assert mean_and_spread(pandas.Series([0.5, 0.7])) == "0.6000 ± 0.1414 (2)"
    assert mean_and_spread(pandas.Series([0.5])) == "0.5000 (1)"
    assert mean_and_spread(pandas.Series([float("nan")])) == "-"


def test_differences_are_taken_seed_by_seed(tmp_path: Path) -> None:
    """Of three seeds B is 0.1, 0.2 and 0.3 above A: 0.2, and by Student's t 4.303 · 0.1 / √3 = 0.2484 either way."""
    for seed, (a, b) in enumerate([(0.5, 0.6), (0.1, 0.3), (0.3, 0.6)]):
        write_run(tmp_path, a, method="A", seed=seed)
        write_run(tmp_path, b, method="B", seed=seed)
    write_run(tmp_path, 0.9, method="A", seed=3)  # B is not there
    write_run(tmp_path, 0.7, method="C", seed=0)
    table = paired_differences(summarise_runs(read_results(tmp_path)), {"B": "A", "C": "A", "A": "D"})
    assert table.to_dict("list") == {
        "method": ["B", "C", "A"],
        "against": ["A", "A", "D"],
        "S": ["+0.2000 [-0.0484, 0.4484] (3)", "+0.2000 (1)", "-"],
    }


def test_reported_numbers_stand_below(tmp_path: Path) -> None:
    write_run(tmp_path, 0.25)
    write_run(tmp_path, 0.75, method="B")
    text = "setting,participation,method,accuracy,spread\nS,1,A,0.3,0.01\nT,1,B,0.8,\n"
    reported = pandas.read_csv(StringIO(text))
    table = accuracy_table(summarise_runs(read_results(tmp_path)), reported)
    assert to_markdown(table) == (
        "| method | S |\n| --- | --- |\n| A | 0.2500 (1)<br>0.3000 ± 0.0100 |\n| B | 0.7500 (1) |\n"
    )


def test_curves_keep_the_last_round(tmp_path: Path) -> None:
    write_run(tmp_path, *[number / 1000 for number in range(120)])
    thin = thin_curves(read_results(tmp_path))
    assert list(thin.columns) == [
        "setting",
        "participation",
        "method",
        "seed",
        "round",
        "virtual_time_s",
        "accuracy",
        "loss",
    ]
    assert thin["round"].tolist() == list(range(2, 120, 3))


def test_curves_keep_what_pictures_show_where_it_was_measured(played: tuple[Experiment, Path]) -> None:
    experiment, folder = played
    thin = thin_curves(read_results(folder, experiment))
    assert list(thin.columns) == [*RUN, "round", "virtual_time_s", "accuracy", "loss", "worst_client"]


def test_curves_count_rounds_from_1_and_are_a_pdf_without_a_title_where_asked(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5, 0.75)
    figure = draw_curves(read_results(tmp_path), tmp_path / "curves.pdf", figures=["accuracy"])
    (line,) = figure.axes[0].lines
    assert list(line.get_xdata()) == [1, 2]
    assert figure.texts == []
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")


def test_a_line_has_one_colour_in_all_panels(tmp_path: Path) -> None:
    """Only the second method has clusters: there it looks as it does above."""
    rounds = pandas.DataFrame(
        {
            "method": ["FedAvg", "DAG-ACFL"],
            "seed": [0, 0],
            "round": [0, 0],
            "accuracy": [0.5, 0.6],
            "communities": [float("nan"), 3.0],
        }
    )
    above, below = draw_curves(rounds, tmp_path / "curves.png", figures=["accuracy", "communities"]).axes
    assert above.lines[0].get_color() != above.lines[1].get_color()
    assert below.lines[0].get_color() == above.lines[1].get_color()


def test_a_report_has_table_curves_and_what_is_missing(played: tuple[Experiment, Path]) -> None:
    experiment, folder = played
    table, written = write_report(experiment, folder)
    assert table.method.tolist() == ["local", "FedAvg"]
    assert [path.name for path in written] == ["report.md", "summary.csv", "curves.csv", "curves-1.png"]
    assert "| FedAvg | 0." in written[0].read_text("utf-8")
    assert len(pandas.read_csv(written[1])) == 3
    assert written[-1].read_bytes().startswith(b"\x89PNG")
    assert missing_runs(experiment, folder) == ["digits-1-fedavg-seed-1"]
