"""``metrics.csv`` in the state folder: a row for each transaction, a column for each figure."""

import csv
import io
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fl_client.durable_files import replace_file
from fl_client.participant import StepReport

FILE: Final = "metrics.csv"
_FACTS: Final = ("sequence", "utc", "transaction", "server", "source", "rule", "num_examples")


class CsvTracker:
    """Appends; a figure that turns up later gets a column, which is empty in the rows before.

    Args:
        folder: The participant's.
    """

    def __init__(self, folder: Path, _author: str) -> None:
        self._path = folder / FILE
        rows = read_rows(folder)
        self._columns = list(rows[0]) if rows else list(_FACTS)
        # Whole rows only: a kill may have left the beginning of one.
        self._write(rows)

    def on_step(self, report: StepReport) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {**report.figures(), "utc": now, **{name: getattr(report, name) for name in _FACTS if name != "utc"}}
        if new := [name for name in row if name not in self._columns]:
            rows = read_rows(self._path.parent)
            self._columns += new
            self._write(rows)
        with self._path.open("a", newline="", encoding="utf-8") as file:
            file.write(self._lines([row]))

    def close(self) -> None:
        """Every row is written already."""

    def _write(self, rows: Iterable[Mapping[str, object]]) -> None:
        replace_file(self._path, self._lines([dict(zip(self._columns, self._columns, strict=True)), *rows]).encode())

    def _lines(self, rows: Iterable[Mapping[str, object]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, restval="", lineterminator="\n").writerows(rows)
        return text.getvalue()


def read_rows(folder: Path) -> list[dict[str, str]]:
    """All whole rows of a participant's ``metrics.csv``; none where there is no such file."""
    try:
        text = (folder / FILE).read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]), restval="")
    return [{name: value for name, value in row.items() if name is not None} for row in rows]
