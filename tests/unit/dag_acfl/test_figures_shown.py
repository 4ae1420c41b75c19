"""A client's own figures as a person sees them, in terminals of any width."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from dag_acfl.commands.options import figure
from dag_acfl.commands.taking_part import _line
from dag_acfl.summary import print_summary, summarise
from fl_client.step_report import StepReport
from fl_core.types import TxId
from tests.sources import sound_ledger

RANKING = StepReport(
    transaction=TxId("1a2b3c4d5e6f" + "0" * 52),
    sequence=3,
    created=True,
    server="http://127.0.0.1:8900",
    resumed=False,
    parents=(TxId("a" * 64), TxId("b" * 64)),
    rule="robust: no change",
    source="parents",
    num_candidates=3,
    num_chosen=1,
    num_examples=150,
    metrics_before={"ndcg.at-10": 0.3125, "hits": 12345.0, "num_examples": 60.0},
    metrics_after={"ndcg.at-10": 0.4375, "hits": 23456.0, "num_examples": 60.0},
    train_metrics={"gpu_seconds": 1.5},
    seconds={"train": 1.0, "publish": 0.25},
)


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.75321, "0.753"), (0.0, "0.000"), (-3.25, "-3.250"), (0.00012345, "0.000123"), (23456.0, "2.35e+04")],
)
def test_a_figure_reads_as_people_write_it(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_a_log_has_one_line_for_a_step_with_every_figure() -> None:
    assert "  ndcg.at-10 0.312 → 0.438  hits 1.23e+04 → 2.35e+04  gpu_seconds 1.500  1.2 s" in _line(RANKING)
    assert "num_examples" not in _line(RANKING)
    assert "\n" not in _line(RANKING)


@pytest.mark.parametrize("columns", [50, 80])
def test_a_terminal_breaks_the_line_between_figures_and_loses_none(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _line(RANKING)
    terminal(monkeypatch, columns)
    lines = _line(RANKING).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= columns
    assert any("gpu_seconds 1.500" in line for line in lines)
    assert " ".join(lines).split() == whole.split()


def test_a_figure_of_one_side_only_is_shown_as_it_is() -> None:
    assert "  hits 7.000  gpu" in _line(replace(RANKING, metrics_before={}, metrics_after={"hits": 7.0}))


@pytest.mark.parametrize("columns", [50, 80])
def test_inspect_shows_authors_and_whole_figures_in_a_narrow_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary: dict[str, Any] = summarise(sound_ledger().source())
    metrics = {f"metric_{number}": number + 0.25 for number in range(32)}
    summary["authors"][0]["metrics"] = metrics
    monkeypatch.setenv("COLUMNS", str(columns))
    print_summary(summary)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    for each in summary["authors"]:
        assert any(f" {each['author'][:8]}" in line for line in lines)
    start = next(line for line in lines if line.split()[:2] == ["author", "cluster"]).index("metric")
    told = "".join(line[start:].strip() for line in lines[lines.index(next(li for li in lines if "─" in li)) :])
    for name, value in metrics.items():
        assert f"{name}={value:.3f}" in told


def test_inspect_tells_who_shared_with_whom(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = sound_ledger()
    summary = summarise(ledger.source())
    ann, bob, cat = (ledger.tiny.transactions[each].header.author for each in (ledger.ann, ledger.bob, ledger.cat))
    shared = {each["author"]: (each["transactions"], each["shared"], each["with"]) for each in summary["authors"]}
    assert shared == {ann: (2, 1, {cat: 1}), bob: (2, 1, {ann: 1, cat: 1}), cat: (1, 1, {ann: 1, bob: 1})}
    print_summary(summary)
    lines = capsys.readouterr().out.splitlines()
    assert any("3 of 5 updates began with an average with others' models" in line for line in lines)
    row = {author: str(number) for number, author in enumerate(sorted(shared), start=1)}
    (said,) = [line.split() for line in lines if f"{ann[:9]}…" in line]
    assert [said[0], *said[3:7]] == [row[ann], "1", "of", "2", row[cat]]


def test_what_a_founder_wrote_cannot_draw_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    summary: dict[str, Any] = summarise(sound_ledger().source())
    summary["genesis"]["name"] = "[/] \x1b[31mred"
    print_summary(summary)
    said = capsys.readouterr().out
    assert "[/]" in said
    assert "\x1b[31m" not in said
