"""Least-squares change points: the adaptive choice without chance, in a small part of BEAST's time.

The ranked update similarities are cut into flat segments such that the sum of squares about the segments' means,
plus a penalty for each change, is least. The optimum is exact (dynamic programming over all partitions), so the same
question has the same answer without a seed. The first change that passes the filters of ``beast``'s rule
``robust`` counts, and its floor applies (``fl_core.selection.filters``).

The penalty must not be the usual one, a multiple of the noise's variance and of log n: sorting turns the noise of one
cluster into a slope, which any partition halves with profit. It is ``penalty * n * noise**2``, for on a slope the gain
of a cut grows with n. The noise is read from the *median* spacing of neighbours: gaps between clusters are few, so
they do not move it. It says too much where clusters are small or many (the median of two spacings is half a gap),
hence the bound: never more than ``max_penalty`` of the sum of squares about the whole sequence's mean. Below that
bound one cluster alone is often cut, too; ``min_drop`` is what keeps it whole, as with BEAST. docs/selection.md has
the measurements.

Cost: O(n^2) for a head of n, in NumPy, 0.1 ms for 64 and 3 ms for 1,000; it needs no process of its own.

Source: optimal partitioning, Jackson et al. 2005, "An algorithm for optimal partitioning of data on an interval".
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_core.selection.filters import FilterParams, choose_by_change
from fl_core.selection.protocol import Selection, SelectionRequest
from fl_core.types import Vector64

_BLOCK: Final = 32
"""Segment ends whose costs are computed together: fewer calls for a head of 64, little waste for one of 1,000."""
_SPACING_OF_UNIFORM: Final = math.sqrt(12.0) * math.log(2.0)
"""Median spacing of n sorted uniform values of standard deviation 1, times n, for large n."""


@dataclass(frozen=True)
class LeastSquaresParams(FilterParams):
    penalty: float = parameter(
        0.5,
        at_least=0.0,
        at_most=1000.0,
        doc="Gain that a change must bring, in variances of one cluster's noise per candidate; 0 cuts everywhere.",
    )
    max_penalty: float = parameter(
        0.1,
        at_least=0.0,
        at_most=1.0,
        doc="Share of the whole sum of squares that always suffices, however large the noise seems.",
    )


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """Takes the candidates before the first change of the best piecewise-constant fit."""

    params: LeastSquaresParams = field(default_factory=LeastSquaresParams)
    name: str = "least-squares"

    def choose(self, request: SelectionRequest) -> Selection:
        return choose_by_change(request, self.params, places=self.changes, rule="least squares")

    def changes(self, head: Vector64) -> NDArray[np.intp]:
        """Where the best fit of a falling sequence changes; shape ``(n,)``, n >= 2."""
        penalty = self.params.penalty * len(head) * noise_of(head) ** 2
        return least_squares_changes(head, penalty=min(penalty, self.params.max_penalty * sum_of_squares(head)))


def least_squares_changes(ranked: Vector64, *, penalty: float) -> NDArray[np.intp]:
    """Where the best piecewise-constant fit changes.

    Args:
        ranked: Values in falling order, shape ``(n,)``, n >= 1.
        penalty: What each change costs, in squares of the values' unit; at least 0.

    Returns:
        Rising indices in 1..n-1 of the elements at which a segment begins, the first element's left out; never
        between equal values.
    """
    count = len(ranked)
    values = ranked - ranked[count // 2]  # near 0: sums of similarities near 1 would lose digits
    sums = np.concatenate(([0.0], np.cumsum(values)))
    places = np.arange(count + 1.0)
    # least[k]: cost of the best partition of the first k elements, less their squares, which every partition has.
    least = np.full(count + 1, -penalty)
    begins = [0]
    for first in range(1, count + 1, _BLOCK):
        ends = slice(first, min(first + _BLOCK, count + 1))
        inside = sums[ends, None] - sums[: ends.stop - 1]  # (block, ends.stop - 1): sum of a segment by end and begin
        explained = inside * inside / np.maximum(places[ends, None] - places[: ends.stop - 1], 1.0)
        for row, end in zip(explained, range(ends.start, ends.stop), strict=True):
            costs = least[:end] - row[:end]
            begin = int(costs.argmin())
            begins.append(begin)
            least[end] = costs[begin] + penalty
    return _parted(ranked, begins)


def _parted(ranked: Vector64, begins: list[int]) -> NDArray[np.intp]:
    """The changes of the best partition: where the last segment begins, the one before it, and so on."""
    changes = []
    end = begins[len(ranked)]
    while end > 0:
        changes.append(end)
        end = begins[end]
    places = np.array(changes[::-1], dtype=np.intp)
    parted: NDArray[np.intp] = places[ranked[places - 1] != ranked[places]]  # rounding may part equal values
    return parted


def noise_of(ranked: Vector64) -> float:
    """Standard deviation inside a cluster, from the median spacing of neighbours; shape ``(n,)``, n >= 2.

    Right for one cluster spread evenly; k clusters of one size seem k times as noisy.
    """
    return len(ranked) * float(np.median(ranked[:-1] - ranked[1:])) / _SPACING_OF_UNIFORM


def sum_of_squares(values: Vector64) -> float:
    """Of the differences to the mean; shape ``(n,)``, n >= 1. Sums are exact: NumPy's may differ between processors."""
    centred = values - math.fsum(values) / len(values)
    return math.fsum(centred * centred)
