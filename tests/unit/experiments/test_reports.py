"""Each paper's report.py: committed tables are what it makes of the committed CSV, and it reads runs that were played."""

import importlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from experiments.findings.freshness import split_gains
from experiments.findings.phase import needed_separation
from experiments.reporting import (
    RESULTS,
    Played,
    describe_runs,
    keep_results,
    read_finished,
    read_played,
    update_reports,
)
from fl_core.dag.genesis import Bounds
from fl_core.dag.profiles import PROFILES
from fl_simulator.config.experiment import read_experiment
from fl_simulator.report import page
from fl_simulator.run.folder import SUMMARY
from fl_simulator.run.play import open_folder, run

EXPERIMENTS = RESULTS.parent
PAPERS = (
    "attacks",
    "clustered",
    "dag-acfl",
    "decdiff",
    "findings",
    "uncoordinated_initialisation",
    "d_cliques",
)
BASE = """
[base]
data = { name = "digits", pixels = "unit", test = "common" }
partition = { name = "iid", clients = 4, samples = 20 }
model.name = "digits-mlp"
run = { rounds = 2, evaluate_every = 1 }
"""
ON_GRAPH = """
[[methods]]
label = "Centralised"
strategy.name = "centralised"
[[methods]]
label = "DecHetero"
strategy.name = "decavg"
topology.name = "complete"
"""
ON_LEDGER = """
[[methods]]
label = "DAG-ACFL"
strategy.name = "dag-acfl"
[[methods]]
label = "Fedavg"
strategy.name = "fedavg"
"""


def script(paper: str) -> ModuleType:
    return importlib.import_module(f"experiments.{paper}.report")


def committed(paper: str) -> list[Path]:
    folders = [RESULTS / paper / name for name in script(paper).EXPERIMENTS]
    return [folder for folder in folders if (folder / "summary.csv").exists()]


@pytest.mark.parametrize("paper", PAPERS)
def test_committed_tables_are_current(paper: str) -> None:
    assert committed(paper)
    for folder in committed(paper):
        assert (folder / "report.md").read_text("utf-8") == page(script(paper).tables(folder)), folder


def play(folder: Path, name: str, methods: str) -> Played:
    """An experiment's file, and its runs."""
    file = folder / f"{name}.toml"
    file.write_text(f'name = "{name}"\nseeds = [0]\n{BASE}{methods}')
    experiment, runs = read_experiment(file), folder / "build" / name
    for planned in experiment.runs:
        with open_folder(planned, runs / planned.label.folder_name, overwrite=False) as opened:
            assert run(planned, opened, workers=1)
    return read_played(experiment, runs, folder / "kept" / name)


@pytest.mark.parametrize(
    ("paper", "name", "pictures"),
    [
        ("decdiff", "table_2_x", {"curves-1.png", "labels.png", "nodes.png"}),
        ("d_cliques", "mnist_100", {"curves-1.png"}),
        ("uncoordinated_initialisation", "plateau_small", {"loss.png"}),
    ],
)
def test_runs_on_a_graph_are_reported(paper: str, name: str, pictures: set[str], tmp_path: Path) -> None:
    module, played = script(paper), play(tmp_path, name, ON_GRAPH)
    module.refresh(played)
    kept = played.kept
    assert {path.name for path in kept.iterdir()} == {"summary.csv", "curves.csv"} | pictures
    summary = pd.read_csv(kept / "summary.csv").set_index("method")
    assert summary.edges_per_node["DecHetero"] == 3.0
    assert summary.nodes.tolist() == [4, 4]
    assert len(pd.read_csv(kept / "curves.csv")) == 4
    assert "| DecHetero | 0." in page(module.tables(kept))


@pytest.mark.parametrize(("name", "dashed"), [("total_data", 1), ("nodes", 4)])
def test_losses_stand_beside_as_many_central_systems_as_there_are_data(name: str, dashed: int, tmp_path: Path) -> None:
    paper = "uncoordinated_initialisation"
    kept = RESULTS / paper / name
    experiment = read_experiment(RESULTS.parent / paper / f"{name}.toml")
    tables = [pd.read_csv(kept / file) for file in ("curves.csv", "summary.csv")]
    path = tmp_path / name / "losses.svg"
    path.parent.mkdir()
    script(paper).draw_beside_central(*tables, experiment, path)
    assert path.read_text("utf-8").count("stroke-dasharray") == 2 * dashed  # the line, and its legend's


def test_changes_are_drawn_without_noughts_and_lines_that_others_hide(tmp_path: Path) -> None:
    paper = "uncoordinated_initialisation"
    shown = pd.read_csv(RESULTS / paper / "changes" / "changes.csv")
    script(paper).draw_changes(shown, tmp_path / "changes.svg", title="Changes")
    text = (tmp_path / "changes.svg").read_text("utf-8")
    assert "training first, He" in text
    assert "bounded, He" not in text


def test_methods_that_stay_below_the_picture_are_left_out(tmp_path: Path) -> None:
    curves = pd.read_csv(RESULTS / "d_cliques" / "topologies" / "curves.csv")
    script("d_cliques").draw_nearly_level(curves, tmp_path / "curves.svg", title="100 nodes")
    text = (tmp_path / "curves.svg").read_text("utf-8")
    assert "random 10" in text
    assert "grid -->" not in text


def test_runs_on_a_ledger_are_reported(tmp_path: Path) -> None:
    module, played = script("dag-acfl"), play(tmp_path, "selectors", ON_LEDGER)
    module.refresh(played)
    kept = played.kept
    assert {path.suffix for path in kept.iterdir()} == {".csv"}
    methods = pd.read_csv(kept / "methods.csv").set_index("method")
    assert methods.transactions["DAG-ACFL"] == 1 + 2 * 4
    assert pd.read_csv(kept / "costs.csv").method.tolist() == ["DAG-ACFL", "Fedavg"]
    assert "**This machine.**" in page(module.tables(kept))
    shown = tmp_path / "cnn_mnist_scaled"
    shown.mkdir()
    module.draw_shown_curves(played.rounds, shown)
    module.draw_selection(played.runs / played.experiment.runs[0].label.folder_name, shown)
    assert {path.name.rpartition("-")[2] for path in shown.iterdir()} == {"1.png", "points.png", "similarities.png"}


def test_all_pictures_of_dag_acfl_are_on_its_page() -> None:
    text = (EXPERIMENTS.parent / "docs/papers/dag-acfl.md").read_text("utf-8")
    pictures = [path.relative_to(EXPERIMENTS.parent).as_posix() for path in (RESULTS / "dag-acfl").rglob("*.png")]
    assert pictures
    assert [picture for picture in pictures if f"../../{picture}" not in text] == []


def test_results_of_more_runs_are_not_written_over_by_fewer(tmp_path: Path) -> None:
    keys = {"setting": "S", "participation": 1.0, "method": "A"}
    rounds = pd.DataFrame([{**keys, "seed": seed, "round": 0, "accuracy": 0.5} for seed in (0, 1)])
    keep_results(rounds, rounds, tmp_path)
    with pytest.raises(SystemExit, match=r"2 runs, and 1 are here"):
        keep_results(rounds[:1], rounds[:1], tmp_path)
    assert len(pd.read_csv(tmp_path / "summary.csv")) == 2


def test_unfinished_runs_are_told_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(tmp_path, "x", ON_LEDGER)
    experiment = read_experiment(tmp_path / "x.toml")
    (tmp_path / "build" / "x" / experiment.runs[0].label.folder_name / SUMMARY).unlink()
    assert set(read_finished(tmp_path / "build" / "x", experiment).method) == {"Fedavg"}
    assert capsys.readouterr().err.startswith("x: 1 of 2 runs are not finished")


def test_an_unknown_name_is_told_in_a_line_that_lists_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["report.py", "a", "no_such"])
    with pytest.raises(SystemExit, match=r"^no experiment no_such; there are a, b$"):
        update_reports("x", ("a", "b"), refresh=lambda _: None, tables=lambda _: [])


def test_in_virtual_time_evaluations_are_counted_and_not_rounds() -> None:
    runs = pd.DataFrame({"rounds": [60], "pixels": ["unit"], "seed": [0]})
    assert describe_runs(runs).startswith("Test accuracy after 60 rounds, pixels in [0, 1], seeds 0:")
    assert describe_runs(runs.assign(results=1)).startswith("Test accuracy after 60 evaluations,")


@pytest.mark.parametrize(
    "name", ["one_in_nine", "a_fifth", "two_fifths", "skewed", "small_clusters", "refusing", "quarantine", "mnist"]
)
def test_attacked_ledgers_have_the_rules_of_new_ledgers(name: str) -> None:
    selector, aggregator = (PROFILES["open"][each] for each in ("selector", "aggregator"))
    rules = {"selector": selector.name, "aggregator": aggregator.name, "candidates": "newest"}
    rules |= {f"selector.{key}": value for key, value in selector.params.items()}
    rules |= {f"aggregator.{key}": value for key, value in aggregator.params.items()}
    rules |= {f"bounds.{key}": value for key, value in asdict(Bounds()).items()}
    runs = read_experiment(EXPERIMENTS / "attacks" / f"{name}.toml").runs
    others = ("as its paper", "min_tips 1")
    played = [run.scenario.strategy.params for run in runs if not any(each in run.label.method for each in others)]
    assert played
    assert all(rules.items() <= params.items() for params in played)


def curve(*losses: float) -> pd.DataFrame:
    return pd.DataFrame({"round": range(len(losses)), "loss": losses})


def test_a_plateau_ends_where_loss_stays_below() -> None:
    rounds = script("uncoordinated_initialisation").rounds_until
    assert rounds(curve(2.3, 1.9, 2.3, 1.9, 1.8), below=2.0) == 4
    assert rounds(curve(1.9, 1.8), below=2.0) == 1
    assert pd.isna(rounds(curve(1.9, 2.3), below=2.0))


def test_the_exponent_is_the_slope_of_logarithms() -> None:
    exponent = script("uncoordinated_initialisation").exponent
    assert exponent(pd.DataFrame({"nodes": [8, 16, 32], "plateau_rounds": [2, 4, 8]})) == pytest.approx(1.0)
    assert pd.isna(exponent(pd.DataFrame({"nodes": [8], "plateau_rounds": [2]})))


def test_there_is_no_exponent_of_plateaus_that_last_or_were_over_at_the_first_evaluation() -> None:
    exponent = script("uncoordinated_initialisation").exponent
    lasting = pd.DataFrame({"nodes": [8, 16, 32, 64], "plateau_rounds": [20.0, 24.0, 40.0, float("nan")]})
    over = pd.DataFrame({"nodes": [8, 16, 32, 64], "plateau_rounds": [5.0, 5.0, 5.0, 30.0]})
    assert pd.isna(exponent(lasting))
    assert pd.isna(exponent(over))


def test_rounds_to_learn_are_averaged_over_the_seeds_that_came_there() -> None:
    losses = {"accuracy": [0.8, 0.6], "best_accuracy": [0.9, 0.7], "loss": [0.5, 1.5], "least_loss": [0.4, 1.4]}
    runs = pd.DataFrame({"setting": "S", "method": "gain", **losses, "rounds_to_learn": [4.0, float("nan")]})
    (row,) = script("uncoordinated_initialisation").beside(runs).to_dict("records")
    assert (row["accuracy at the end"], row["rounds to a loss of 1"]) == ("0.7000 ± 0.1414 (2)", "4.0 (1)")


def test_changes_are_means_over_seeds_and_their_rounds_count_from_one() -> None:
    module = script("uncoordinated_initialisation")
    kept = pd.DataFrame({"setting": [*"AAAAB"], "method": "He", "round": [0, 1, 0, 1, 0], "seed": [0, 0, 1, 1, 0]})
    table = module.changes(kept.assign(**{name: [0.1, 0.2, 0.3, 0.6, 0.7] for name in module.CHANGES}))
    assert table["setting"].tolist() == ["A", "A", "B"]
    assert table["round"].tolist() == [1, 2, 1]
    assert table["σ_an"].tolist() == pytest.approx([0.2, 0.4, 0.7])


def test_gains_are_points_above_a_baseline() -> None:
    module = script("decdiff")
    figures = {"accuracy": [0.5, 0.53], "accuracy_last_5": [0.4, 0.42], "best_accuracy": [0.6, 0.61]}
    summary = pd.DataFrame({"setting": "S", "method": ["DecHetero", "CFA"], **figures})
    paper = pd.DataFrame({"setting": "S", "method": ["DecHetero", "CFA"], "accuracy": [0.7, 0.75]})
    (_, cfa) = module.gains(summary, paper).round(6).to_dict("records")
    assert (cfa["last round"], cfa["last five evaluations"], cfa["best round"]) == (3.0, 2.0, 1.0)
    assert cfa["reported"] == 5.0


def test_characteristic_times_are_first_rounds_at_a_share() -> None:
    module = script("decdiff")
    keys = {"setting": "S", "participation": 1.0, "seed": 0}
    summary = pd.DataFrame([{**keys, "method": "Centralised", "accuracy": 1.0}])
    rounds = pd.DataFrame(
        [{**keys, "method": "CFA", "round": r, "accuracy": a} for r, a in enumerate([0.4, 0.5, 0.85, 0.8])]
    )
    (row,) = module.rounds_to_shares(rounds, summary).to_dict("records")
    assert [row[f"rounds_to_{share}"] for share in (50, 80)] == [2, 3]
    assert pd.isna(row["rounds_to_90"])


def test_converged_after_counts_rounds() -> None:
    module = script("dag-acfl")
    wrong = pd.DataFrame({"round": range(4), "misclassified": [3, 0, 1, 0]})
    assert module.converged_after(wrong) == 4
    assert module.converged_after(wrong[:3]) == float("inf")


def test_a_loss_is_against_the_run_of_the_same_seed_and_population_that_nobody_attacks() -> None:
    module = script("attacks")
    rows = [
        ("8 in 4: nobody", "rounds", 0, 0.9, 0.8, 0.92),
        ("8 in 4: nobody", "rounds", 1, 0.8, 0.7, 0.84),
        ("8 in 4: patch", "rounds", 0, 0.7, 0.6, None),
        ("8 in 4: patch", "rounds", 1, 0.8, 0.6, None),
        ("nobody", "rounds", 0, 0.1, 0.1, None),
    ]
    runs = pd.DataFrame(rows, columns=["setting", "method", "seed", "accuracy", "attacked", "cluster_mean"])
    runs = runs.assign(averaged=2.0, own_model=0.0)
    assert [round(each, 3) for each in module.lost(runs).lost] == [0.2, 0.1]
    assert module.by_method(module.lost(runs), "lost").to_dict("records") == [
        {"attack": "8 in 4: patch", "rounds": "0.150 [-0.485, 0.785] (0.200)"}
    ]
    (row,) = module.undisturbed(runs).to_dict("records")
    assert (row["setting"], row["behind that"]) == ("8 in 4", "0.030 ± 0.014 (2)")
    assert [module.mean_and_worst(pd.Series(each, dtype=float)) for each in ([0.25], [])] == ["0.250", "-"]


def test_runs_of_open_in_rounds_stand_beside_the_peers_of_the_same_settings_and_seeds() -> None:
    module = script("attacks")
    folder = RESULTS / "attacks" / "peers"
    peers = pd.read_csv(folder / "summary.csv")
    beside = module.runs_beside(folder, set(peers.setting))
    fedavg = peers[peers.method == "FedAvg"]
    assert set(zip(beside.setting, beside.seed, strict=True)) == set(zip(fedavg.setting, fedavg.seed, strict=True))
    assert set(beside.method) == {"DAG-ACFL, open"}


def test_clusters_are_expected_to_be_found_where_the_least_alike_own_pair_is_above_the_most_alike_foreign_one() -> None:
    """Of 14 standard normal draws the greatest is expected at 1.703, of 15 at 1.736."""
    needed = needed_separation
    assert needed(30, 2) == pytest.approx(1.703 + 1.736, abs=0.01)
    assert needed(30, 5) < needed(30, 2) < needed(60, 2)


def progress(method: str, *, results: list[int], accuracy: list[float], lost: int = 0) -> pd.DataFrame:
    run = {"setting": "S", "seed": 0, "method": method, "results": results, "accuracy": accuracy}
    return pd.DataFrame({**run, "trainings": [each + lost for each in results]})


def ends(method: str, *, accuracy: list[float], heard: list[int]) -> pd.DataFrame:
    clients = {"client": range(len(accuracy)), "accuracy": accuracy, "heard": heard}
    return pd.DataFrame({"setting": "S", "seed": 0, "method": method, **clients})


def gains(without: pd.DataFrame, rounds: pd.DataFrame, clients: Sequence[pd.DataFrame]) -> dict[Any, Any]:
    (found,) = split_gains(pd.concat([without, rounds]), pd.concat(clients)).to_dict("records")
    return dict(found)


IN_ROUNDS = "DAG-ACFL in rounds, 24 s"
HEARD = [
    ends("DAG-ACFL", accuracy=[0.8, 0.6], heard=[1, 1]),
    ends(IN_ROUNDS, accuracy=[0.7, 0.1], heard=[1, 0]),
]


def test_gains_at_equal_time_are_also_told_of_clients_that_both_have_heard() -> None:
    same = progress("DAG-ACFL", results=[10, 20], accuracy=[0.5, 0.7])
    found = gains(same, progress(IN_ROUNDS, results=[10, 20], accuracy=[0.4, 0.4]), HEARD)
    assert (found["heard"], found["heard_by_other"]) == (2, 1)
    assert found["equal_time"] == pytest.approx((0.1 + 0.5) / 2)
    assert found["equal_time_heard"] == pytest.approx(0.1)


def test_at_equal_updates_each_is_judged_by_the_last_tenth_of_what_the_other_had_at_all() -> None:
    """The other has ten; from nine to ten of forty the faster one is halfway between 0.36 and 0.40."""
    without = progress("DAG-ACFL", results=[0, 40], accuracy=[0.0, 1.6])
    found = gains(without, progress(IN_ROUNDS, results=[5, 10], accuracy=[0.3, 0.3]), HEARD)
    assert found["updates"] == 4.0
    assert found["equal_updates"] == pytest.approx(0.38 - 0.3)


def test_lost_trainings_count_as_trainings_and_not_as_updates() -> None:
    without = progress("DAG-ACFL", results=[0, 10], accuracy=[0.0, 1.0], lost=10)
    found = gains(without, progress(IN_ROUNDS, results=[0, 10], accuracy=[0.5, 0.5]), HEARD)
    assert found["equal_updates"] == pytest.approx(0.95 - 0.5)
    assert found["equal_trainings"] == pytest.approx(0.0 - 0.5), "after ten trainings it has had no result"
