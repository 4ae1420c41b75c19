"""Work from both ends: what comes out is what one thread would have made, in its order."""

import threading
from collections.abc import Iterator

import pytest

from fl_simulator.ledgers.both_ends import BothEnds

LONGEST_WAIT_S = 30.0


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[BothEnds]:
    threads = BothEnds(request.param)
    yield threads
    threads.close()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 90])
def test_results_come_in_the_order_of_the_items(threads: BothEnds, count: int) -> None:
    assert list(threads.map(lambda item: item * item, range(count))) == [item * item for item in range(count)]


def test_the_first_and_the_last_item_are_worked_on_at_once(threads: BothEnds) -> None:
    both_are_taken = threading.Barrier(2)

    def work(item: int) -> str:
        if item != 1:
            both_are_taken.wait(LONGEST_WAIT_S)
        return threading.current_thread().name

    first, _, last = threads.map(work, range(3))
    assert first != last


def test_what_fails_fails_in_its_turn(threads: BothEnds) -> None:
    def work(item: int) -> int:
        if item == 7:
            raise ValueError("seven")
        return item

    results = threads.map(work, range(10))
    assert [next(results) for _ in range(7)] == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(ValueError, match="seven"):
        next(results)


def test_who_stops_asking_leaves_the_threads_free_for_the_next(threads: BothEnds) -> None:
    for result in threads.map(abs, range(-50, 50)):
        assert result == 50
        break
    assert list(threads.map(abs, [-1, 2, -3])) == [1, 2, 3]
