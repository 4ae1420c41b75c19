"""Federated averaging: the mean of models, weighted by how many examples each was trained on.

Byte-identical on every machine, because it is nothing but IEEE float32 multiplication and addition,
element by element and in the order of the sources (ADR 0003):

    w_k    = float32(n_k / (n_1 + ... + n_K))         computed in float64, rounded once
    mean_i = ((w_1 x_1i + w_2 x_2i) + w_3 x_3i) + ...  each product and sum rounded to float32

No BLAS, no fused multiply-add, no pairwise sum: those differ between CPUs. Sources of weight 0 are left
out. The number of threads and the block length do not change a byte, as no element knows of another.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from fl_core.aggregation.protocol import VectorSource, check_input
from fl_core.aggregation.span_pool import ONE_THREAD, SpanPool
from fl_core.parameters import NoParams
from fl_core.types import Vector32

BLOCK: Final = 96 << 10
"""Values per block: sum and product of a block (384 KiB each) stay in a core's L2 cache of 1 MiB.

Half of it costs 3 % more time with one thread, an eighth three times as much with two: each NumPy call
hands the GIL over.
"""


@dataclass(frozen=True, slots=True)
class FedAvg:
    """Weighted mean of models (McMahan et al., FedAvg; DAG-ACFL, Alg. 1, line 33)."""

    params: NoParams = field(default_factory=NoParams)
    pool: SpanPool = ONE_THREAD
    name: str = "fedavg"
    min_models: int = 1

    def aggregate(self, sources: Sequence[VectorSource], weights: Sequence[float]) -> Vector32:
        """The weighted mean of ``sources``, given in ascending transaction id; see ``Aggregator``.

        One source comes back byte for byte, whatever its weight. Working memory beside the result is one
        block per thread and what ``read`` needs.
        """
        size = check_input(sources, weights)
        total = math.fsum(weights)
        terms = [
            (source, np.float32(weight / total)) for source, weight in zip(sources, weights, strict=True) if weight > 0
        ]
        mean = np.empty(size, dtype=np.float32)
        self.pool.in_parts(partial(_fill, mean, terms), size=size, least=BLOCK)
        return mean

    def shares(self, weights: Sequence[float]) -> list[float]:
        """See ``Aggregator``."""
        total = math.fsum(weights)
        return [weight / total for weight in weights]


def example_weights(num_examples: Sequence[int], *, factor: int) -> list[float]:
    """FedAvg's weights: examples per model, each within ``factor`` of the median of those averaged.

    The count is the publisher's own claim; the factor (genesis weights) bounds what a false one buys: no model counts
    more than ``factor`` times as much as the median, nor less than that part of it. Of two middle counts the median
    is the lower, so that of two models the larger claim is the one that is bounded. A model that claims no examples
    weighs nothing and is none of those averaged, unless none claims any: then all weigh the same.

    Raises:
        ValueError: a negative count, or a factor below 1.
    """
    if factor < 1 or any(count < 0 for count in num_examples):
        raise ValueError("example counts must not be negative, and the factor must be at least 1")
    claimed = [count for count in num_examples if count > 0]
    if not claimed:
        return [1.0] * len(num_examples)
    median = statistics.median_low(claimed)
    return [float(max(min(count, factor * median), median / factor)) if count else 0.0 for count in num_examples]


def _fill(mean: Vector32, terms: Sequence[tuple[VectorSource, np.float32]], start: int, stop: int) -> None:
    (first, first_weight), *others = terms
    buffers = np.empty((2, min(BLOCK, stop - start)), dtype=np.float32)
    for low in range(start, stop, BLOCK):
        high = min(low + BLOCK, stop)
        total, term = buffers[:, : high - low]  # the sum stays in cache until the block is done
        np.multiply(first.read(low, high), first_weight, out=total)
        for source, weight in others:
            np.multiply(source.read(low, high), weight, out=term)
            np.add(total, term, out=total)
        mean[low:high] = total
