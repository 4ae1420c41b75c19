"""Group commit: one thread writes for all that wait, and each is told what came of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger_server.group_commit import GroupCommit
from ledger_server.store.errors import DiskNearlyFullError, StoreUnavailableError
from tests.live import eventually

Batch = Sequence[int]


def doubles(batch: Batch) -> list[int]:
    return [2 * each for each in batch]


class Writer:
    """Doubles numbers. While it writes the first, 0, all others of ``numbers`` come, in this order."""

    def __init__(
        self,
        *numbers: int,
        doubled: Callable[[Batch], Sequence[int | BaseException]] = doubles,
        fits: Callable[[Batch, Batch], bool] = lambda _batch, _numbers: True,
    ) -> None:
        self.batches: list[list[int]] = []
        self._numbers, self._doubled = numbers, doubled
        self.commit: GroupCommit[int, int] = GroupCommit(self._write, fits=fits)

    def _write(self, batch: Batch) -> Sequence[int | BaseException]:
        self.batches.append(list(batch))
        if len(self.batches) == 1:
            eventually(lambda: len(self.commit._waiting) == len(self._numbers))
        return self._doubled(batch)

    def outcomes(self) -> list[int | BaseException]:
        """What 0 and then each number was told: an outcome, or an exception as itself."""
        with ThreadPoolExecutor(len(self._numbers) + 1) as pool:
            calls = [pool.submit(self.commit, 0)]
            eventually(lambda: bool(self.batches))
            for waiting, number in enumerate(self._numbers):
                eventually(lambda waiting=waiting: len(self.commit._waiting) == waiting)  # type: ignore[misc]
                calls.append(pool.submit(self.commit, number))
            return [call.exception(30) or call.result(30) for call in calls]


def test_who_comes_alone_is_written_alone() -> None:
    writer = Writer()
    assert [writer.commit(number) for number in (3, 4)] == [6, 8]
    assert writer.batches == [[3], [4]]


def test_those_who_come_while_one_writes_are_written_together_in_their_order() -> None:
    writer = Writer(1, 2, 3)
    assert writer.outcomes() == [0, 2, 4, 6]
    assert writer.batches == [[0], [1, 2, 3]]


def test_one_that_is_refused_is_told_so_alone() -> None:
    refusal = ValueError("3 is refused")
    writer = Writer(2, 3, 4, doubled=lambda batch: [refusal if each == 3 else 2 * each for each in batch])
    assert writer.outcomes() == [0, 4, refusal, 8]
    assert writer.batches == [[0], [2, 3, 4]]


def test_one_that_cannot_be_written_spoils_no_other() -> None:
    broken = RuntimeError("3 is broken")

    def doubled(batch: Batch) -> list[int]:
        if 3 in batch:
            raise broken
        return doubles(batch)

    writer = Writer(2, 3, 4, doubled=doubled)
    assert writer.outcomes() == [0, 4, broken, 8]
    assert writer.batches == [[0], [2, 3, 4], [2], [3], [4]]


def test_those_for_whom_the_disk_has_no_room_together_are_written_alone() -> None:
    def on_a_small_disk(batch: Batch) -> list[int]:
        if len(batch) > 1:
            raise DiskNearlyFullError("the disk is nearly full")
        return doubles(batch)

    writer = Writer(1, 2, doubled=on_a_small_disk)
    assert writer.outcomes() == [0, 2, 4]
    assert writer.batches == [[0], [1, 2], [1], [2]]


def test_what_one_thread_brings_together_is_written_in_one_go_and_each_is_told() -> None:
    refusal = ValueError("3 is refused")
    writer = Writer(doubled=lambda batch: [refusal if each == 3 else 2 * each for each in batch])
    assert writer.commit.together([2, 3, 4]) == [4, refusal, 8]
    assert writer.batches == [[2, 3, 4]]


def test_where_nothing_can_be_written_all_are_told_so_at_once() -> None:
    full = StoreUnavailableError("the disk is full")

    def doubled(batch: Batch) -> list[int]:
        if batch[0]:
            raise full
        return [0]

    writer = Writer(2, 3, doubled=doubled)
    assert writer.outcomes() == [0, full, full]
    assert writer.batches == [[0], [2, 3]]


def test_what_does_not_fit_waits_for_the_next_turn_with_all_behind_it() -> None:
    writer = Writer(3, 4, 5, 1, fits=lambda batch, numbers: sum(batch) + sum(numbers) <= 8)
    assert writer.outcomes() == [0, 6, 8, 10, 2]
    assert writer.batches == [[0], [3, 4], [5, 1]]


def test_what_ends_a_thread_does_not_leave_the_others_waiting() -> None:
    interrupt = KeyboardInterrupt()

    def doubled(batch: Batch) -> list[int]:
        if batch[0] == 0:
            raise interrupt
        return doubles(batch)

    assert Writer(1, 2, doubled=doubled).outcomes() == [interrupt, 2, 4]
    with pytest.raises(KeyboardInterrupt):
        Writer(doubled=doubled).commit(0)
