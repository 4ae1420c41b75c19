"""Every error has its HTTP answer, and every answer its error."""

import importlib
import logging
import pkgutil

import pytest

import fl_core
import ledger_server
from fl_core.errors import DagAcflError, ModelUnknownError
from fl_core.types import Digest
from ledger_server.api.documentation import problems
from ledger_server.http.problem_types import ERROR_TYPES, PROBLEM_TYPES
from ledger_server.http.problems import problem_of
from ledger_server.model_store import ModelCorruptError
from ledger_server.store.errors import StoreUnavailableError


def error_classes() -> set[type[DagAcflError]]:
    """All of them, in every module of the core and the server but ``admin``, which no request reaches."""
    for package in (fl_core, ledger_server):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "_migrations" not in module.name:
                importlib.import_module(module.name)
    found, open_ends = set[type[DagAcflError]](), [DagAcflError]
    while open_ends:
        each = open_ends.pop()
        open_ends += each.__subclasses__()
        package, *rest = each.__module__.split(".")
        if package in ("fl_core", "ledger_server") and rest[:1] != ["admin"]:
            found.add(each)
    return found


def test_every_code_has_a_row_and_every_row_a_class() -> None:
    assert {each.code for each in error_classes()} == ERROR_TYPES.keys()


def test_two_classes_do_not_share_a_code_unless_one_is_the_others_base() -> None:
    by_code: dict[str, list[type[DagAcflError]]] = {}
    for each in error_classes():
        by_code.setdefault(each.code, []).append(each)
    for code, classes in by_code.items():
        own = [each for each in classes if "code" in vars(each)]
        assert len(own) == 1, code


def test_every_status_of_the_catalogue_is_described_in_openapi() -> None:
    statuses = {kind.status for kind in PROBLEM_TYPES.values()}
    described = problems(*statuses)
    assert statuses <= described.keys()
    for status, answer in described.items():
        assert answer["description"], status
        assert list(answer["content"]) == ["application/problem+json"]


def test_titles_are_one_line_for_people() -> None:
    titles = [kind.title for kind in PROBLEM_TYPES.values()]
    assert len(set(titles)) == len(titles)
    assert all(title[0].isupper() and title[-1] != "." and "\n" not in title for title in titles)


@pytest.mark.parametrize(
    ("error", "status"),
    [(StoreUnavailableError("the disk is full"), 503), (ModelCorruptError(Digest("a" * 64)), 503)],
)
def test_what_is_no_clients_fault_is_told_and_logged(
    error: DagAcflError, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        problem = problem_of(error)
    assert (problem.status, problem.detail) == (status, str(error))
    assert [(record.__dict__["error"], record.__dict__["reason"]) for record in caplog.records] == [
        (error.code, str(error))
    ]


def test_what_is_a_clients_fault_is_not_logged_as_ours(caplog: pytest.LogCaptureFixture) -> None:
    assert problem_of(ModelUnknownError("no model")).status == 404
    assert not caplog.records
