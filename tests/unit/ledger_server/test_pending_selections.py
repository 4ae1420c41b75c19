"""Selections wait in memory for a moment, and reach the store unless they are published first."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import cast

import pytest

from fl_core.selection.evidence import Evidence
from fl_core.types import Digest, digest_of
from ledger_server.pending_selections import PendingSelections, SelectionRecord
from ledger_server.store.errors import StoreUnavailableError
from ledger_server.store.journal import Store

MINUTE_MS = 60_000


class Shelf:
    """What the book needs of a store: takes selections, or refuses while ``is_down``."""

    def __init__(self) -> None:
        self.kept: list[tuple[bytes, int]] = []
        self.calls = 0
        self.forgotten: list[tuple[int, int]] = []
        self.is_down = False
        self.came = threading.Event()

    def keep_selections(self, evidences: Sequence[bytes], *, now_ms: int) -> None:
        self.calls += 1
        if self.is_down:
            raise StoreUnavailableError("down")
        self.kept += [(each, now_ms) for each in evidences]
        self.came.set()

    def forget_selections(self, *, before_ms: int, keep: int) -> int:
        self.forgotten.append((before_ms, keep))
        return 0


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def record(number: int) -> SelectionRecord:
    encoded = b"evidence %d" % number
    return SelectionRecord(digest_of(encoded), encoded, cast("Evidence", None))


def pending_on(shelf: Shelf, clock: Clock, *, recent: int = 16) -> PendingSelections:
    return PendingSelections(cast("Store", shelf), now_ms=clock, max_unpublished=5, lifetime_ms=1000, recent=recent)


def test_a_selection_is_known_at_once_and_stored_by_the_end() -> None:
    shelf, clock = Shelf(), Clock()
    book = pending_on(shelf, clock)
    assert book.keep(record(1))
    assert book.get(record(1).id) == record(1)
    book.close()
    assert shelf.kept == [(record(1).encoded, clock.now_ms)]


def test_it_reaches_the_store_by_itself() -> None:
    shelf = Shelf()
    book = pending_on(shelf, Clock())
    book.keep(record(1))
    assert shelf.came.wait(10)
    book.close()
    assert len(shelf.kept) == 1


def test_what_is_published_before_that_never_reaches_it() -> None:
    shelf = Shelf()
    book = pending_on(shelf, Clock())
    book.keep(record(1))
    book.keep(record(2))
    book.published(record(1).id)
    book.close()
    assert [encoded for encoded, _ in shelf.kept] == [record(2).encoded]


def test_asking_again_within_a_minute_writes_nothing_and_later_makes_it_younger() -> None:
    shelf, clock = Shelf(), Clock()
    book = pending_on(shelf, clock)
    assert [book.keep(record(1)), book.keep(record(1))] == [True, False]
    book.flush()
    clock.now_ms += MINUTE_MS
    assert not book.keep(record(1))
    book.flush()
    book.close()
    assert [now_ms for _, now_ms in shelf.kept] == [1_000_000, 1_000_000 + MINUTE_MS]


def test_several_are_written_together() -> None:
    shelf = Shelf()
    book = pending_on(shelf, Clock())
    for number in range(10):
        book.keep(record(number))
    book.close()
    assert len(shelf.kept) == 10
    assert shelf.calls < 10


def test_memory_lets_go_of_what_is_stored_but_not_of_what_waits() -> None:
    shelf = Shelf()
    shelf.is_down = True
    book = pending_on(shelf, Clock(), recent=2)
    for number in range(5):
        book.keep(record(number))
    assert all(book.get(record(number).id) is not None for number in range(5))
    shelf.is_down = False
    book.flush()
    assert [book.get(record(number).id) is not None for number in range(5)] == [False, False, False, True, True]
    assert book.get(Digest("f" * 64)) is None
    book.close()


def test_a_store_that_fails_is_tried_again_and_the_end_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf()
    shelf.is_down = True
    book = pending_on(shelf, Clock())
    with caplog.at_level(logging.WARNING, logger="ledger_server.pending_selections"):
        book.keep(record(1))
        with pytest.raises(StoreUnavailableError):
            book.flush()
        book.close()
    assert any("lost" in message for message in caplog.messages)
    shelf.is_down = False
    assert book.keep(record(2)), "what still comes is written at once"
    assert [encoded for encoded, _ in shelf.kept] == [record(1).encoded, record(2).encoded]


def test_a_store_that_fails_for_long_is_the_askers_error() -> None:
    shelf = Shelf()
    shelf.is_down = True
    book = pending_on(shelf, Clock(), recent=2000)
    for number in range(1024):
        book.keep(record(number))
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            book.keep(record(1024))
    assert book.get(record(1024).id) is None, "what was refused is not held"
    shelf.is_down = False
    assert book.keep(record(1024))
    book.close()


def test_those_that_led_to_nothing_are_swept_now_and_then() -> None:
    shelf, clock = Shelf(), Clock()
    book = pending_on(shelf, clock, recent=1000)
    for number in range(300):
        book.keep(record(number))
    book.close()
    assert shelf.forgotten == [(clock.now_ms - 1000, 5)]


def test_a_book_that_nobody_used_ends_at_once() -> None:
    began_s = time.monotonic()
    book = pending_on(Shelf(), Clock())
    book.close()
    book.close()
    assert time.monotonic() - began_s < 10
