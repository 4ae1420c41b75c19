"""Many questions are answered alike, whoever answers them, and processes only where that saves time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fl_core.selection import SelectionRequest
from fl_simulator.ledgers import selector_pool
from fl_simulator.ledgers.selector_pool import SelectorPool
from tests.selections import make_request

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
QUESTIONS = [
    make_request({letter: 0.99 if place < alike else 0.2 for place, letter in enumerate(LETTERS)})
    for alike in range(3, 23)
]
"""Each has another number of tips that are alike."""


@contextmanager
def pool_of(selector: str, workers: int) -> Iterator[SelectorPool]:
    made = SelectorPool(selector, {}, workers=workers)
    try:
        yield made
    finally:
        made.close()


def chosen(selector: str, questions: list[SelectionRequest], *, workers: int) -> list[tuple[str, ...]]:
    with pool_of(selector, workers) as asked:
        return [answer.parents for answer in asked.choose(questions)]


@pytest.mark.parametrize(
    ("selector", "number"), [("beast", 7), ("least-squares", 20), ("largest-gap", 7), ("top-k", 20)]
)
def test_two_processes_choose_what_one_chooses_in_the_order_asked(selector: str, number: int) -> None:
    alone = chosen(selector, QUESTIONS[:number], workers=1)
    assert len(alone) == number
    assert chosen(selector, QUESTIONS[:number], workers=2) == alone


@pytest.mark.parametrize(("worth_sending_s", "are_shared"), [(0.0, True), (1e9, False)])
def test_processes_are_started_where_an_answer_takes_longer_than_sending(
    monkeypatch: pytest.MonkeyPatch, worth_sending_s: float, *, are_shared: bool
) -> None:
    monkeypatch.setattr(selector_pool, "_WORTH_SENDING_S", worth_sending_s)
    with pool_of("beast", 2) as asked:
        asked.choose(QUESTIONS)
        assert (asked._pool is not None) == are_shared
