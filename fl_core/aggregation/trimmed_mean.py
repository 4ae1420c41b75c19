"""The coordinate-wise trimmed mean of models.

Value by value, the k smallest and the k largest are dropped and the others averaged, all alike:
``((w x_1 + w x_2) + w x_3) + …`` in ascending order of the values, ``w = float32(1 / m)`` for the m that are
left, each product and sum rounded to float32. Example counts are not weights here, for they are claims; a model
of weight 0 is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fl_core.aggregation.fedavg import FedAvg
from fl_core.aggregation.order_statistics import of_ranked
from fl_core.aggregation.protocol import VectorSource, counted, equal_shares
from fl_core.aggregation.span_pool import ONE_THREAD, SpanPool
from fl_core.parameters import parameter
from fl_core.types import Vector32


@dataclass(frozen=True, slots=True)
class TrimmedMeanParams:
    """How much is dropped."""

    trim_share: float = parameter(
        0.34,
        at_least=0,
        below=0.5,
        doc="Share of the models dropped at either end of each coordinate (β); of n models, floor(β n).",
    )


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """Coordinate-wise trimmed mean (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018, Def. 2).

    Breakdown point floor(β n) of n: up to so many liars, what they send for a coordinate is dropped or lies
    between honest values. Fewer than 1/β models lose nothing, and the rule is the plain mean, which one liar moves
    at will. With β = 0 it always is.
    """

    params: TrimmedMeanParams = field(default_factory=TrimmedMeanParams)
    pool: SpanPool = ONE_THREAD
    name: str = "trimmed-mean"

    @property
    def min_models(self) -> int:
        share = self.params.trim_share
        return math.ceil(1 / share) if share > 0 else 1

    def aggregate(self, sources: Sequence[VectorSource], weights: Sequence[float]) -> Vector32:
        """The trimmed mean of the ``sources`` whose weight is not 0; see ``Aggregator``.

        One model comes back byte for byte; of several, -0 counts as +0. Memory: as ``Median.aggregate``.
        """
        models = counted(sources, weights)
        if len(models) == 1:
            return FedAvg().aggregate(models, [1.0])
        dropped = math.floor(self.params.trim_share * len(models))
        return of_ranked(models, range(dropped, len(models) - dropped), _mean_of, self.pool)

    def shares(self, weights: Sequence[float]) -> list[float]:
        """See ``Aggregator``: 1 / (n - 2 k) of n models."""
        count = sum(weight > 0 for weight in weights)
        return equal_shares(weights, count - 2 * math.floor(self.params.trim_share * count))


def _mean_of(rows: Sequence[Vector32], mean: Vector32) -> None:
    weight = np.float32(1 / len(rows))
    np.multiply(rows[0], weight, out=mean)
    for row in rows[1:]:
        np.multiply(row, weight, out=row)
        np.add(mean, row, out=mean)
