"""What a report of decentralised systems has beside the table: nodes, gains, characteristic times, plateau, graphs."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_simulator.config.experiment import read_experiment
from fl_simulator.config.report_plan import Plateau, ReportPlan, read_report_plan
from fl_simulator.errors import ResultsError, ScenarioError
from fl_simulator.plots import draw_experiment
from fl_simulator.report import Cell, PrintedTable, Report, build_report, markdown, read_printed_files
from fl_simulator.report.decentralised import nodes_of, plateau_rounds, scaling_exponent, times_of
from fl_simulator.run.folder import Run, RunFolder, read_run
from fl_simulator.run.record import ClientFigures, RoundRecord, RunLabel

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
ASKING = [file for file in sorted(EXPERIMENTS.rglob("*.toml")) if "report" in tomllib.loads(file.read_text("utf-8"))]


def label(method: str, *, setting: str = "A", seed: int = 0, rounds: int = 3) -> RunLabel:
    return RunLabel(experiment="test", setting=setting, participation=1.0, method=method, seed=seed, rounds=rounds)


def record(number: int, accuracy: float | None, loss: float | None = None, **more: Any) -> RoundRecord:
    return RoundRecord(
        round=number,
        virtual_time_s=number + 1.0,
        participants=2,
        up_bytes=0,
        down_bytes=0,
        accuracy=accuracy,
        loss=loss,
        **more,
    )


def records(*accuracies: float | None) -> tuple[RoundRecord, ...]:
    return tuple(record(number, accuracy) for number, accuracy in enumerate(accuracies))


def losses(*values: float | None) -> tuple[RoundRecord, ...]:
    return tuple(record(number, None if value is None else 0.5, value) for number, value in enumerate(values))


def kept(
    folder: Path,
    which: RunLabel,
    nodes: Sequence[Sequence[float]],
    *,
    losses_of_rounds: Sequence[float] | None = None,
    summary: Mapping[str, Any] | None = None,
    messages: float | None = None,
) -> Run:
    """A finished run in a folder, with these accuracies of nodes, one row for each round."""
    with RunFolder.create(folder / which.folder_name, scenario="", label=which) as opened:
        for number, row in enumerate(nodes):
            loss = 1.0 if losses_of_rounds is None else losses_of_rounds[number]
            accuracy = np.array(row, np.float32)
            opened.append(
                record(number, float(np.nanmean(accuracy)), loss, messages=messages),
                clients=ClientFigures(accuracy, np.full(len(row), loss, np.float32)),
            )
        opened.finish(summary)
    return read_run(folder / which.folder_name)


def cell(report: Report, method: str, *, setting: str = "A") -> Cell:
    (found,) = [each for row in report.rows if row.setting == setting for each in row.cells if each.method == method]
    return found


# Nodes.


def test_nodes_have_a_mean_a_deviation_within_a_seed_and_extremes() -> None:
    first = ClientFigures(np.array([[0.0, 0.0], [0.2, 0.4]], np.float32), np.zeros((2, 2), np.float32))
    second = ClientFigures(np.array([[0.6, 0.8]], np.float32), np.zeros((1, 2), np.float32))
    found = nodes_of([first, second])
    assert found is not None
    assert (found.mean, found.least, found.greatest) == pytest.approx((0.5, 0.2, 0.8))
    assert found.std == pytest.approx(0.1)  # of either seed: what differs between seeds is not among nodes
    assert found.nodes == (2, 2)


def test_nodes_that_were_not_judged_are_left_out_and_no_nodes_are_no_figure() -> None:
    some = ClientFigures(np.array([[0.25, np.nan]], np.float32), np.zeros((1, 2), np.float32))
    found = nodes_of([some, None])
    assert found is not None
    assert (found.mean, found.std, found.nodes) == (0.25, 0.0, (2,))
    assert nodes_of([None]) is None
    assert nodes_of([]) is None


def test_table_of_nodes_stands_where_it_is_asked_for(tmp_path: Path) -> None:
    runs = [
        kept(tmp_path, label("CFA", seed=0), [[0.1, 0.1], [0.25, 0.75]]),
        kept(tmp_path, label("CFA", seed=1), [[0.1, 0.1], [0.5, 0.5]]),
    ]
    report = build_report(runs, plan=read_report_plan({"nodes": {}}))
    assert "| A, 3 rounds | 1 | CFA | 0.5000 ± 0.1768 | 0.2500 | 0.7500 | 0.5000 ± 0.0000 (2) | - |" in markdown(report)
    assert report.to_json()["cells"][0]["nodes"]["nodes"] == (2, 2)
    assert "**Nodes.**" not in markdown(build_report(runs))


# Gains (Table III).


def test_gain_is_in_points_above_the_baseline_of_the_same_setting() -> None:
    runs = [
        Run(Path("a"), label("DecHetero"), records(0.1, 0.2, 0.9071), True),
        Run(Path("b"), label("DecDiff"), records(0.1, 0.2, 0.9373), True),
        Run(Path("c"), label("DecDiff", setting="B"), records(0.1, 0.2, 0.9373), True),
    ]
    report = build_report(runs, plan=read_report_plan({"gains": {"baseline": "DecHetero"}}))
    assert "| A, 3 rounds | 1 | DecDiff | +3.02 | - |" in markdown(report)
    assert cell(report, "DecDiff", setting="B").gain is None
    assert cell(build_report(runs), "DecDiff").gain is None


# Characteristic times (Table IV).


def test_characteristic_time_counts_the_rounds_until_a_share_of_the_reference_was_reached() -> None:
    slow, fast = records(0.1, None, 0.5, 0.8, 0.9), records(0.4, 0.8, 0.9, 0.95, 0.2)
    # Of a reference of 1: .5 after rounds 3 and 2, .8 after 4 and 2, .9 after 5 and 3, .95 never and after 4.
    assert times_of([slow, fast], reference=1.0) == ((3, 2), (4, 2), (5, 3), (None, 4))
    assert times_of([slow], reference=None) == ()
    assert times_of([], reference=1.0) == ()


def test_characteristic_times_are_averaged_over_the_seeds_that_came_there() -> None:
    runs = [
        Run(Path("c"), label("Centralised", rounds=2), records(0.9, 1.0), True),  # a bound may have fewer rounds
        Run(Path("a"), label("CFA", seed=0), records(0.5, 0.8, 0.9), True),
        Run(Path("b"), label("CFA", seed=1), records(0.2, 0.5, 0.8), True),
    ]
    report = build_report(runs, plan=read_report_plan({"times": {}}))
    assert "| A, 3 rounds | 1 | CFA | 1.5 ± 0.7 | 2.5 ± 0.7 | 3.0 (1 of 2) | - |" in markdown(report)
    (ours,) = [each for each in report.to_json()["cells"] if each["method"] == "CFA" and each["rounds"] == 3]
    assert ours["times"] == [[1, 2], [2, 3], [3, None], [None, None]]


def test_without_the_reference_there_are_no_characteristic_times() -> None:
    report = build_report(
        [Run(Path("a"), label("CFA"), records(0.5, 0.8, 0.9), True)], plan=read_report_plan({"times": {}})
    )
    assert cell(report, "CFA").times == ()
    assert "Characteristic" not in markdown(report)


# The plateau (Uncoordinated initialisation, Fig. 3).


def test_plateau_ends_with_the_first_evaluated_loss_that_stays_below_a_share_of_chance() -> None:
    plan = Plateau(share=0.9, classes=10)
    assert plan.threshold == pytest.approx(2.0723, abs=1e-4)
    assert plateau_rounds(losses(2.3, 2.08, None, 2.07, 1.0), plan) == 4
    assert plateau_rounds(losses(2000.0, 2.0), plan) == 2  # a great gain begins far above chance
    assert plateau_rounds(losses(1.65, 2.29, 2.18, 1.88, 1.5), plan) == 4  # trained by itself first, averaged back
    assert plateau_rounds(losses(1.65, 2.29), plan) is None
    assert plateau_rounds(losses(2.3, float("nan")), plan) is None


def test_exponent_is_the_slope_of_logarithms() -> None:
    assert scaling_exponent([8, 16, 32, 64], [4, 8, 16, 32]) == pytest.approx(1.0)
    assert scaling_exponent([8, 16, 32], [10, None, 20]) == pytest.approx(0.5)  # twice as long for four times as many
    assert scaling_exponent([8, 16], [3, 3]) == pytest.approx(0.0)
    assert scaling_exponent([8, 16], [3, None]) is None
    assert scaling_exponent([8, 8], [3, 4]) is None


@given(
    st.dictionaries(st.integers(1, 10_000), st.one_of(st.none(), st.integers(1, 100_000)), min_size=1, max_size=8),
)
def test_exponent_is_the_textbooks_least_squares_slope(lengths: dict[int, int | None]) -> None:
    found = scaling_exponent(list(lengths), list(lengths.values()))
    points = [(log(size), log(rounds)) for size, rounds in lengths.items() if rounds is not None]
    if len(points) < 2:
        assert found is None
        return
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    below = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / below
    assert found == pytest.approx(slope, rel=1e-4, abs=1e-4 / below**0.5)  # neighbouring sizes are ill-conditioned


def test_plateau_is_told_by_setting_and_its_growth_by_method(tmp_path: Path) -> None:
    high, low = 2.3, 1.0
    runs = [
        kept(
            tmp_path,
            label(method, setting=f"n = {nodes}", seed=seed, rounds=9),
            [[0.5] * nodes] * 9,
            losses_of_rounds=[high] * (plateau - 1) + [low] * (10 - plateau),
        )
        for method, seed, nodes, plateau in (
            ("He", 0, 2, 2),
            ("He", 0, 8, 8),
            ("He", 1, 2, 4),
            ("He", 1, 8, 8),
            ("gain", 0, 2, 1),
            ("gain", 0, 8, 1),
        )
    ]
    report = build_report(runs, plan=read_report_plan({"plateau": {"method": "He"}, "trajectories": {}}))
    by_method = {each.method: each for each in report.plateaus}
    assert by_method["He"].nodes == (2, 8)
    assert by_method["He"].rounds == ((2, 4), (8, 8))
    assert by_method["He"].exponents == pytest.approx((1.0, 0.5))
    text = markdown(report)
    assert "below 0.9 · ln 10 = 2.0723" in text
    assert "| participation | method | n = 2 | n = 8 | µ |" in text
    assert "| 1 | He | 3.0 ± 1.4 | 8.0 ± 0.0 | 0.750 ± 0.354 |" in text
    assert "| 1 | gain | 1.0 | 1.0 | 0.000 |" in text
    he = next(each for each in report.to_json()["plateaus"] if each["method"] == "He")
    assert he["exponent"] == pytest.approx(0.75)
    drawn = {path.name for path in draw_experiment(runs, tmp_path / "plots", report=report)}
    assert {"1-trajectories.png", "1-he-collapse.png"} <= drawn
    assert "1-gain-collapse.png" not in drawn


# Graphs (D-Cliques).


def test_edges_messages_and_gini_index_stand_beside_the_printed_ones(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(
        "# D-Cliques, Sec. 5.2\nsetting,method,edges_per_node,messages_per_node\nA,D-Cliques,18.9,37.8\nA,ring,-,-\n"
    )
    plan = read_report_plan({"printed": {"source": "D-Cliques", "graphs": "edges.csv"}})
    printed = read_printed_files(plan, tmp_path / "x.toml")
    runs = [
        kept(tmp_path, label("D-Cliques"), [[0.5]], summary={"gini": 0.9, "edges_per_node": 18.9}, messages=37.8),
        kept(tmp_path, label("ring"), [[0.5]], summary={"gini": 0.9, "edges_per_node": 2}, messages=2.0),
        kept(tmp_path, label("FED"), [[0.5]], summary={"gini": 0.9}),
    ]
    report = build_report(runs, printed=printed, plan=plan)
    text = markdown(report)
    assert "| A, 3 rounds | 1 | D-Cliques | 18.90 | 18.9 | 37.80 | 37.8 | 0.900 |" in text
    assert "| A, 3 rounds | 1 | ring | 2.00 | - | 2.00 | - | 0.900 |" in text
    assert cell(report, "FED").graph is None


def test_damaged_number_of_a_summary_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"summary.json is damaged: gini is 'many'"):
        kept(tmp_path, label("CFA"), [[0.5]], summary={"gini": "many"})


# Printed numbers.

TABLE_2 = """\
# DecDiff+VT, Table II
setting,participation,method,accuracy,spread
A,1,CFA,0.8975,0.0306
A,1,DecHetero,0.9071,0.0249
"""
TABLE_3 = """\
setting,participation,method,accuracy,gain
A,1,DecHetero,0.9071,-
A,1,DecDiff,0.9373,3.02
"""
TABLE_4 = """\
setting,method,0.5,0.8,0.9,0.95
A,CFA,109.40,322.40,609.67,-
"""


def printed_plan(folder: Path, **files: str) -> ReportPlan:
    names = {"table_2": TABLE_2, "table_3": TABLE_3, "table_4": TABLE_4, **files}
    for name, content in names.items():
        (folder / f"{name}.csv").write_text(content)
    said = {"accuracies": "table_2.csv, table_3.csv", "times": "table_4.csv"}
    return read_report_plan(
        {"printed": {"source": "DecDiff+VT", "rounds": 3, **said}, "nodes": {}, "gains": {}, "times": {}}
    )


def test_printed_files_stand_beside_what_was_measured(tmp_path: Path) -> None:
    plan = printed_plan(tmp_path)
    printed = read_printed_files(plan, tmp_path / "x.toml")
    assert printed is not None
    assert printed.methods == ("CFA", "DecHetero", "DecDiff")
    assert printed.times == {("A", "CFA"): {"0.5": 109.4, "0.8": 322.4, "0.9": 609.67}}
    runs = [
        kept(tmp_path, label("Centralised"), [[1.0], [1.0], [1.0]]),
        kept(tmp_path, label("CFA"), [[0.5, 0.5], [0.5, 0.5], [0.75, 0.75]]),
        kept(tmp_path, label("DecHetero"), [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]),
        kept(tmp_path, label("DecDiff"), [[0.5, 0.5], [0.5, 0.5], [0.53125, 0.53125]]),
    ]
    text = markdown(build_report(runs, printed=printed, plan=plan))
    assert "| A | 1 | **0.7500 (1)**<br>0.8975 ± 0.0306 | 0.5000 (1)<br>0.9071 ± 0.0249 |" in text
    assert "| A | 1 | CFA | 0.7500 ± 0.0000 | 0.7500 | 0.7500 | 0.7500 (1) | 0.8975 ± 0.0306 |" in text
    assert "| A | 1 | DecDiff | +3.12 | +3.02 |" in text
    assert "| A | 1 | CFA | 1.0<br>109.40 | -<br>322.40 | -<br>609.67 | -<br>- |" in text
    assert "| A | 1 | DecDiff | 1.0 | - | - | - |" in text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("setting,method,accuracy\nA,CFA,0.5\n", "its first columns are setting, participation, method"),
        (TABLE_2 + "A,1,CFA,0.8975,0.0306\n", "two lines for A, 1, CFA"),
        (TABLE_2 + "A,1,ISOL,0.6\n", "the line for A, 1, ISOL has not as many cells"),
        (TABLE_2 + "A,1,ISOL,0.6,0.1,0.2\n", "the line for A, 1, ISOL has not as many cells"),
        (TABLE_2 + "A,1,ISOL,many,0.1\n", "'many' is no number"),
        (TABLE_2 + "A,all,ISOL,0.6,0.1\n", "'all' is no number"),
        (TABLE_2 + "A,1,ISOL,-,0.1\n", "ISOL has no accuracy"),
        (TABLE_2 + "A,1,DecDiff,0.5,0.1\n", "another one than a file before it"),
        ("", "its first columns are"),
    ],
)
def test_printed_file_with_a_mistake_is_refused_and_named(tmp_path: Path, content: str, why: str) -> None:
    plan = printed_plan(tmp_path, table_2=content)
    with pytest.raises(ResultsError, match=why) as refused:
        read_printed_files(plan, tmp_path / "x.toml")
    assert ".csv" in str(refused.value)


def test_printed_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    plan = read_report_plan({"printed": {"times": "absent.csv"}})
    with pytest.raises(ResultsError, match=r"absent.csv cannot be read: No such file"):
        read_printed_files(plan, tmp_path / "x.toml")
    assert read_printed_files(ReportPlan(), tmp_path / "x.toml") is None


def shipped(name: str) -> PrintedTable:
    file = EXPERIMENTS / f"{name}.toml"
    printed = read_printed_files(read_experiment(file).report, file)
    assert printed is not None
    return printed


def test_decdiffs_printed_tables_are_digit_for_digit_the_papers() -> None:
    printed = shipped("decdiff/table_2_mnist")
    # The first and the last row of Table II, and each method's sum over three data sets in ten-thousandths.
    assert (printed.accuracy["MNIST", 1.0]["Centralised"], printed.of("MNIST", 1.0, "Centralised")) == (
        0.9824,
        {"spread": 0.0},
    )
    last = printed.of("EMNIST", 1.0, "DecDiff+VT")
    assert printed.accuracy["EMNIST", 1.0]["DecDiff+VT"] == 0.8653
    assert last == {"spread": 0.0128, "gain": 3.52, "0.5": 9.6, "0.8": 106.8, "0.9": 138.4, "0.95": 400.25}
    sums = {method: round(sum(row[method] for row in printed.accuracy.values()) * 10_000) for method in printed.methods}
    assert sums == {
        "Centralised": 28_032,
        "ISOL": 18_721,
        "FED": 26_693,
        "DecHetero": 26_209,
        "CFA": 25_350,
        "CFA-GE": 26_631,
        "DecDiff+VT": 27_087,
        "DecDiff": 26_425,
    }
    # Table III's gains are differences of its accuracies, in points.
    for row, accuracy in printed.accuracy.items():
        for method in ("DecDiff", "DecDiff+VT"):
            gain = printed.more[row][method]["gain"]
            assert gain == pytest.approx(100 * (accuracy[method] - accuracy["DecHetero"]), abs=1e-9)
    assert sum(len(shares) for shares in printed.times.values()) == 61  # of 84 cells, 23 are dashes
    assert printed.times["MNIST", "ISOL"] == {"0.5": 262.2}


def test_d_cliques_printed_edges_are_the_papers() -> None:
    printed = shipped("d_cliques/mnist_1000")
    assert printed.graphs["1,000 nodes", "D-Cliques"] == {"edges_per_node": 18.9, "messages_per_node": 37.8}
    assert printed.graphs["1,000 nodes", "D-Cliques (small world)"] == {"edges_per_node": 14.5}
    assert printed.accuracy["100 nodes", 1.0] == {"single IID node": 0.925}


@pytest.mark.parametrize("file", ASKING, ids=lambda file: file.stem)
def test_shipped_experiments_have_the_methods_and_settings_that_their_reports_name(file: Path) -> None:
    experiment = read_experiment(file)
    plan, methods = experiment.report, {run.label.method for run in experiment.runs}
    named = [
        plan.gains and plan.gains.baseline,
        plan.times and plan.times.reference,
        plan.trajectories and plan.trajectories.limit,
        plan.plateau and plan.plateau.method,
    ]
    assert {each for each in named if each} <= methods
    assert not plan.batches or plan.batches.keys() == {run.label.setting for run in experiment.runs}
    if (printed := read_printed_files(plan, file)) is not None:
        settings = {run.label.setting for run in experiment.runs}
        rows = {*((row[0], method) for row, those in printed.accuracy.items() for method in those), *printed.graphs}
        assert {setting for setting, _ in rows} & settings


# The plan.


def test_experiment_without_a_plan_asks_for_nothing_more(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\n')
    pixels = {"data": {"pixels": "unit"}}
    assert read_experiment(file, overrides=pixels).report == ReportPlan()
    file.write_text('name = "x"\n[report.nodes]\nlowest = 0.5\n[report.trajectories]\nbatches = { "A" = 5 }\n')
    plan = read_experiment(file, overrides=pixels).report
    assert plan.nodes is not None
    assert plan.nodes.lowest == 0.5
    assert plan.batches == {"A": 5.0}
    assert plan.times is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (3, r"\[report\] is a table"),
        ({"pies": {}}, "no part 'pies'; there are printed, nodes"),
        ({"nodes": True}, r"\[report.nodes\] is a table"),
        ({"nodes": {"lowest": 1.0}}, r"\[report.nodes\]: lowest must be below 1"),
        ({"times": {"of": "FED"}}, "no parameter 'of'; known: reference"),
        ({"plateau": {"share": 0.0}}, "share must be above 0"),
        ({"plateau": {"classes": 1}}, "classes must be at least 2"),
        ({"trajectories": {"batches": {}}}, "batches gives each setting a number above 0"),
        ({"trajectories": {"batches": {"A": True}}}, "batches gives each setting a number above 0"),
        ({"trajectories": {"batches": {"A": -1}}}, "batches gives each setting a number above 0"),
        ({"trajectories": {"batches": 3}}, "batches gives each setting a number above 0"),
    ],
)
def test_plan_with_a_mistake_is_refused_and_named(content: object, why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        read_report_plan(content)


def test_pictures_of_nodes_are_drawn_where_they_are_asked_for(tmp_path: Path) -> None:
    nodes = kept(tmp_path, label("CFA"), [[0.1, 0.2], [0.3, 0.4], [0.5, 0.75]])
    without = Run(tmp_path / "none", label("CFA", setting="B"), records(0.5, 0.6, 0.7), True)
    report = build_report([nodes, without], plan=read_report_plan({"nodes": {"lowest": 0.25}}))
    drawn = [path.name for path in draw_experiment([nodes, without], tmp_path / "plots", report=report)]
    assert drawn == ["a-1-3-curves.png", "a-1-3-node-curves.png", "a-1-3-nodes.png", "b-1-3-curves.png"]


def test_pictures_of_parameters_are_drawn_where_runs_have_them(tmp_path: Path) -> None:
    with_both = tuple(
        replace(
            each,
            sigma_an=0.1,
            sigma_ap=0.2,
            change_by_training=0.1,
            change_by_aggregation=10.0,
            change_in_total=10.0,
            change_cosine=0.0,
        )
        for each in records(0.1, 0.2)
    )
    drawn = draw_experiment([Run(Path("a"), label("DecAvg"), with_both, True)], tmp_path)
    assert [path.name for path in drawn] == [f"a-1-3-{kind}.png" for kind in ("curves", "deviations", "changes")]
