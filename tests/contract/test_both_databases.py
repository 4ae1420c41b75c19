"""Integration tests run on both kinds of database, but for those that are about a SQLite file."""

import ast
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[1] / "integration"
ABOUT_SQLITE = {
    "test_backup.py": "the command copies SQLite's file",
    "test_journal_epoch.py::test_peers_tell_a_restore_from_a_rollback_and_miss_nothing_either_way": "SQLite's file is put back",
    "test_s3.py::site": "a data folder, which is where the backup of SQLite's file is made from",
    "test_sources.py::test_a_data_folder_names_the_ledger_that_is_in_it": "a data folder holds a SQLite file",
}
"""What makes a SQLite database of its own, and why."""


def bound_to_sqlite(source: str) -> set[str]:
    """Top-level functions that name a SQLite URL, take only SQLite's fixture, or leave servers without databases."""
    found = set()
    for function in ast.parse(source).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            names_a_file = isinstance(node, ast.Constant) and str(node.value).startswith("sqlite:")
            takes_a_file = isinstance(node, ast.arg) and node.arg == "sqlite_url"
            leaves_it = isinstance(node, ast.Call) and ast.unparse(node.func) == "network" and not has_urls(node)
            if names_a_file or takes_a_file or leaves_it:
                found.add(function.name)
    return found


def has_urls(call: ast.Call) -> bool:
    return any(keyword.arg == "urls" for keyword in call.keywords)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(database_url): serving(database_url)", set()),
        ("def f(p): serving(f'sqlite:///{p}')", {"f"}),
        ("def f(sqlite_url): pass", {"f"}),
        ("def f(p):\n with network(p, 2) as n: pass", {"f"}),
        ("def f(p, urls):\n with network(p, 2, urls=urls(2)) as n: pass", set()),
    ],
)
def test_a_test_that_is_on_sqlite_alone_is_noticed(source: str, found: set[str]) -> None:
    assert bound_to_sqlite(source) == found


def test_only_tests_about_a_sqlite_file_make_one() -> None:
    made = {
        f"{file.name}::{function}"
        for file in sorted(INTEGRATION.glob("test_*.py"))
        for function in bound_to_sqlite(file.read_text("utf-8"))
    }
    reasons = {each: ABOUT_SQLITE.get(each) or ABOUT_SQLITE.get(each.partition("::")[0]) for each in made}
    assert all(reasons.values()), "ask for database_url or database_urls, or say here why not"
    assert {key for key in ABOUT_SQLITE if not any(each.startswith(key) for each in made)} == set(), "out of date"
