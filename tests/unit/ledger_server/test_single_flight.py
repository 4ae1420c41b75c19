import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger_server.aggregates import SingleFlight


def together(calls: int, ask: "SingleFlight[str, object]", compute: object) -> list[object]:
    """What each of several threads got, an exception as itself; all ask while the first one still computes."""

    def one(_: int) -> object:
        try:
            return ask("key", compute)  # type: ignore[arg-type]
        except RuntimeError as error:
            return error

    with ThreadPoolExecutor(calls) as pool:
        return list(pool.map(one, range(calls)))


def waits_for_all(ask: "SingleFlight[str, object]", outcome: object, counted: list[int]) -> object:
    """A computation that ends only when the other 19 wait for it."""
    waiting = threading.Barrier(20, timeout=30)
    original = ask._running

    class Watched(dict):  # type: ignore[type-arg]
        def get(self, key: object, default: object = None) -> object:
            found = super().get(key, default)
            if found is not None:
                threading.Thread(target=waiting.wait, daemon=True).start()
            return found

    ask._running = Watched(original)

    def compute() -> object:
        counted.append(1)
        waiting.wait()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return compute


def test_twenty_threads_share_one_computation() -> None:
    ask: SingleFlight[str, object] = SingleFlight()
    counted: list[int] = []
    result = object()
    got = together(20, ask, waits_for_all(ask, result, counted))
    assert len(counted) == 1
    assert all(each is result for each in got)


def test_twenty_threads_share_one_error_and_the_next_question_is_computed() -> None:
    ask: SingleFlight[str, object] = SingleFlight()
    counted: list[int] = []
    error = RuntimeError("no")
    got = together(20, ask, waits_for_all(ask, error, counted))
    assert len(counted) == 1
    assert all(each is error for each in got)
    assert not ask._running, "nothing is kept of it"
    assert ask("key", lambda: "well") == "well"


def test_different_keys_are_computed_at_the_same_time() -> None:
    ask: SingleFlight[int, int] = SingleFlight()
    meet = threading.Barrier(4, timeout=30)  # passed only when four computations run at once

    def compute() -> int:
        return meet.wait()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda key: ask(key, compute), range(4))) == [0, 1, 2, 3]


def test_what_ends_a_thread_does_not_leave_the_others_waiting() -> None:
    ask: SingleFlight[str, int] = SingleFlight()
    begun = threading.Event()

    def interrupted() -> int:
        begun.set()
        time.sleep(0.05)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, "key", interrupted)
        assert begun.wait(30)
        second = pool.submit(ask, "key", lambda: 1)
        with pytest.raises(KeyboardInterrupt):
            first.result(30)
        outcome = second.exception(30)
        assert outcome is None or isinstance(outcome, KeyboardInterrupt)
    assert ask("key", lambda: 2) == 2
