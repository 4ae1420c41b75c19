"""The coordinate-wise median of models.

Value by value, the middle one; of an even number of models the mean of the two middle ones,
``float32(float32(a + b) * 0.5)``. Example counts are not weights here: they are claims, and a rule that stands
lies in the values must not fall for lies in the counts. A model of weight 0 is left out, as in FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fl_core.aggregation.fedavg import FedAvg
from fl_core.aggregation.order_statistics import of_ranked
from fl_core.aggregation.protocol import VectorSource, counted, equal_shares
from fl_core.aggregation.span_pool import ONE_THREAD, SpanPool
from fl_core.parameters import NoParams
from fl_core.types import Vector32

_HALF: Final = np.float32(0.5)


@dataclass(frozen=True, slots=True)
class Median:
    """Coordinate-wise median (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018, Def. 1).

    Breakdown point (n - 1) // 2 of n: while liars are fewer than half, each value lies between honest ones.
    One or two models have no outlier that could be told: of two it is the mean, and a liar moves it at will.
    The median of sites that differ may be nobody's model: it belongs behind a selector that finds clusters.
    """

    params: NoParams = field(default_factory=NoParams)
    pool: SpanPool = ONE_THREAD
    name: str = "median"
    min_models: int = 3

    def aggregate(self, sources: Sequence[VectorSource], weights: Sequence[float]) -> Vector32:
        """The median of the ``sources`` whose weight is not 0; see ``Aggregator``.

        One model comes back byte for byte; of several, -0 counts as +0. Memory beside the result: 2 MiB per
        thread, and what reading 384 KiB of every model takes.
        """
        models = counted(sources, weights)
        if len(models) == 1:
            return FedAvg().aggregate(models, [1.0])
        middle = range((len(models) - 1) // 2, len(models) // 2 + 1)
        return of_ranked(models, middle, _mean_of_middle, self.pool)

    def shares(self, weights: Sequence[float]) -> list[float]:
        """See ``Aggregator``: the middle value's model has all of it, each of two middle ones half."""
        return equal_shares(weights, 2 - sum(weight > 0 for weight in weights) % 2)


def _mean_of_middle(ranked: Sequence[Vector32], median: Vector32) -> None:
    if len(ranked) == 1:
        median[:] = ranked[0]
    else:
        np.add(ranked[0], ranked[1], out=median)
        np.multiply(median, _HALF, out=median)
