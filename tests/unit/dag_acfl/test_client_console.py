"""What a person reads while a client runs."""

import io
import logging
import sys
from typing import Any

import pytest
import typer

from dag_acfl.__main__ import main
from dag_acfl.commands.options import duration_s, retries_shown
from dag_acfl.commands.taking_part import _line
from fl_client import StepReport
from fl_core.errors import ParameterError
from fl_core.types import TxId


def test_a_line_goes_into_a_file_whose_encoding_has_no_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, encoding="cp1252", newline=""))
    monkeypatch.setattr("dag_acfl.__main__._commands", lambda: lambda *_, **__: typer.echo("accuracy 0.812 → 0.840"))
    assert main([]) == 0
    assert file.getvalue() == b"accuracy 0.812 ? 0.840\n"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"source": "parents", "num_chosen": 3, "num_candidates": 5}, "average with 3 of 5 others"),
        ({"source": "own", "num_candidates": 0}, "its own model, for nobody else has a new one"),
        (
            {"source": "own", "num_candidates": 5, "rule": "robust: resembles nobody"},
            "its own model, for none of 5 others is like it",
        ),
        (
            {"source": "own", "num_candidates": 1, "rule": "above-median"},
            "its own model, for none of 1 other was taken by above-median",
        ),
    ],
)
def test_a_line_says_in_plain_words_whose_models_were_averaged(fields: dict[str, Any], words: str) -> None:
    report = StepReport(
        transaction=TxId("1a2b3c4d5e6f" + "0" * 52),
        sequence=3,
        created=True,
        server=None,
        resumed=False,
        parents=(),
        num_examples=10,
        metrics_before={"accuracy": 0.812},
        metrics_after={"accuracy": 0.84},
        seconds={"train": 1.0, "publish": 0.2},
        **fields,
    )
    assert _line(report) == f"#3 1a2b3c4d5e6f  {words}  accuracy 0.812 → 0.840  1.2 s"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), (" 1d ", 86400), ("0", 0)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "-5", "10 minutes", "1w", "inf", "1e3"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ParameterError, match="write it as 90s, 10m, 2h or 1d"):
        duration_s(text)


class Terminal(io.StringIO):
    """A terminal's line: what stands on it after all that was written."""

    def isatty(self) -> bool:
        return True

    def rows(self) -> list[str]:
        rows = []
        for line in self.getvalue().split("\n"):
            row = ""
            for piece in line.split("\r"):
                row = piece + row[len(piece) :]
            rows.append(row.rstrip())
        return rows


def test_on_a_terminal_one_line_shows_what_is_done_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with retries_shown() as show:
        show("training: epoch 1 of 1, batch 1")
        assert terminal.rows() == ["training: epoch 1 of 1, batch 1"]
        show("training: epoch 1 of 1, batch 2")  # too soon for anybody to read
        assert terminal.rows() == ["training: epoch 1 of 1, batch 1"]
        show("publishing")
        assert terminal.rows() == ["publishing"]
        logging.getLogger("fl_client.retry").info("no server; trying again")
        assert terminal.rows() == ["no server; trying again", ""]
        show("publishing")
    assert terminal.rows() == ["no server; trying again", ""]


def test_elsewhere_only_events_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with retries_shown() as show:
        show("training: epoch 1 of 1")
        logging.getLogger("fl_client.retry").info("no server; trying again")
    assert file.getvalue() == "no server; trying again\n"
