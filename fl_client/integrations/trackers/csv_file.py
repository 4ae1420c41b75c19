"""``metrics.csv`` in the state folder: a row for each transaction, a column for each figure."""

import csv
import io
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fl_client.durable_files import replace_file
from fl_client.step_report import StepReport

FILE: Final = "metrics.csv"
_FACTS: Final = ("sequence", "utc", "transaction", "server", "source", "rule", "num_examples")

logger: logging.Logger = logging.getLogger(__name__)


class CsvTracker:
    """Appends; a figure that turns up later gets a column, which is empty in the rows before.

    Where the file cannot be written, such as while Excel has it open, its rows wait for the next step.
    """

    def __init__(self, folder: Path, _author: str) -> None:
        self._path = folder / FILE
        self._columns: list[str] = []  # none: the file is to be read and written anew
        self._waiting: list[dict[str, object]] = []
        self._attempt()

    def on_step(self, report: StepReport) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {**report.figures(), "utc": now, **{name: getattr(report, name) for name in _FACTS if name != "utc"}}
        self._waiting.append(row)
        self._attempt()

    def close(self) -> None:
        """Write what still waits."""
        if self._waiting:
            self._attempt()

    def _attempt(self) -> None:
        try:
            self._write()
        except OSError as error:
            self._columns = []
            logger.warning("%s cannot be written (%s): tried again after the next step", self._path, error.strerror)
        else:
            self._waiting.clear()

    def _write(self) -> None:
        names = dict.fromkeys(name for row in self._waiting for name in row)
        if self._columns and names.keys() <= set(self._columns):
            with self._path.open("a", newline="", encoding="utf-8") as file:
                file.write(self._lines(self._waiting))
            return
        # Whole rows only: a kill may have left the beginning of one.
        rows = read_rows(self._path.parent)
        self._columns = list(dict.fromkeys([*(self._columns or (rows[0] if rows else _FACTS)), *names]))
        header = dict(zip(self._columns, self._columns, strict=True))
        replace_file(self._path, self._lines([header, *rows, *self._waiting]).encode())

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
