"""Order statistics of models, value by value: the k-th smallest of each coordinate, by a sorting network.

A network of compare-and-exchange steps works on whole rows: one ``minimum`` and one ``maximum`` per step, both
on rows that lie in cache. Batcher's merge exchange (Knuth, TAOCP 3, 5.2.2, Algorithm M) has 178 steps for 30
models; steps, and halves of steps, that no wanted rank depends on are left out. NumPy's ``partition`` and
``sort`` handle each coordinate on its own and are 3 to 25 times slower.

The same to the byte everywhere, because order statistics are a function of the values alone. The one exception
is zero, whose sign ``minimum`` takes from either argument, depending on the CPU: -0 counts as +0 here.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from fl_core.aggregation.protocol import VectorSource
from fl_core.aggregation.span_pool import SpanPool
from fl_core.types import Vector32

_CACHED_VALUES: Final = 1 << 19
"""Values of a block, all models together: 2 MiB, which a core's L2 cache holds or nearly holds."""
_NARROWEST: Final = 1 << 10
_WIDEST: Final = 1 << 15

_ZERO: Final = np.float32(0)


class Comparator(NamedTuple):
    """One step: the smaller of two rows goes to ``low``, the larger to ``high``, where somebody wants them."""

    low: int
    high: int
    wants_low: bool
    wants_high: bool


def of_ranked(
    sources: Sequence[VectorSource],
    ranks: range,
    combine: Callable[[Sequence[Vector32], Vector32], None],
    pool: SpanPool,
) -> Vector32:
    """A model made of the wanted order statistics of each value.

    Args:
        sources: n models; each is read once.
        ranks: Consecutive ranks within 0 to n - 1; 0 is the smallest.
        combine: Makes the result's values of one row per rank, both of one block; may write to the rows.
        pool: Who does it.

    Returns:
        Shape ``(p,)``.
    """
    count = len(sources)
    network = selection_network(count, ranks)
    width = max(_NARROWEST, min(_WIDEST, _CACHED_VALUES // count))
    result = np.empty(sources[0].size, dtype=np.float32)

    def fill(start: int, stop: int) -> None:
        buffers = np.empty((count + 1, min(width, stop - start)), dtype=np.float32)
        models = [source.read(start, stop) for source in sources]
        for low in range(0, stop - start, width):
            high = min(low + width, stop - start)
            *rows, spare = (buffer[: high - low] for buffer in buffers)
            for row, values in zip(rows, models, strict=True):
                np.add(values[low:high], _ZERO, out=row)  # makes -0 to +0
            _exchange(rows, spare, network)
            combine(rows[ranks.start : ranks.stop], result[start + low : start + high])

    for _ in pool.in_order(fill, size=len(result), models=count):
        pass
    return result


@lru_cache(maxsize=64)
def selection_network(count: int, ranks: range) -> tuple[Comparator, ...]:
    """Steps after which rows ``ranks`` of ``count`` rows hold what they would hold if all were sorted."""
    wanted = set(ranks)
    steps: list[Comparator] = []
    for low, high in reversed(list(_merge_exchange(count))):
        step = Comparator(low, high, low in wanted, high in wanted)
        if step.wants_low or step.wants_high:
            wanted |= {low, high}
            steps.append(step)
    return tuple(reversed(steps))


def _merge_exchange(count: int) -> Iterator[tuple[int, int]]:
    top = 1 << max(0, (count - 1).bit_length() - 1)
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            yield from ((i, i + d) for i in range(count - d) if i & p == r)
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1


def _exchange(rows: list[Vector32], spare: Vector32, network: Sequence[Comparator]) -> None:
    """Run the network; rows change places with the spare one instead of being copied."""
    for low, high, wants_low, wants_high in network:
        first, second = rows[low], rows[high]
        if wants_low and wants_high:
            np.minimum(first, second, out=spare)
            np.maximum(first, second, out=second)
            rows[low], spare = spare, first
        elif wants_low:
            np.minimum(first, second, out=first)
        else:
            np.maximum(first, second, out=second)
