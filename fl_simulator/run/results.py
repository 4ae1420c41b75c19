"""The runs of a results folder, as the console shows them: what they are, and their evaluated rounds as curves."""

import math
import shlex
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from fl_core.wire import v1
from fl_simulator.errors import ResultsError
from fl_simulator.run.folder import LABEL, LEDGER, ROUNDS, SUMMARY, is_finished, read_label, read_rounds, read_summary
from fl_simulator.run.record import ROUND_COLUMNS, RoundRecord, RunLabel

MOST_RUNS: Final = 200
"""So many are shown at most."""
_NO_CURVES: Final = frozenset({"up_bytes", "down_bytes", "between_servers_bytes", "peak_memory_bytes"})


def runs_in(folder: Path) -> list[Path]:
    """The folders of the runs of an experiment, in order of their names; of a single run, those beside it.

    Args:
        folder: An experiment's results, or one of its runs.

    Raises:
        ResultsError: There is no run; the message says where there are some.
    """
    whole = folder.resolve().parent if (folder / LABEL).is_file() else folder
    found = sorted(each.parent for each in whole.glob(f"*/{LABEL}"))
    if not found:
        deeper = sorted({str(each.parent.parent) for each in folder.rglob(LABEL)})
        where = f"; there are some in {', '.join(deeper[:3])}" if deeper else "; write some with: dag-acfl simulate"
        raise ResultsError(f"{folder}: no run of a simulation is in it{where}")
    return found


def printable(name: str) -> str:
    """A file's name as text: bytes of it that are not UTF-8, which no JSON can say, stand as replacement characters."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def shown_runs(folders: Sequence[Path]) -> list[v1.RunViewOut]:
    """Each run with its rounds so far, the first ``MOST_RUNS``; those that are not begun are left out."""
    return [_shown(each) for each in folders[:MOST_RUNS]]


def _shown(folder: Path) -> v1.RunViewOut:
    label, costs = read_label(folder), read_summary(folder).get("costs") if is_finished(folder) else None
    try:
        columns = _columns(read_rounds(folder))
    except OverflowError as error:
        raise ResultsError(f"{folder / ROUNDS} is damaged: {error}") from error
    try:
        shown = _run(folder, label, columns, costs)
        shown.model_dump_json()  # lone surrogates are noticed here alone
    except ValueError as error:  # pydantic's are
        fault = " ".join(str(error).split())[:200]
        raise ResultsError(f"{folder}: {LABEL} or {SUMMARY} is damaged: {fault}") from error
    return shown


def _run(folder: Path, label: RunLabel, columns: dict[str, list[float | None]], costs: Any) -> v1.RunViewOut:
    return v1.RunViewOut(
        folder=printable(folder.name),
        path=shlex.quote(printable(str(folder.resolve()))),
        setting=label.setting,
        participation=label.participation,
        method=label.method,
        seed=label.seed,
        rounds=label.rounds,
        is_finished=is_finished(folder),
        has_ledger=(folder / LEDGER).is_file(),
        columns=columns,
        costs=costs,
    )


def _columns(records: Sequence[RoundRecord]) -> dict[str, list[float | None]]:
    """Figures of the evaluated rounds; numbers that are not finite are None."""
    sent = accumulate(each.up_bytes + each.down_bytes + each.between_servers_bytes for each in records)
    evaluated = [(each, total) for each, total in zip(records, sent, strict=True) if each.accuracy is not None]
    columns = {"bytes": _finite(total for _, total in evaluated)}
    for name in ROUND_COLUMNS:
        column = _finite(getattr(each, name) for each, _ in evaluated)
        if name not in _NO_CURVES and any(value is not None for value in column):
            columns[name] = column
    return columns


def _finite(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None or not math.isfinite(value) else float(value) for value in values]
