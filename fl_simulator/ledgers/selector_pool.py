"""Many selections at once: BEAST takes milliseconds of one core for each, so processes share them."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter
from typing import Final

from fl_core.selection import SELECTORS, Selection, SelectionRequest, TipSelector
from fl_core.types import JsonScalar
from fl_simulator.run.processes import end_with_owner, without_interrupts

_WORTH_A_POOL: Final = 8
"""Fewer questions are answered here: starting processes costs as much."""
_WORTH_SENDING_S: Final = 1e-3
"""What is answered sooner is answered here: BEAST takes longer, other selectors answer before another process has been
told of a thousand candidates."""


class SelectorPool:
    """One selector, in this process or in several.

    Args:
        name: Of the selector.
        params: Its parameters.
        workers: Processes; 1 answers in this one.
    """

    def __init__(self, name: str, params: Mapping[str, JsonScalar], *, workers: int = 1) -> None:
        self._named = name, dict(params)
        self._selector = SELECTORS.build(name, params)
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def choose(self, requests: Sequence[SelectionRequest]) -> list[Selection]:
        """The answers, in order; the same whatever the number of workers."""
        if self._workers == 1 or len(requests) < _WORTH_A_POOL:
            return self._choose_here(requests)
        began = perf_counter()
        first = self._selector.choose(requests[0])
        took = perf_counter() - began
        rest = requests[1:]
        return [first, *(self._share(rest) if took > _WORTH_SENDING_S else self._choose_here(rest))]

    def _choose_here(self, requests: Sequence[SelectionRequest]) -> list[Selection]:
        return [self._selector.choose(request) for request in requests]

    def _share(self, requests: Sequence[SelectionRequest]) -> list[Selection]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._workers, get_context("forkserver"), initializer=_begin, initargs=self._named
            )
        share = -(-len(requests) // (4 * self._workers))
        with without_interrupts():
            answers = self._pool.map(_choose, requests, chunksize=share)
        return list(answers)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


_selector: TipSelector | None = None


def _begin(name: str, params: Mapping[str, JsonScalar]) -> None:
    global _selector  # noqa: PLW0603 - a worker process has one selector for its life
    _selector = SELECTORS.build(name, params)
    end_with_owner()


def _choose(request: SelectionRequest) -> Selection:
    assert _selector is not None, "the pool's initializer ran first"
    return _selector.choose(request)
