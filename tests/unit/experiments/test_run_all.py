"""Which experiments a command plays: names, folders, and what is left out when nothing is named."""

import importlib
from pathlib import Path

import pytest

from experiments.reporting import RESULTS
from experiments.run_all import (
    BY_NAME,
    FOLDERS,
    PARTS,
    Part,
    chosen,
    file_of,
    listing,
)

EXPERIMENTS = RESULTS.parent


def names(parts: list[Part]) -> list[str]:
    return [part.name for part in parts]


def test_every_experiments_file_is_played_by_some_name() -> None:
    files = {str(file.relative_to(EXPERIMENTS).with_suffix("")) for file in EXPERIMENTS.rglob("*.toml")}
    assert files == {part.name for part in PARTS if (EXPERIMENTS.parent / file_of(part)).exists()}


def test_what_has_no_file_has_a_program() -> None:
    for part in PARTS:
        module = EXPERIMENTS.parent / (part.program.replace(".", "/") + ".py")
        assert module.exists() if part.program else (EXPERIMENTS.parent / file_of(part)).exists(), part


def test_names_are_said_once() -> None:
    assert len(BY_NAME) == len(PARTS)
    assert not BY_NAME.keys() & set(FOLDERS)


def test_without_names_no_night_of_work_begins() -> None:
    parts = chosen([], only_reports=False)
    assert "digits" in names(parts)
    assert "dag-acfl/table_2_lr" not in names(parts)
    assert all(part.minutes is not None for part in parts)
    assert sum(part.minutes or 0 for part in parts) < 4 * 60


def test_without_names_all_reports_are_written() -> None:
    assert chosen([], only_reports=True) == list(PARTS)


def test_a_folder_is_all_in_it_but_what_is_at_full_size() -> None:
    parts = names(chosen(["decdiff"], only_reports=False))
    tables = ["table_2_mnist_small", "table_2_fashion_small", "learning_rate", "unit_pixels"]
    others = ["disruption", "virtual_teacher", "fashion_seconds"]
    assert parts == [f"decdiff/{name}" for name in tables + others]


def test_full_size_is_played_when_it_is_named() -> None:
    assert names(chosen(["table_2_mnist"], only_reports=False)) == ["decdiff/table_2_mnist"]


def test_what_is_named_twice_is_played_once() -> None:
    assert names(chosen(["iid", "mnist_100", "iid"], only_reports=False)) == ["d_cliques/mnist_100", "d_cliques/iid"]


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(KeyError, match="no_such"):
        chosen(["no_such"], only_reports=False)


def test_the_list_says_how_long_each_takes() -> None:
    text = listing()
    lines = {words[0]: words[1:] for words in map(str.split, text.splitlines()) if words}
    for part in PARTS:
        assert lines[part.short] == ([] if part.minutes is None else [str(part.minutes), "min"])


def test_each_papers_experiments_are_in_its_report() -> None:
    played: dict[str, set[str]] = {}
    for part in PARTS:
        paper = Path(part.name).parts[0]
        if (EXPERIMENTS / paper / "report.py").exists() and not part.program:
            played.setdefault(paper, set()).add(part.short)
    assert played == {
        paper: set(importlib.import_module(f"experiments.{paper}.report").EXPERIMENTS) for paper in played
    }
