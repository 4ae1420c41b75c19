"""A table of an experiment's runs beside the numbers that a paper prints.

A row is a setting, a participation and a number of rounds, or of evaluations of virtual time; a column is a method; a
cell is what its seeds came to: mean ± sample standard deviation, and how many seeds. A row whose runs have another
number of rounds than the paper's says so, as one in virtual time says how much. The best mean of a row, to the four
digits that are shown, is bold; upper bounds do not compete.

A run's value is the mean over clients at its last evaluated round. The paper does not say which round it prints, so the
best round's stands beside it in the JSON: a reader can see what difference that makes. Only finished runs count; of
those that are missing, the report says which command makes them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from fl_simulator.config.experiment import Experiment, PlannedRun
from fl_simulator.config.report_plan import ReportPlan
from fl_simulator.errors import SimulationError
from fl_simulator.report.decentralised import (
    GraphFigures,
    NodeFigures,
    PlateauFigures,
    graph_of,
    nodes_of,
    plateau_of,
    times_of,
)
from fl_simulator.report.figures import (
    Clustering,
    Machine,
    Timing,
    clustering_of,
    known,
    machine_of,
    timing_of,
)
from fl_simulator.report.printed import PrintedTable, read_printed_files, read_printed_table
from fl_simulator.run.folder import Run, find_runs, read_clients
from fl_simulator.run.record import CostSummary, RoundRecord, RunLabel

UPPER_BOUNDS: Final = ("centralised", "oracle")
"""Columns, in whatever case, of methods that are told what others must find out."""

PAPER: Final = "paper.toml"
"""The printed numbers, beside the experiments that measure them."""

_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Expected:
    """A run of the experiment.

    Attributes:
        label: Where it stands.
        command: What makes it.
        duration_s: Virtual seconds of a run in virtual time; None for one in rounds.
    """

    label: RunLabel
    command: str
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """A run without a result.

    Attributes:
        label: Where it stands.
        rounds_done: How many of its rounds are there; they are done already when it is resumed.
        command: What makes it; empty for an unfinished run that nobody expected.
        is_timed: Whether it is one in virtual time, whose rounds are evaluations.
    """

    label: RunLabel
    rounds_done: int
    command: str
    is_timed: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A method in a row.

    Attributes:
        method: The column.
        seeds: Of the finished runs, ascending.
        final: Their accuracies at the last evaluated round.
        best: Their accuracies at the best round.
        worst_decile: At the last evaluated round.
        worst: The least accurate client's, at the last evaluated round.
        printed: The paper's number; None where it has none.
        is_best: Whether nothing in the row that competes is better: no upper bound does, nor a mean of fewer seeds.
        clustering: None where no run has a figure of it.
        costs: The first seed's; None where it has none.
        timing: None for runs in rounds.
        machine: None for a method without a ledger.
        nodes: How nodes differed; None where that is not asked for, or not kept.
        graph: None for a method without one.
        gain: Accuracy above the baseline's, means over seeds; None where that is not asked for, or not there yet.
        times: Rounds to each share of the reference's accuracy, by share and seed; empty as above.
        printed_more: What else the paper prints: ``spread`` and ``gain`` of the accuracy, ``edges_per_node`` and
            ``messages_per_node`` of the graph, and rounds by share, such as ``0.5``.
    """

    method: str
    seeds: tuple[int, ...] = ()
    final: tuple[float, ...] = ()
    best: tuple[float, ...] = ()
    worst_decile: tuple[float, ...] = ()
    worst: tuple[float, ...] = ()
    printed: float | None = None
    is_best: bool = False
    clustering: Clustering | None = None
    costs: CostSummary | None = None
    timing: Timing | None = None
    machine: Machine | None = None
    nodes: NodeFigures | None = None
    graph: GraphFigures | None = None
    gain: float | None = None
    times: tuple[tuple[int | None, ...], ...] = ()
    printed_more: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """Over seeds; None without one."""
        return fmean(self.final) if self.final else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two."""
        return stdev(self.final) if len(self.final) > 1 else None

    @property
    def measured_text(self) -> str:
        """``0.9723 ± 0.0004 (3)``, or a dash."""
        if self.mean is None:
            return "-"
        spread = "" if self.std is None else f" ± {self.std:.{_DIGITS}f}"
        return f"{self.mean:.{_DIGITS}f}{spread} ({len(self.seeds)})"

    @property
    def printed_text(self) -> str:
        """The paper's number, with its spread where it has one, or a dash."""
        if self.printed is None:
            return "-"
        spread = self.printed_more.get("spread")
        return f"{self.printed:.{_DIGITS}f}" + ("" if spread is None else f" ± {spread:.{_DIGITS}f}")


@dataclass(frozen=True, slots=True)
class Row:
    """A setting, a participation and a number of rounds.

    Attributes:
        setting: As in ``RunLabel``.
        participation: The same.
        rounds: The same.
        cells: One for each method of the report, in its order.
        duration_s: Virtual seconds of runs in virtual time; None for runs in rounds.
    """

    setting: str
    participation: float
    rounds: int
    cells: tuple[Cell, ...]
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The whole table.

    Attributes:
        title: Its heading.
        printed_source: Where printed numbers are from; None where there are none.
        printed_rounds: How many rounds those runs had; None as above.
        methods: Columns: the paper's, then the experiment's, in its order.
        rows: In the paper's order, then in the experiment's.
        missing: Runs without a result.
        plan: What was asked for beside the table.
        plateaus: Of each method that has runs and of each participation; empty where they are not asked for.
    """

    title: str
    printed_source: str | None
    printed_rounds: int | None
    methods: tuple[str, ...]
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...]
    plan: ReportPlan = field(default_factory=ReportPlan)
    plateaus: tuple[PlateauFigures, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Every figure, for programs."""
        return {
            "title": self.title,
            "printed_source": self.printed_source,
            "printed_rounds": self.printed_rounds,
            "methods": list(self.methods),
            "cells": [
                {
                    "setting": row.setting,
                    "participation": row.participation,
                    "rounds": row.rounds,
                    "duration_s": row.duration_s,
                    "method": cell.method,
                    "printed": cell.printed,
                    "seeds": list(cell.seeds),
                    "mean": cell.mean,
                    "std": cell.std,
                    "final": list(cell.final),
                    "best": list(cell.best),
                    "worst_decile": list(cell.worst_decile),
                    "worst": list(cell.worst),
                    "is_best": cell.is_best,
                    "costs": None if cell.costs is None else cell.costs.to_json(),
                    "clustering": None if cell.clustering is None else asdict(cell.clustering),
                    "timing": None if cell.timing is None else asdict(cell.timing),
                    "machine": None if cell.machine is None else asdict(cell.machine),
                    "nodes": None if cell.nodes is None else asdict(cell.nodes),
                    "graph": None if cell.graph is None else asdict(cell.graph),
                    "gain": cell.gain,
                    "times": [list(seeds) for seeds in cell.times],
                    "printed_more": dict(cell.printed_more),
                }
                for row in self.rows
                for cell in row.cells
            ],
            "plateaus": [
                {**asdict(each), "exponent": each.exponent, "exponent_std": each.exponent_std} for each in self.plateaus
            ],
            "missing": [
                {"label": each.label.to_json(), "rounds_done": each.rounds_done, "command": each.command}
                for each in self.missing
            ],
        }

    def missing_lines(self) -> list[str]:
        """What is missing, and which command makes it, in words; runs that one command makes stand together."""
        by_command: dict[str, list[Missing]] = {}
        for each in self.missing:
            by_command.setdefault(each.command, []).append(each)
        lines = []
        for command, found in by_command.items():
            names = [each.label.folder_name + _begun(each) for each in found]
            listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            lines.append(
                f"{listed}: `{command}`" if command else f"{listed}: unfinished, and no run of this experiment"
            )
        return lines

    @property
    def legend(self) -> str:
        """What a cell says."""
        ours = f"Mean over clients at the last {self.evaluated}, mean ± standard deviation over seeds (how many seeds)."
        return ours if self.printed_source is None else f"{ours} Below it: {self.printed_source}."

    @property
    def evaluated(self) -> str:
        """As ``interval``, of those at which clients were evaluated: not every round is one."""
        return self.interval.replace("round", "evaluated round")

    @property
    def interval(self) -> str:
        """What a run is looked at after: a round, an evaluation of virtual time, or, in a table of both, either."""
        timed = {row.duration_s is not None for row in self.rows}
        return "round or evaluation" if len(timed) == 2 else "evaluation" if True in timed else "round"

    def row_name(self, row: Row) -> str:
        """The row's setting, and its rounds where they are not the paper's, or its virtual time."""
        if row.duration_s is not None:
            return f"{row.setting}, {row.duration_s:,.10g} s of virtual time"
        if row.rounds == self.printed_rounds:
            return row.setting
        return f"{row.setting}, {row.rounds} {'round' if row.rounds == 1 else 'rounds'}"


def build_report(
    runs: Sequence[Run],
    *,
    printed: PrintedTable | None = None,
    expected: Sequence[Expected] = (),
    title: str = "Test accuracy",
    plan: ReportPlan | None = None,
) -> Report:
    """The report of these runs.

    Args:
        runs: Finished and unfinished ones.
        printed: The paper's numbers; its columns are there even without a run, its rows where a run is or is expected.
        expected: All runs of the experiment; those that have no finished run are missing.
        title: Of the report.
        plan: What is asked for beside the table; by default nothing.

    Raises:
        SimulationError: Two finished runs have one label, or one of them cannot be read.
    """
    plan = plan or ReportPlan()
    finished = [run for run in runs if run.finished]
    _refuse_doubles(finished)
    labels = [*(each.label for each in expected), *(run.label for run in runs)]
    methods = tuple(dict.fromkeys([*(printed.methods if printed else ()), *(label.method for label in labels)]))
    keys = _row_keys(labels, printed)
    durations = _durations(runs, expected)
    rows = tuple(
        _row(key, methods, finished, printed=printed, duration_s=durations.get(key), plan=plan) for key in keys
    )
    return Report(
        title=title,
        printed_source=printed.source if printed else None,
        printed_rounds=printed.rounds if printed else None,
        methods=methods,
        rows=rows,
        missing=_missing(runs, expected),
        plan=plan,
        plateaus=_plateaus(keys, methods, finished, plan),
    )


def report_on(experiment: Experiment, folder: Path, *, command: str = "") -> tuple[Report, list[Run]]:
    """The report of an experiment, and the runs that it is made of.

    Args:
        experiment: Its runs are expected.
        folder: Its results. The paper's numbers are those that the experiment's file names, or else those of
            ``paper.toml`` beside it, where the experiment has one of its methods.
        command: What makes the runs that are missing, and no others; by default, that which plays the whole file.

    Raises:
        SimulationError: A run cannot be read, or two are the same.
    """
    runs = [run for run in find_runs(folder) if run.label.experiment == experiment.name]
    paper = experiment.file.parent / PAPER
    command = command or f"dag-acfl simulate {experiment.file}"
    expected = [Expected(planned.label, command, _planned_duration(planned)) for planned in experiment.runs]
    printed = read_printed_files(experiment.report, experiment.file)
    if printed is None and paper.is_file():
        printed = read_printed_table(paper)
    if printed is not None and not {each.label.method for each in expected} & set(printed.methods):
        printed = None
    report = build_report(runs, printed=printed, expected=expected, title=experiment.title, plan=experiment.report)
    return report, runs


def _planned_duration(planned: PlannedRun) -> float | None:
    virtual_time = planned.scenario.asynchronous
    return None if virtual_time is None else virtual_time.schedule.duration_s


_RowKey = tuple[str, float, int]


def _row_key(label: RunLabel) -> _RowKey:
    return label.setting, label.participation, label.rounds


def _row_keys(labels: Iterable[RunLabel], printed: PrintedTable | None) -> list[_RowKey]:
    ours = list(dict.fromkeys(map(_row_key, labels)))
    if printed is None:
        return ours
    place = {row: number for number, row in enumerate(printed.accuracy)}
    return sorted(ours, key=lambda key: place.get(key[:2], len(place)))


def _durations(runs: Iterable[Run], expected: Iterable[Expected]) -> dict[_RowKey, float]:
    """Of rows in virtual time."""
    found = {_row_key(each.label): each.duration_s for each in expected if each.duration_s is not None}
    for run in sorted(runs, key=lambda run: not run.finished):
        if run.duration_s is not None:
            found.setdefault(_row_key(run.label), run.duration_s)
    return found


def _row(
    key: _RowKey,
    methods: Sequence[str],
    finished: Sequence[Run],
    *,
    printed: PrintedTable | None,
    duration_s: float | None,
    plan: ReportPlan,
) -> Row:
    setting, participation, rounds = key
    mine: dict[str, list[Run]] = {method: [] for method in methods}
    for run in sorted(finished, key=lambda run: run.label.seed):
        if _row_key(run.label) == key:
            mine[run.label.method].append(run)
    cells = [_cell(key, method, mine[method], printed=printed, plan=plan) for method in methods]
    means = {
        method: fmean(known(run.summary.final.accuracy for run in those))
        for method in methods
        if (those := [run for run in finished if _is_beside(run.label, key) and run.label.method == method])
    }
    most = max(len(cell.seeds) for cell in cells)  # a mean of fewer seeds does not compete with one of more
    competing = {
        cell.method: cell.mean
        for cell in cells
        if cell.mean is not None and len(cell.seeds) == most and cell.method.casefold() not in UPPER_BOUNDS
    }
    best = max(competing.values(), default=None)
    return Row(
        setting,
        participation,
        rounds,
        tuple(
            replace(
                cell,
                is_best=len(competing) > 1 and _is_as_good(competing.get(cell.method), best),
                timing=timing_of([run.records for run in mine[cell.method]], rival=best),
                gain=None if plan.gains is None else _gain(cell.mean, means.get(plan.gains.baseline)),
                times=()
                if plan.times is None
                else times_of([run.records for run in mine[cell.method]], reference=means.get(plan.times.reference)),
            )
            for cell in cells
        ),
        duration_s,
    )


def _is_as_good(value: float | None, best: float | None) -> bool:
    """To the digits that are shown."""
    return value is not None and best is not None and round(value, _DIGITS) == round(best, _DIGITS)


def _is_beside(label: RunLabel, key: _RowKey) -> bool:
    """Whether a run is of a row's setting and participation, however many rounds it has: a bound may have fewer."""
    return (label.setting, label.participation) == key[:2]


def _gain(mean: float | None, baseline: float | None) -> float | None:
    return None if mean is None or baseline is None else mean - baseline


def _cell(key: _RowKey, method: str, runs: Sequence[Run], *, printed: PrintedTable | None, plan: ReportPlan) -> Cell:
    summaries = [run.summary for run in runs]
    return Cell(
        method=method,
        seeds=tuple(run.label.seed for run in runs),
        final=known(summary.final.accuracy for summary in summaries),
        best=known(summary.best.accuracy for summary in summaries),
        worst_decile=known(summary.final.worst_decile for summary in summaries),
        worst=known(summary.final.worst for summary in summaries),
        printed=None if printed is None else printed.accuracy.get(key[:2], {}).get(method),
        clustering=clustering_of([run.records for run in runs]),
        costs=next((run.costs for run in runs if run.costs is not None), None),
        machine=machine_of([run.records for run in runs]),
        nodes=None if plan.nodes is None else nodes_of([read_clients(run.path) for run in runs]),
        graph=graph_of(runs),
        printed_more={} if printed is None else printed.of(key[0], key[1], method),
    )


def _plateaus(
    keys: Sequence[_RowKey], methods: Sequence[str], finished: Sequence[Run], plan: ReportPlan
) -> tuple[PlateauFigures, ...]:
    """Of each participation and method; settings in the order of their rows."""
    if plan.plateau is None:
        return ()
    found = []
    for participation in dict.fromkeys(key[1] for key in keys):
        for method in methods:
            runs: dict[str, dict[int, tuple[int, Sequence[RoundRecord]]]] = {key[0]: {} for key in keys}
            for run in finished:
                if (run.label.participation, run.label.method) == (participation, method):
                    kept = read_clients(run.path)
                    if kept is not None:
                        runs[run.label.setting][run.label.seed] = (kept.accuracy.shape[1], run.records)
            if any(runs.values()):
                found.append(plateau_of(method, participation, runs, plan.plateau))
    return tuple(found)


def _missing(runs: Sequence[Run], expected: Sequence[Expected]) -> tuple[Missing, ...]:
    done = {run.label for run in runs if run.finished}
    begun = {run.label: run for run in runs if not run.finished and run.label not in done}
    wanted = [each for each in expected if each.label not in done]
    known_labels = {each.label for each in expected}
    strays = [Expected(label, "") for label in begun if label not in known_labels]
    found = []
    for each in (*wanted, *strays):
        run = begun.get(each.label)
        timed = each.duration_s is not None or (run is not None and run.duration_s is not None)
        found.append(Missing(each.label, 0 if run is None else len(run.records), each.command, timed))
    return tuple(found)


def _begun(missing: Missing) -> str:
    rounds = "evaluations" if missing.is_timed else "rounds"
    return f" ({missing.rounds_done} of {missing.label.rounds} {rounds} done)" if missing.rounds_done else ""


def _refuse_doubles(runs: Sequence[Run]) -> None:
    seen: dict[RunLabel, Path] = {}
    for run in runs:
        if run.label in seen:
            raise SimulationError(f"{seen[run.label]} and {run.path} hold the same run; move one of them away")
        seen[run.label] = run.path
