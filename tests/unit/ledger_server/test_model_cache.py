import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.types import Digest
from ledger_server.model_cache import ComputeOnce, ModelCache
from ledger_server.selecting import Remembered

A, B, C = Digest("a" * 64), Digest("b" * 64), Digest("c" * 64)


def test_the_least_recently_used_model_goes_first() -> None:
    cache = ModelCache(8)
    cache.put(A, b"1234")
    cache.put(B, b"1234")
    assert cache.get(A) == b"1234"
    cache.put(C, b"1234")
    assert (cache.get(A), cache.get(B), cache.get(C)) == (b"1234", None, b"1234")
    assert cache.held_bytes == 8


def test_a_large_model_pushes_out_as_many_as_it_needs() -> None:
    cache = ModelCache(8)
    for digest in (A, B):
        cache.put(digest, b"1234")
    cache.put(C, b"12345678")
    assert (cache.get(A), cache.get(B), cache.held_bytes) == (None, None, 8)


def test_a_model_larger_than_the_cache_is_not_kept_and_pushes_nothing_out() -> None:
    cache = ModelCache(4)
    cache.put(A, b"1234")
    cache.put(B, b"12345")
    assert (cache.get(A), cache.get(B)) == (b"1234", None)
    empty = ModelCache(0)
    empty.put(A, b"1")
    assert (empty.get(A), empty.held_bytes) == (None, 0)


def test_putting_a_model_again_counts_it_once_and_as_used() -> None:
    cache = ModelCache(8)
    cache.put(A, b"1234")
    cache.put(B, b"1234")
    cache.put(A, b"1234")
    assert cache.held_bytes == 8
    cache.put(C, b"1")
    assert (cache.get(A), cache.get(B)) == (b"1234", None)


CALLS = st.tuples(st.integers(0, 5), st.sampled_from(["get", "put", "drop"]))


@given(st.integers(0, 12), st.lists(CALLS, max_size=60))
def test_the_cache_is_a_list_in_order_of_use(capacity: int, calls: list[tuple[int, str]]) -> None:
    """The twin: a list of keys, newest last; model k has k + 1 bytes."""
    cache, twin = ModelCache(capacity), list[int]()
    for key, call in calls:
        digest = Digest(f"{key:064x}")
        known = key in twin
        match call:
            case "get":
                assert (cache.get(digest) is not None) == known
            case "put":
                cache.put(digest, bytes(key + 1))
            case "drop":
                cache.drop(digest)
                twin = [other for other in twin if other != key]
        if call != "drop" and (known or (call == "put" and key < capacity)):
            twin = [other for other in twin if other != key] + [key]
        while sum(other + 1 for other in twin) > capacity:
            twin.pop(0)
        assert cache.held_bytes == sum(other + 1 for other in twin) <= capacity


def test_a_model_is_had_since_a_time_only_if_it_was_put_or_confirmed_since() -> None:
    cache = ModelCache(4)
    cache.put(A, b"1234", at_s=10.0)
    assert [cache.get(A, since_s=since_s) is None for since_s in (9.0, 10.0, 11.0)] == [False, False, True]
    cache.confirm(A, at_s=12.0)
    assert cache.get(A, since_s=11.0) == b"1234"
    cache.put(B, b"1", at_s=20.0)
    cache.confirm(A, at_s=21.0)
    assert cache.get(A) is None, "pushed out, and not brought back"


def test_remembered_forgets_what_was_used_longest_ago() -> None:
    remembered: Remembered[str, int] = Remembered(2)
    remembered.put("a", 1)
    remembered.put("b", 2)
    assert remembered.get("a") == 1
    remembered.put("c", 3)
    assert [remembered.get(key) for key in "abc"] == [1, None, 3]


def together(calls: int, ask: "ComputeOnce[str, object]", compute: object) -> list[object]:
    """What each of several threads got, an exception as itself; all ask while the first one still computes."""

    def one(_: int) -> object:
        try:
            return ask("key", compute)  # type: ignore[arg-type]
        except RuntimeError as error:
            return error

    with ThreadPoolExecutor(calls) as pool:
        return list(pool.map(one, range(calls)))


def waits_for_all(ask: "ComputeOnce[str, object]", outcome: object, counted: list[int]) -> object:
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
    ask: ComputeOnce[str, object] = ComputeOnce()
    counted: list[int] = []
    result = object()
    got = together(20, ask, waits_for_all(ask, result, counted))
    assert len(counted) == 1
    assert all(each is result for each in got)


def test_twenty_threads_share_one_error_and_the_next_question_is_computed() -> None:
    ask: ComputeOnce[str, object] = ComputeOnce()
    counted: list[int] = []
    error = RuntimeError("no")
    got = together(20, ask, waits_for_all(ask, error, counted))
    assert len(counted) == 1
    assert all(each is error for each in got)
    assert not ask._running, "nothing is kept of it"
    assert ask("key", lambda: "well") == "well"


def test_different_keys_are_computed_at_the_same_time() -> None:
    ask: ComputeOnce[int, int] = ComputeOnce()
    meet = threading.Barrier(4, timeout=30)  # passed only when four computations run at once

    def compute() -> int:
        return meet.wait()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda key: ask(key, compute), range(4))) == [0, 1, 2, 3]


def test_what_ends_a_thread_does_not_leave_the_others_waiting() -> None:
    ask: ComputeOnce[str, int] = ComputeOnce()
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
