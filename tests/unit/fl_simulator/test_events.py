"""The virtual clock and the queue of events."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_simulator.engine.clock import VirtualClock
from fl_simulator.engine.events import EventQueue
from fl_simulator.errors import SimulationError

TIMES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, math.inf]), max_size=30)


def drained(queue: EventQueue[int]) -> list[tuple[float, int]]:
    return [queue.pop() for _ in range(len(queue))]


def test_events_happen_in_order_of_time_and_then_of_insertion() -> None:
    queue = EventQueue([(2.0, "c"), (1.0, "a"), (1.0, "b")])
    queue.push(0.5, "first")
    assert queue.next_at == 0.5
    assert [queue.pop() for _ in range(4)] == [(0.5, "first"), (1.0, "a"), (1.0, "b"), (2.0, "c")]
    assert queue.next_at == math.inf
    with pytest.raises(IndexError):
        queue.pop()


def test_events_that_cannot_be_compared_may_happen_at_once() -> None:
    queue: EventQueue[object] = EventQueue([(1.0, {"a": 1}), (1.0, {"b": 2}), (1.0, None)])
    assert [queue.pop()[1] for _ in range(3)] == [{"a": 1}, {"b": 2}, None]


@given(TIMES)
def test_a_queue_sorts_stably(times: list[float]) -> None:
    pairs = [(when, number) for number, when in enumerate(times)]
    assert drained(EventQueue(pairs)) == sorted(pairs, key=lambda pair: pair[0])


@given(TIMES, TIMES, st.integers(0, 30))
def test_a_queue_made_of_entries_goes_on_like_the_first(before: list[float], after: list[float], taken: int) -> None:
    queue = EventQueue((when, number) for number, when in enumerate(before))
    for _ in range(min(taken, len(queue))):
        queue.pop()
    copy = EventQueue(queue.entries())
    for number, when in enumerate(after, start=1000):
        queue.push(when, number)
        copy.push(when, number)
    assert copy.entries() == queue.entries()
    assert drained(copy) == drained(queue)


@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0])), max_size=40))
def test_insertions_and_removals_in_any_order_agree_with_a_sorted_list(steps: list[float | None]) -> None:
    queue: EventQueue[int] = EventQueue()
    naive: list[tuple[float, int]] = []
    for number, when in enumerate(steps):
        if when is not None:
            queue.push(when, number)
            naive.append((when, number))
        elif naive:
            first = min(naive)
            naive.remove(first)
            assert queue.pop() == first
        assert len(queue) == len(naive)
        assert queue.next_at == min(naive, default=(math.inf, 0))[0]


def test_virtual_time_only_goes_on() -> None:
    clock = VirtualClock()
    clock.advance(1.5)
    clock.advance(1.5)
    assert clock.now == 1.5
    for wrong in (1.0, math.inf, math.nan):
        with pytest.raises(SimulationError, match=r"from 1\.5 s on"):
            clock.advance(wrong)
    with pytest.raises(SimulationError):
        VirtualClock(-1.0)
