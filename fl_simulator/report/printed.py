"""Numbers that a paper prints, as data: a table in TOML, or CSV files that an experiment's ``[report.printed]`` names.

A cell of a CSV file is a number, or ``-`` where the paper prints none. Lines that begin with ``#`` are for people.
"""

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fl_simulator.config.report_plan import ReportPlan
from fl_simulator.errors import ResultsError

ByCell = Mapping[tuple[str, str], Mapping[str, float]]
"""Numbers by setting and method, and by the name of their column."""


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """What a paper prints.

    Attributes:
        source: The paper and the table.
        rounds: How many rounds its runs have; 0 where it does not say.
        methods: Columns, in its order.
        accuracy: By setting and participation, in its order, and by method.
        more: Of an accuracy, in the same order: ``spread``, what stands behind ±, and ``gain``, points above another.
        times: Rounds by share of accuracy, such as ``"0.5"``; a share that was not reached is not there.
        graphs: ``edges_per_node`` and ``messages_per_node``.
    """

    source: str
    rounds: int
    methods: tuple[str, ...]
    accuracy: Mapping[tuple[str, float], Mapping[str, float]]
    more: Mapping[tuple[str, float], Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    times: ByCell = field(default_factory=dict)
    graphs: ByCell = field(default_factory=dict)

    def of(self, setting: str, participation: float, method: str) -> dict[str, float]:
        """All that is printed of a cell beside its accuracy."""
        return {
            **self.more.get((setting, participation), {}).get(method, {}),
            **self.graphs.get((setting, method), {}),
            **self.times.get((setting, method), {}),
        }


def read_printed_table(file: Path) -> PrintedTable:
    """A paper's table from TOML, such as ``experiments/dag-acfl/paper.toml``.

    Raises:
        ResultsError: It cannot be read; the message says why.
    """
    try:
        content = tomllib.loads(file.read_text("utf-8"))
        methods = tuple(map(str, content["methods"]))
        return PrintedTable(
            source=str(content["source"]),
            rounds=int(content["rounds"]),
            methods=methods,
            accuracy={
                (str(row["setting"]), float(row["participation"])): dict(
                    zip(methods, map(float, row["accuracy"]), strict=True)
                )
                for row in content["rows"]
            },
        )
    except OSError as error:
        raise ResultsError(f"{file} cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsError(f"{file} is no table of printed numbers: {error!r}") from error


def read_printed_files(plan: ReportPlan, beside: Path) -> PrintedTable | None:
    """The CSV files that a plan names; None where it names none.

    Args:
        plan: Of the experiment.
        beside: The experiment's file.

    Raises:
        ResultsError: One of them cannot be read; the message says why.
    """
    if plan.printed is None:
        return None
    accuracy: dict[tuple[str, float], dict[str, float]] = {}
    more: dict[tuple[str, float], dict[str, dict[str, float]]] = {}
    for file in plan.beside(beside, "accuracies"):
        cells = _read_cells(file, keys=("setting", "participation", "method"))
        for (setting, participation, method), numbers in cells.items():
            row, value = (setting, _number(participation, file)), numbers.pop("accuracy", None)
            if value is None or accuracy.setdefault(row, {}).setdefault(method, value) != value:
                raise ResultsError(f"{file}: {setting}, {method} has no accuracy, or another one than a file before it")
            more.setdefault(row, {}).setdefault(method, {}).update(numbers)
    times, graphs = (
        {
            (setting, method): numbers
            for file in plan.beside(beside, name)
            for (setting, method), numbers in _read_cells(file, keys=("setting", "method")).items()
        }
        for name in ("times", "graphs")
    )
    return PrintedTable(
        source=plan.printed.source,
        rounds=plan.printed.rounds,
        methods=tuple(dict.fromkeys(method for row in accuracy.values() for method in row)),
        accuracy=accuracy,
        more=more,
        times=times,
        graphs=graphs,
    )


def _read_cells(file: Path, *, keys: tuple[str, ...]) -> dict[tuple[str, ...], dict[str, float]]:
    """The numbers of each line, by the columns that say whose they are."""
    try:
        lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]
    except OSError as error:
        raise ResultsError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ResultsError(f"{file} is no text: {error}") from error
    rows = csv.DictReader(lines)
    if rows.fieldnames is None or tuple(rows.fieldnames[: len(keys)]) != keys:
        raise ResultsError(f"{file}: its first columns are {', '.join(keys)}")
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        key = tuple(row[name] or "" for name in keys)
        if None in row or None in row.values():
            raise ResultsError(f"{file}: the line for {', '.join(key)} has not as many cells as there are columns")
        if key in found:
            raise ResultsError(f"{file} has two lines for {', '.join(key)}")
        found[key] = {
            name: _number(said, file) for name, said in row.items() if name not in keys and said.strip() != "-"
        }
    return found


def _number(said: str, file: Path) -> float:
    try:
        return float(said)
    except ValueError as error:
        raise ResultsError(f"{file}: {said!r} is no number") from error
