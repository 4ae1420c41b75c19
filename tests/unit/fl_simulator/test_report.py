"""The table of measured beside printed numbers."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fl_simulator.config.experiment import read_experiment
from fl_simulator.errors import ResultsError, SimulationError
from fl_simulator.plots import Series, draw_communities, draw_experiment, draw_populations
from fl_simulator.plots import experiment as experiment_pictures
from fl_simulator.plots.experiment import _PICTURES as PICTURES
from fl_simulator.plots.series import Over
from fl_simulator.report import (
    Cell,
    Expected,
    PrintedTable,
    Report,
    build_report,
    markdown,
    read_printed_table,
    report_on,
    terminal_table,
)
from fl_simulator.run.folder import Run, RunFolder, read_run
from fl_simulator.run.record import CostSummary, RoundRecord, RunLabel
from fl_simulator.strategies.protocol import Choice

PAPER = Path(__file__).parents[3] / "experiments" / "dag-acfl" / "paper.toml"

PRINTED = PrintedTable(
    source="A paper, Table 1",
    rounds=3,
    methods=("Fedavg", "DAG-ACFL"),
    accuracy={
        ("B", 1.0): {"Fedavg": 0.5, "DAG-ACFL": 0.8},
        ("A", 1.0): {"Fedavg": 0.6, "DAG-ACFL": 0.9},
        ("unasked", 1.0): {"Fedavg": 0.1, "DAG-ACFL": 0.1},
    },
)


def label(method: str = "DAG-ACFL", *, setting: str = "A", seed: int = 0, rounds: int = 3) -> RunLabel:
    return RunLabel(experiment="test", setting=setting, participation=1.0, method=method, seed=seed, rounds=rounds)


def records(*accuracies: float | None) -> tuple[RoundRecord, ...]:
    return tuple(
        RoundRecord(
            round=number,
            virtual_time_s=number + 1.0,
            participants=2,
            up_bytes=0,
            down_bytes=0,
            accuracy=accuracy,
            worst_decile=None if accuracy is None else accuracy / 2,
        )
        for number, accuracy in enumerate(accuracies)
    )


def run(which: RunLabel, *accuracies: float | None, finished: bool = True) -> Run:
    return Run(Path("results") / which.folder_name, which, records(*accuracies), finished)


def cell(report: Report, method: str, *, setting: str = "A") -> Cell:
    (row,) = [row for row in report.rows if row.setting == setting]
    (found,) = [cell for cell in row.cells if cell.method == method]
    return found


def test_papers_table_is_digit_for_digit_the_printed_one() -> None:
    table = read_printed_table(PAPER)
    assert table.methods == ("Fedavg", "IFCA", "FeSEM", "FlexCFL", "FlexCFL(2)", "DAG-ACFL")
    assert (table.source, table.rounds) == ("DAG-ACFL, Table II", 200)
    assert len(table.accuracy) == 16
    # The first and the last row, and each column's sum in ten-thousandths, as the paper's own text adds up.
    assert list(table.accuracy["MNIST(type I)-LR", 1.0].values()) == [0.8791, 0.8862, 0.8862, 0.9726, 0.9426, 0.9726]
    assert list(table.accuracy["CIFAR10(type II)-CNN", 0.5].values()) == [
        0.4904,
        0.8419,
        0.6184,
        0.8476,
        0.6448,
        0.8507,
    ]
    sums = [round(sum(row[method] for row in table.accuracy.values()) * 10_000) for method in table.methods]
    assert sums == [130_042, 142_851, 135_080, 151_683, 141_099, 151_712]


def test_cell_is_mean_and_sample_deviation_of_the_last_evaluated_rounds() -> None:
    runs = [
        run(label(seed=1), 0.9, 0.7, None),
        run(label(seed=0), 0.1, 0.8, 0.8),
        run(label(seed=2), 0.1, 0.2, 0.9),
    ]
    found = cell(build_report(runs, printed=PRINTED), "DAG-ACFL")
    assert found.seeds == (0, 1, 2)
    assert found.final == (0.8, 0.7, 0.9)
    assert found.best == (0.8, 0.9, 0.9)
    assert found.worst_decile == (0.4, 0.35, 0.45)
    assert found.measured_text == "0.8000 ± 0.1000 (3)"
    assert found.printed_text == "0.9000"


def test_one_seed_has_no_deviation_and_no_seed_is_a_dash() -> None:
    report = build_report([run(label(), 0.75)], printed=PRINTED)
    assert cell(report, "DAG-ACFL").measured_text == "0.7500 (1)"
    assert cell(report, "Fedavg").measured_text == "-"
    assert cell(report, "Fedavg").printed_text == "0.6000"


def test_rows_stand_as_in_the_paper_and_columns_go_on_with_the_experiments() -> None:
    expected = [
        Expected(label(method, setting=setting), "make it")
        for setting in ("C", "A", "B")
        for method in ("oracle", "DAG-ACFL", "CFL")
    ]
    report = build_report([], printed=PRINTED, expected=expected)
    assert [row.setting for row in report.rows] == ["B", "A", "C"]
    assert report.methods == ("Fedavg", "DAG-ACFL", "oracle", "CFL")


def test_best_measured_value_is_bold_to_the_digits_shown_and_upper_bounds_do_not_compete() -> None:
    report = build_report(
        [
            run(label("Fedavg"), 0.5),
            run(label("DAG-ACFL"), 0.70001),
            run(label("FlexCFL"), 0.70004),
            run(label("Oracle"), 0.9),
        ],
        printed=PRINTED,
    )
    assert [each.method for each in report.rows[0].cells if each.is_best] == ["DAG-ACFL", "FlexCFL"]
    assert "| **0.7000 (1)**<br>0.9000 |" in markdown(report)


def test_a_mean_of_fewer_seeds_does_not_compete() -> None:
    of_two = [run(label(method, seed=seed), value) for method, value in (("A", 0.7), ("B", 0.6)) for seed in (0, 1)]
    report = build_report([*of_two, run(label("C", seed=0), 0.9)])
    assert [each.method for each in report.rows[0].cells if each.is_best] == ["A"]


def test_value_without_a_rival_is_not_bold() -> None:
    assert not cell(build_report([run(label(), 0.7), run(label("oracle"), 0.9)]), "DAG-ACFL").is_best


def test_shortened_runs_are_a_row_of_their_own_that_says_so() -> None:
    report = build_report([run(label(), 0.7), run(label(rounds=1), 0.4)], printed=PRINTED)
    assert [(row.rounds, row.cells[1].final) for row in report.rows] == [(3, (0.7,)), (1, (0.4,))]
    text = markdown(report)
    assert "| A | 1 |" in text
    assert "| A, 1 round | 1 |" in text


def test_missing_and_unfinished_runs_are_named_with_the_command_that_makes_them() -> None:
    done, half, never = label(seed=0), label(seed=1), label(seed=2)
    stray = label("Gone")
    report = build_report(
        [run(done, 0.5), run(half, 0.5, 0.6, finished=False), run(stray, 0.5, finished=False)],
        printed=PRINTED,
        expected=[Expected(each, "dag-acfl simulate t.toml") for each in (done, half, never)],
    )
    assert [(each.label, each.rounds_done) for each in report.missing] == [(half, 2), (never, 0), (stray, 1)]
    assert report.missing_lines() == [
        "a-1-dag-acfl-seed-1 (2 of 3 rounds done), a-1-dag-acfl-seed-2: `dag-acfl simulate t.toml`",
        "a-1-gone-seed-0 (1 of 3 rounds done): unfinished, and no run of this experiment",
    ]
    assert "* a-1-dag-acfl-seed-1 (2 of 3 rounds done)" in markdown(report)
    assert cell(report, "DAG-ACFL").seeds == (0,)


def test_many_missing_runs_of_one_command_are_one_line() -> None:
    expected = [Expected(label(seed=seed), "make") for seed in range(9)]
    assert build_report([], expected=expected).missing_lines() == [
        "a-1-dag-acfl-seed-0, a-1-dag-acfl-seed-1, a-1-dag-acfl-seed-2 and 6 more: `make`"
    ]


def test_same_run_twice_is_refused() -> None:
    twice = [run(label(), 0.5), replace(run(label(), 0.6), path=Path("elsewhere"))]
    with pytest.raises(SimulationError, match="elsewhere hold the same run"):
        build_report(twice)


def test_clusters_are_judged_after_warm_up() -> None:
    rounds = [
        replace(
            each, misclassified=wrong, purity=1 - wrong / 10, communities=4 - number, satisfaction=rate, satisfaction_min=rate / 2, foreign=1 - rate
        )
        for number, (each, wrong, rate) in enumerate(
            zip(records(0.1, 0.2, 0.3, 0.4), (5, 0, 1, 0), (0.0, 0.2, 0.8, 1.0), strict=True)
        )
    ]  # fmt: skip
    first = Run(Path("a"), label(seed=0, rounds=4), tuple(rounds), finished=True)
    second = Run(Path("b"), label(seed=1, rounds=4), tuple(replace(each, misclassified=0) for each in rounds), True)
    report = build_report([first, second, run(label("Fedavg", rounds=4), 0.1)], printed=PRINTED)
    found = cell(report, "DAG-ACFL").clustering
    assert found is not None
    assert found.satisfaction == pytest.approx(0.9)  # of rounds 2 and 3
    assert found.satisfaction_min == 0.4
    assert found.foreign == pytest.approx(0.2)
    assert (found.misclassified, found.clean_from, found.communities) == (1, 3, (1, 1))
    assert cell(report, "Fedavg").clustering is None
    assert "| A, 4 rounds | 1 | DAG-ACFL | - | 1, 1 | 1.000 | 0.900 | 0.400 | 0.200 | 1 | 3 |" in markdown(report)


def test_seed_that_is_never_clean_leaves_no_clean_round() -> None:
    dirty = tuple(replace(each, misclassified=2) for each in records(0.1, 0.2))
    clean = tuple(replace(each, misclassified=0) for each in records(0.1, 0.2))
    runs = [Run(Path("a"), label(seed=0), dirty, True), Run(Path("b"), label(seed=1), clean, True)]
    found = cell(build_report(runs), "DAG-ACFL").clustering
    assert found is not None
    assert found.clean_from is None


def test_costs_stand_beside_the_papers_formulas() -> None:
    costs = CostSummary(
        communication="2·|C|·|ω|",
        printed_round_bytes=20_000_000,
        expected_round_bytes=20_000_000,
        measured_round_bytes=21_500_000.0,
        client_storage="|ω| + |D̄|",
        printed_client_bytes=3_000,
    )
    report = build_report([replace(run(label(), 0.5), costs=costs), run(label("Fedavg"), 0.5)], printed=PRINTED)
    # A stroke would end the cell.
    line = r"| A | 1 | DAG-ACFL | 2·\|C\|·\|ω\| | 20.000 | 20.000 | 21.500 | 0.003 = \|ω\| + \|D̄\| | - | - |"
    assert line in markdown(report)
    assert [each["costs"] is None for each in report.to_json()["cells"]] == [True, False]
    assert "Table III" not in markdown(build_report([run(label(), 0.5)]))


def moments(*accuracies: float, every_s: float = 20.0, worst: float = 0.5) -> tuple[RoundRecord, ...]:
    """A run in virtual time, three results taken and one training lost between two looks."""
    return tuple(
        replace(each, virtual_time_s=(each.round + 1) * every_s, results=3, lost=1, worst=worst - each.round / 10)
        for each in records(*accuracies)
    )


def timed(which: RunLabel, *accuracies: float, **how: float) -> Run:
    return Run(Path("results") / which.folder_name, which, moments(*accuracies, **how), finished=True)


def test_times_are_told_to_a_part_of_the_own_and_of_the_best_competitors_final_accuracy() -> None:
    report = build_report(
        [
            timed(label("FedAvg", seed=0), 0.5, 0.76, 0.8),  # 0.95 of it is 0.76
            timed(label("FedAvg", seed=1), 0.77, 0.8, 0.8),
            timed(label("Slow", seed=0), 0.1, 0.2, 0.4),
            timed(label("oracle", seed=0), 0.75, 0.9, 0.9),  # 0.95 of it is 0.855; FedAvg's 0.76 comes as late
        ]
    )
    fedavg, slow, oracle = (cell(report, method).timing for method in ("FedAvg", "Slow", "oracle"))
    assert fedavg is not None
    assert slow is not None
    assert oracle is not None
    assert (fedavg.own_s, fedavg.rival_s) == ((40.0, 20.0), (40.0, 20.0))
    assert (slow.own_s, slow.rival_s) == ((60.0,), (None,))
    assert (oracle.own_s, oracle.rival_s) == ((40.0,), (40.0,))
    assert (fedavg.results, fedavg.lost) == ((9, 9), (3, 3))
    assert fedavg.worst == fedavg.worst_min == pytest.approx([0.3, 0.3])
    text = markdown(report)
    assert "| A, 60 s of virtual time | 1 | FedAvg | 30 ± 14 s | 30 ± 14 s | 9 ± 0 | 3 ± 0 | 0.3000 ± 0.0000 |" in text
    assert "| A, 60 s of virtual time | 1 | Slow | 60 s | never | 9 | 3 | 0.3000 | 0.3000 | - |" in text


def test_seeds_that_never_come_to_an_accuracy_are_not_averaged_but_counted() -> None:
    report = build_report(
        [
            timed(label("Best", seed=0), 0.8, 0.8),
            timed(label("Other", seed=0), 0.1, 0.78),
            timed(label("Other", seed=1), 0.1, 0.1),
        ]
    )
    assert "| Other | 30 ± 14 s | 40 s (1 of 2) |" in markdown(report)


def test_worst_client_and_foreign_models_are_judged_in_the_second_half() -> None:
    figures = ((0.9, 0.1, 0.8), (0.8, 0.3, 0.3), (0.7, 0.2, 0.1), (0.6, 0.4, 0.0))
    run_of_four = tuple(
        replace(each, accuracy=accuracy, worst=worst, foreign=foreign)
        for each, (accuracy, worst, foreign) in zip(moments(0, 0, 0, 0), figures, strict=True)
    )
    found = cell(build_report([Run(Path("a"), label(), run_of_four, True)]), "DAG-ACFL").timing
    assert found is not None
    assert (found.worst, found.worst_min, found.foreign) == ((0.4,), (0.2,), (0.1,))


def test_rows_in_virtual_time_say_so_and_not_how_many_rounds() -> None:
    half = replace(timed(label(seed=1), 0.5), finished=False)
    report = build_report(
        [timed(label(), 0.5, 0.5, 0.6), half],
        expected=[Expected(label(seed=seed), "make", 60.0) for seed in (0, 1)],
    )
    text = markdown(report)
    assert "| A, 60 s of virtual time | 1 | 0.6000 (1) |" in text
    assert "Mean over clients at the last evaluation" in text
    assert "a-1-dag-acfl-seed-1 (1 of 3 evaluations done)" in text
    assert "round" not in text
    assert report.to_json()["cells"][0]["duration_s"] == 60.0
    console = Console(width=100, record=True, file=StringIO())
    console.print(terminal_table(report, width=100))
    assert "virtual" in console.export_text()


@pytest.mark.parametrize("looks", [(0.5, 0.6, 0.7), (0.5,)])
def test_virtual_time_of_a_run_that_nobody_expects_is_that_of_its_records(looks: tuple[float, ...]) -> None:
    report = build_report([replace(timed(label(), *looks), finished=len(looks) == 3)])
    assert [row.duration_s for row in report.rows] == [60.0]


def test_clusters_of_runs_in_virtual_time_are_clean_from_a_time_on() -> None:
    run_of_three = tuple(
        replace(each, misclassified=wrong) for each, wrong in zip(moments(0.1, 0.2, 0.3), (2, 0, 0), strict=True)
    )
    report = build_report([Run(Path("a"), label(), run_of_three, True)])
    assert "| DAG-ACFL | - | - | - | - | - | - | 0 | 40 s |" in markdown(report)


def test_runs_in_rounds_have_no_virtual_time() -> None:
    report = build_report([run(label(), 0.5)])
    assert cell(report, "DAG-ACFL").timing is None
    assert report.rows[0].duration_s is None
    assert "virtual" not in markdown(report)


def test_methods_on_a_ledger_say_what_they_took_of_the_machine() -> None:
    spent: tuple[dict[str, float], ...] = (
        {"training": 1.0, "ledger": 0.25},
        {"training": 2.0, "ledger": 0.5, "selection": 0.5},
        {"training": 8.0, "ledger": 1.0, "selection": 1.5},
    )
    rounds = tuple(
        replace(
            each,
            seconds=spent[each.round],
            tips=5 + each.round,
            transactions=1000 * (each.round + 1),
            up_bytes=1_000_000 * each.round,
            down_bytes=2_000_000,
            between_servers_bytes=500_000,
            peak_memory_bytes=(each.round + 1) * 100_000_000,
        )
        for each in records(0.1, 0.2, 0.3)
    )
    report = build_report([Run(Path("a"), label(), rounds, True), run(label("FedAvg"), 0.5)])
    took = cell(report, "DAG-ACFL").machine
    assert took is not None
    assert (took.seconds, took.by_work) == (3.0, {"training": 2.0, "selection": 0.5, "ledger": 0.5})
    assert (took.tips, took.transactions, took.peak_memory_bytes) == (7, 3000, 300_000_000)
    assert cell(report, "FedAvg").machine is None
    line = "| DAG-ACFL | 3.000 | 2.000 | 0.500 | - | 0.500 | 7 | 3,000 | 1.000 | 2.000 | 0.500 | 300 |"
    assert line in markdown(report)
    assert [each["machine"] is None for each in report.to_json()["cells"]] == [False, True]


def test_memory_that_was_not_measured_is_a_dash() -> None:
    rounds = tuple(replace(each, tips=1, transactions=2) for each in records(0.1))
    assert "| 0.000 | 0.000 | 0.000 | - |" in markdown(build_report([Run(Path("a"), label(), rounds, True)]))


def test_json_has_every_figure() -> None:
    report = build_report(
        [run(label(seed=0), 0.9, 0.8), run(label(seed=1), 0.6)],
        printed=PRINTED,
        expected=[Expected(label(seed=2), "make")],
        title="T",
    )
    found = report.to_json()
    assert (found["title"], found["printed_source"]) == ("T", "A paper, Table 1")
    (ours,) = [each for each in found["cells"] if each["method"] == "DAG-ACFL"]
    assert (ours["final"], ours["best"], ours["printed"]) == ([0.8, 0.6], [0.9, 0.6], 0.9)
    assert ours["mean"] == pytest.approx(0.7)
    assert found["missing"] == [{"label": label(seed=2).to_json(), "rounds_done": 0, "command": "make"}]


@pytest.mark.parametrize("width", [100, 200])
def test_terminal_shows_measured_and_printed_whatever_its_width(width: int) -> None:
    runs = [
        run(label(method), 0.5 + place / 100) for place, method in enumerate(("Fedavg", "DAG-ACFL", "CFL", "FeSEM"))
    ]
    console = Console(width=width, record=True, file=StringIO())
    console.print(terminal_table(build_report(runs, printed=PRINTED), width=width))
    text = console.export_text()
    for shown in ("0.5000 (1)", "0.5300 (1)", "0.6000", "0.9000", "FeSEM"):
        assert shown in text
    assert ("measured" in text) == (width == 100)


@pytest.mark.parametrize("width", [60, 200])
def test_terminal_without_a_paper_has_no_column_of_dashes(width: int) -> None:
    table = terminal_table(build_report([run(label(), 0.5), run(label("CFL"), 0.6)]), width=width)
    console = Console(width=width, record=True, file=StringIO())
    console.print(table)
    text = console.export_text()
    assert "0.6000 (1)" in text
    assert "printed" not in text
    assert " - " not in text


@pytest.mark.parametrize(
    "content",
    [
        "not toml",
        'source = "s"',
        'source = "s"\nrounds = 1\nmethods = ["a", "b"]\n[[rows]]\nsetting = "x"\nparticipation = 1.0\naccuracy = [0.1]',
    ],
)
def test_printed_table_with_a_mistake_is_refused_and_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "paper.toml"
    file.write_text(content)
    with pytest.raises(ResultsError, match=r"paper.toml is no table"):
        read_printed_table(file)
    with pytest.raises(ResultsError, match="cannot be read: No such file"):
        read_printed_table(tmp_path / "absent.toml")


EXPERIMENT = """
name = "small"
title = "A small table"
seeds = [0, 1]
[base]
data.pixels = "unit"
run.rounds = 2
[[settings]]
label = "digits"
[[methods]]
label = "FedAvg"
strategy.name = "fedavg"
"""


def test_a_paper_s_numbers_are_left_out_where_an_experiment_has_none_of_its_methods(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(EXPERIMENT)
    (tmp_path / "paper.toml").write_text(
        'source = "S"\nrounds = 2\nmethods = ["Another"]\n'
        '[[rows]]\nsetting = "digits"\nparticipation = 1.0\naccuracy = [0.25]\n'
    )
    report, _ = report_on(read_experiment(file), tmp_path / "results")
    assert report.printed_source is None
    assert "Another" not in report.methods


def test_experiment_is_reported_and_drawn_from_its_folders(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(EXPERIMENT)
    (tmp_path / "paper.toml").write_text(
        'source = "S"\nrounds = 2\nmethods = ["FedAvg"]\n'
        '[[rows]]\nsetting = "digits"\nparticipation = 1.0\naccuracy = [0.25]\n'
    )
    experiment = read_experiment(file)
    first, second = experiment.runs
    for planned, accuracies in (
        (first, (0.5, 0.75)),
        (replace(first, label=replace(first.label, experiment="other")), ()),
    ):
        folder = tmp_path / "results" / planned.label.experiment
        with RunFolder.create(folder, scenario="", label=planned.label) as opened:
            for record in records(*accuracies):
                opened.append(record)
            if accuracies:
                opened.finish()
    report, runs = report_on(experiment, tmp_path / "results")
    assert [found.label for found in runs] == [first.label]
    assert report.title == "A small table"
    assert [each.label for each in report.missing] == [second.label]
    assert report.missing[0].command == f"dag-acfl simulate {file}"
    assert "| digits | 1 | 0.7500 (1)<br>0.2500 |" in markdown(report)
    assert [path.name for path in draw_experiment(runs, tmp_path / "plots", report=report)] == ["digits-1-2-curves.png"]


def test_pictures_of_an_experiment_are_those_that_its_figures_allow(tmp_path: Path) -> None:
    full = tuple(
        replace(each, modularity=0.5, communities=2, satisfaction=1.0, satisfaction_min=1.0, misclassified=0)
        for each in records(0.1, 0.2)
    )
    runs = [
        Run(Path("a"), label("DAG-ACFL"), full, True),
        Run(Path("b"), label("Fedavg"), records(0.1, 0.2), True),
        Run(Path("c"), label("Fedavg", seed=1), (), False),
        Run(Path("d"), label("Fedavg", setting="B"), records(None), False),
    ]
    drawn = draw_experiment(runs, tmp_path)
    kinds = ("curves", "communities", "satisfaction", "misclassified")
    assert [path.name for path in drawn] == [f"a-1-3-{kind}.png" for kind in kinds]
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_pictures_of_runs_in_virtual_time_are_named_by_it_and_have_the_worst_client(tmp_path: Path) -> None:
    half = replace(timed(label(seed=1), 0.5), finished=False)
    drawn = draw_experiment([timed(label(), 0.5, 0.6, 0.7), half], tmp_path)
    assert [path.name for path in drawn] == ["a-1-60s-curves.png", "a-1-60s-worst-client.png"]


def kept_run(folder: Path, which: RunLabel, *, clusters: int) -> Run:
    """A run whose folder has one selection, of clients in so many true clusters."""
    client = Choice(
        client=0,
        offered=np.array([1, 0]),
        taken=np.array([1]),
        similarities=np.array([0.9, 0.1]),
        update_similarities=np.empty(0),
        probabilities=np.empty(0),
    )
    with RunFolder.create(folder, scenario="", label=which) as opened:
        for each in records(0.1, 0.2):
            opened.append(replace(each, communities=4))
        opened.save_choices([client], np.arange(6) % clusters)
        opened.finish()
    return read_run(folder)


def drawn_true_clusters(monkeypatch: pytest.MonkeyPatch, runs: Sequence[Run], folder: Path) -> int | None:
    asked: list[int | None] = []

    def draw(series: Sequence[Series], path: Path, *, true_clusters: int | None, title: str, over: Over) -> None:
        asked.append(true_clusters)
        draw_communities(series, path, true_clusters=true_clusters, title=title, over=over)

    pictures = [(kind, what, figure, draw if kind == "communities" else by) for kind, what, figure, by in PICTURES]
    monkeypatch.setattr(experiment_pictures, "_PICTURES", pictures)
    draw_experiment(runs, folder)
    (found,) = asked
    return found


def test_communities_are_drawn_beside_the_true_clusters_that_runs_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    three = kept_run(tmp_path / "a", label(seed=0), clusters=3)
    two = kept_run(tmp_path / "b", label(seed=1), clusters=2)
    untold = Run(tmp_path / "c", label("IFCA"), tuple(replace(each, communities=2) for each in records(0.1)), True)
    plots = tmp_path / "plots"
    assert drawn_true_clusters(monkeypatch, [three, untold], plots) == 3
    assert drawn_true_clusters(monkeypatch, [three, two], plots) is None, "seeds that have not the same have no line"
    assert drawn_true_clusters(monkeypatch, [untold], plots) is None


PARTITIONS = """
name = "partitions"
seeds = [3, 4]
participation = [1.0, 0.5]
[base]
data.pixels = "unit"
run.rounds = 2
partition = { name = "rotations", quarter_turns = "0,2", clients = "2,2", samples = 20 }
[[settings]]
label = "Two (LR)"
[[settings]]
label = "Two (MLP)"
model.name = "digits-mlp"
[[settings]]
label = "Three"
partition = { quarter_turns = "0,1,2", clients = "1,1,1" }
[[methods]]
label = "FedAvg"
strategy.name = "fedavg"
[[methods]]
label = "own samples"
strategy.name = "fedavg"
partition.samples = 30
"""


def test_each_way_to_share_samples_out_is_drawn_once(tmp_path: Path) -> None:
    file = tmp_path / "partitions.toml"
    file.write_text(PARTITIONS)
    drawn = draw_populations(read_experiment(file).runs, tmp_path / "plots")
    assert [path.name for path in drawn] == [
        "two-lr-labels.png",
        "two-lr-own-samples-labels.png",
        "three-labels.png",
        "three-own-samples-labels.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_partitions_that_cannot_be_drawn_are_left_out_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "partitions.toml"
    file.write_text(PARTITIONS.replace('"1,1,1"', '"999,999,999"'))
    monkeypatch.setattr(experiment_pictures, "_MOST_BARS", 3)
    told: list[str] = []
    assert draw_populations(read_experiment(file).runs, tmp_path / "plots", skipped=told.append) == []
    many, _, impossible, _ = told
    assert many == "labels of Two (LR): 4 clients are too many to be seen"
    assert impossible.startswith("labels of Three: 2997 clients cannot have 20 of")
