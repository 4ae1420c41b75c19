"""Selections are in the store before anybody is told, several together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pytest

from fl_core.selection.evidence import Evidence
from fl_core.types import Digest, TxId, digest_of
from ledger_server.pending_selections import PendingSelections, SelectionRecord
from ledger_server.store.errors import StoreUnavailableError
from ledger_server.store.journal import Store

MINUTE_MS = 60_000
AVERAGE, PARENTS = Digest("a" * 64), (TxId("1" * 64), TxId("2" * 64))


class Shelf:
    """What the book needs of a store: takes selections, or refuses while ``is_down``."""

    def __init__(self) -> None:
        self.kept: list[tuple[bytes, int]] = []
        self.averaged: list[Mapping[Digest, Sequence[TxId]]] = []
        self.forgotten: list[tuple[int, int]] = []
        self.is_down = False

    def keep_selections(
        self, evidences: Sequence[bytes], *, averaged: Mapping[Digest, Sequence[TxId]], now_ms: int
    ) -> None:
        if self.is_down:
            raise StoreUnavailableError("down")
        self.kept += [(each, now_ms) for each in evidences]
        self.averaged.append(averaged)

    def forget_selections(self, *, before_ms: int, keep: int) -> int:
        self.forgotten.append((before_ms, keep))
        return 0


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass(frozen=True)
class Said:
    aggregate: Digest = AVERAGE


def record(number: int) -> SelectionRecord:
    encoded = b"evidence %d" % number
    return SelectionRecord(digest_of(encoded), encoded, cast("Evidence", Said()))


def pending_on(shelf: Shelf, clock: Clock, *, recent: int = 16) -> PendingSelections:
    return PendingSelections(cast("Store", shelf), now_ms=clock, max_unpublished=5, lifetime_ms=1000, recent=recent)


def test_a_selection_is_stored_with_what_its_average_is_of_before_it_is_known() -> None:
    shelf, clock = Shelf(), Clock()
    book = pending_on(shelf, clock)
    assert book.keep(record(1), PARENTS)
    assert book.get(record(1).id) == record(1)
    assert shelf.kept == [(record(1).encoded, clock.now_ms)]
    book.keep(record(2), PARENTS)
    assert shelf.averaged == [{AVERAGE: PARENTS}, {}], "an average is told once a minute"
    clock.now_ms += MINUTE_MS
    book.keep_average(AVERAGE, PARENTS)
    assert shelf.averaged[2:] == [{AVERAGE: PARENTS}]


def test_asking_again_within_a_minute_writes_nothing_and_later_makes_it_younger() -> None:
    shelf, clock = Shelf(), Clock()
    book = pending_on(shelf, clock)
    assert [book.keep(record(1)), book.keep(record(1))] == [True, False]
    clock.now_ms += MINUTE_MS
    assert not book.keep(record(1))
    assert [now_ms for _, now_ms in shelf.kept] == [1_000_000, 1_000_000 + MINUTE_MS]


def test_memory_lets_go_of_the_oldest() -> None:
    book = pending_on(Shelf(), Clock(), recent=2)
    for number in range(5):
        book.keep(record(number))
    assert [book.get(record(number).id) is not None for number in range(5)] == [False, False, False, True, True]


def test_a_store_that_fails_is_the_askers_error_and_the_selection_is_not_held() -> None:
    shelf = Shelf()
    shelf.is_down = True
    book = pending_on(shelf, Clock())
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            book.keep(record(1), PARENTS)
    assert book.get(record(1).id) is None
    shelf.is_down = False
    assert book.keep(record(1), PARENTS)
    assert shelf.averaged == [{AVERAGE: PARENTS}]


def test_those_that_led_to_nothing_are_swept_now_and_then() -> None:
    shelf, clock = Shelf(), Clock()
    book = pending_on(shelf, clock, recent=1000)
    for number in range(300):
        book.keep(record(number))
    assert shelf.forgotten == [(clock.now_ms - 1000, 5)]
