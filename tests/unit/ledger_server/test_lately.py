"""An answer as of a moment ago: how long it stands, and for whom it is made."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger_server.lately import Lately


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cpu() -> Clock:
    return Clock()


@pytest.fixture
def lately(clock: Clock, cpu: Clock) -> Lately[int]:
    return Lately(cpu_s=cpu, now_s=clock)


def test_it_stands_for_a_second(lately: Lately[int], clock: Clock) -> None:
    made = iter(range(9))
    asked = []
    for clock.now_s in (0.0, 0.9, 1.0, 1.9, 2.1):
        asked.append(lately.get(None, lambda: next(made)))
    assert asked == [0, 0, 1, 1, 2]


def test_what_stands_is_given_without_making_it(lately: Lately[int], clock: Clock) -> None:
    one = object()
    assert lately.standing(one) is None
    lately.get(one, lambda: 7)
    assert (lately.standing(one), lately.standing(object())) == (7, None)
    clock.now_s = 1.0
    assert lately.standing(one) is None


def test_what_takes_long_stands_twenty_times_as_long(lately: Lately[int], clock: Clock, cpu: Clock) -> None:
    made = iter(range(9))

    def slowly() -> int:
        cpu.now_s += 0.5
        return next(made)

    asked = []
    for clock.now_s in (0.0, 9.9, 10.0):
        asked.append(lately.get(None, slowly))
    assert asked == [0, 0, 1]


def test_of_something_else_it_is_made_at_once(lately: Lately[int]) -> None:
    one, other = object(), object()
    made = iter(range(9))
    assert [lately.get(of, lambda: next(made)) for of in (one, one, other, other, one)] == [0, 0, 1, 1, 2]


def test_who_asks_while_it_is_made_has_the_former_and_at_first_waits(lately: Lately[int], clock: Clock) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> int:
        begun.set()
        assert go_on.wait(30)
        return 1

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(lately.get, None, slowly)
        assert begun.wait(30)
        second = pool.submit(lately.get, None, lambda: 2)
        go_on.set()
        assert (first.result(30), second.result(30)) == (1, 1)
        begun.clear()
        go_on.clear()
        clock.now_s = 5.0
        third = pool.submit(lately.get, None, slowly)
        assert begun.wait(30)
        assert lately.get(None, lambda: 3) == 1, "the former, without waiting"
        go_on.set()
        assert third.result(30) == 1


def test_what_cannot_be_made_is_tried_again(lately: Lately[int]) -> None:
    with pytest.raises(ZeroDivisionError):
        lately.get(None, lambda: 1 // 0)
    assert lately.get(None, lambda: 7) == 7
