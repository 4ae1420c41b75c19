"""Squared Euclidean distances between models, the same to the byte everywhere.

No BLAS, whose sums differ between CPUs: a sum of squares is made in one fixed order, by nothing but IEEE
element-wise steps. The models are cut into pieces of 16,384 values. In each, ``d = float32(x - y)`` and
``q = float32(d d)``; the q are padded with zeros to a power of two and the second half added to the first,
in float32, until one is left. The pieces' sums are added in order, in float64.

A piece's sum beyond float32's largest (3.4e38) is infinite: such models count as infinitely far apart. The ledger's
bound on a model's norm keeps admitted models from being so.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.aggregation.protocol import VectorSource
from fl_core.aggregation.span_pool import UNIT, SpanPool
from fl_core.types import Matrix32, Vector64

_ROWS: Final = 16
"""Differences at a time: 1 MiB, so that they stay in cache until they are summed."""
_LANES: Final = 256
"""Width at which sums of several models are put together; narrower additions cost more to call than to do."""
_PAIRS: Final = 512


def squared_distances(sources: Sequence[VectorSource], pool: SpanPool) -> NDArray[np.float64]:
    """Of every two of n models, shape ``(n, n)``, symmetric, zeros on the diagonal.

    Reads each model once. Memory: n pieces and 3 MiB per thread, beside what reading takes.
    """
    count = len(sources)
    upper = np.triu_indices(count, 1)
    total = np.zeros(len(upper[0]))

    def sums_in(start: int, stop: int) -> list[Vector64]:
        return [_pair_sums(rows, len(total)) for rows in _pieces(sources, start, stop)]

    for pieces in pool.in_order(sums_in, size=sources[0].size, models=count):
        for sums in pieces:
            total += sums
    distances = np.zeros((count, count))
    distances[upper] = total
    return distances + distances.T


def squared_distances_to(origin: VectorSource, sources: Sequence[VectorSource], pool: SpanPool) -> Vector64:
    """Of each of n models to ``origin``, shape ``(n,)``; reads each once."""
    total = np.zeros(len(sources))

    def sums_in(start: int, stop: int) -> list[Vector64]:
        return [_sums_of_squares(rows[1:] - rows[0]) for rows in _pieces([origin, *sources], start, stop)]

    for pieces in pool.in_order(sums_in, size=origin.size, models=len(sources) + 1):
        for sums in pieces:
            total += sums
    return total


def _pieces(sources: Sequence[VectorSource], start: int, stop: int) -> Iterator[Matrix32]:
    """The models' values a piece at a time, one row a model, padded with zeros to a power of two."""
    models = [source.read(start, stop) for source in sources]
    rows = np.zeros((len(sources), 1 << (min(UNIT, stop - start) - 1).bit_length()), dtype=np.float32)
    for low in range(0, stop - start, UNIT):
        length = min(UNIT, stop - start - low)
        for row, values in zip(rows, models, strict=True):
            row[:length] = values[low : low + length]
        rows[:, length:] = 0
        yield rows


def _pair_sums(rows: Matrix32, pairs: int) -> Vector64:
    """The sums of one piece, pair by pair: (0, 1), (0, 2), … then (1, 2), …, row after row."""
    count, width = rows.shape
    lanes = min(width, _LANES)
    work = np.empty((min(_ROWS, count), width), dtype=np.float32)
    waiting = np.empty((min(_PAIRS, pairs) + len(work), lanes), dtype=np.float32)
    sums = np.empty(pairs)
    done = filled = 0
    with np.errstate(over="ignore", under="ignore"):
        for one in range(count - 1):
            for first in range(one + 1, count, len(work)):
                others = rows[first : first + len(work)]
                squares = work[: len(others)]
                np.subtract(others, rows[one], out=squares)
                np.square(squares, out=squares)
                waiting[filled : filled + len(others)] = _halved(squares, lanes)
                filled += len(others)
                if filled >= _PAIRS:
                    sums[done : done + filled] = _halved(waiting[:filled], 1)[:, 0]
                    done, filled = done + filled, 0
        sums[done:] = _halved(waiting[:filled], 1)[:, 0]
    return sums


def _sums_of_squares(differences: Matrix32) -> Vector64:
    with np.errstate(over="ignore", under="ignore"):
        np.square(differences, out=differences)
        return _halved(differences, 1)[:, 0].astype(np.float64)


def _halved(rows: Matrix32, width: int) -> Matrix32:
    """Add the second half of each row to the first until ``width`` values are left; overwrites ``rows``."""
    while rows.shape[1] > width:
        half = rows.shape[1] // 2
        np.add(rows[:, :half], rows[:, half:], out=rows[:, :half])
        rows = rows[:, :half]
    return rows
