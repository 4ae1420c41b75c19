"""Multi-Krum: the mean of the models that lie closest to the others.

Each model's score is the sum of its squared distances to its n - f - 2 nearest neighbours; the m models of lowest
score are averaged, all alike, as FedAvg does with equal weights and in the order of the sources. Distances are those
of ``fl_core.aggregation.distances``, a score is their exact sum rounded once (``math.fsum``), and of equal scores
the earlier source wins: the one with the smaller transaction id.

Example counts are not weights here, for they are claims; a model of weight 0 is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.aggregation.distances import squared_distances
from fl_core.aggregation.fedavg import FedAvg
from fl_core.aggregation.protocol import VectorSource, counted, equal_shares
from fl_core.aggregation.span_pool import ONE_THREAD, SpanPool
from fl_core.parameters import parameter
from fl_core.types import Vector32

MAX_BYZANTINE: Final = 1024


@dataclass(frozen=True, slots=True)
class KrumParams:
    """How many may lie."""

    byzantine: int = parameter(
        1,
        at_least=0,
        at_most=MAX_BYZANTINE,
        doc="Authors that may lie (f); of n models at most (n - 3) // 2 are reckoned with.",
    )


@dataclass(frozen=True, slots=True)
class MultiKrumParams(KrumParams):
    """How many may lie, and how many are averaged."""

    keep: int = parameter(
        0,
        at_least=0,
        at_most=MAX_BYZANTINE,
        doc="Models averaged (m), at most n - f; 0: n - f - 2, at least 1, up to which robustness is proven.",
    )


@dataclass(frozen=True, slots=True)
class MultiKrum:
    """Multi-Krum (Blanchard et al., Machine Learning with Adversaries, NeurIPS 2017, Sec. 4).

    Breakdown point f of n >= 2f + 3, with m <= n - f - 2 (Damaskinos et al., AggregaThor, MLSys 2019). Of fewer models
    f is lowered to (n - 3) // 2, but not below 0: four or three count as if nobody lied, and the one (with ``keep``,
    the ones) nearest to its neighbour is taken, which an outlier is not; two liars of three that agree are. Two models
    are equally near: without ``keep`` the first is taken, with ``keep`` of 2 and more their mean. One is itself.

    Not for sites whose labels are skewed: honest models then lie far apart, and liars who agree lie close. The
    median and the trimmed mean decide value by value, and have no model to take whole.
    """

    params: MultiKrumParams = field(default_factory=MultiKrumParams)
    pool: SpanPool = ONE_THREAD
    name: str = "multi-krum"

    @property
    def min_models(self) -> int:
        return 2 * self.params.byzantine + 3

    def aggregate(self, sources: Sequence[VectorSource], weights: Sequence[float]) -> Vector32:
        """The mean of the chosen among the ``sources`` whose weight is not 0; see ``Aggregator``.

        Reads every model once for the distances, and those chosen once more. Memory beside the result: 16 MiB
        read at once, a piece of every model and 3 MiB per thread.
        """
        models = counted(sources, weights)
        byzantine, keep = self._kept(len(models))
        if keep < len(models):
            scores = krum_scores(squared_distances(models, self.pool), byzantine)
            models = [models[index] for index in lowest(scores, keep)]
        return FedAvg(pool=self.pool).aggregate(models, [1.0] * len(models))

    def shares(self, weights: Sequence[float]) -> list[float]:
        """See ``Aggregator``: each of the m chosen models has 1 / m."""
        return equal_shares(weights, self._kept(sum(weight > 0 for weight in weights))[1])

    def _kept(self, count: int) -> tuple[int, int]:
        """F and m for so many models."""
        byzantine = tolerated(count, self.params.byzantine)
        most = max(1, count - byzantine - 2) if self.params.keep == 0 else self.params.keep
        return byzantine, min(most, count - byzantine)


def tolerated(count: int, byzantine: int) -> int:
    """How many liars Krum reckons with among ``count`` models: ``byzantine``, while count >= 2 byzantine + 3."""
    return min(byzantine, max(0, (count - 3) // 2))


def krum_scores(distances: NDArray[np.float64], byzantine: int) -> list[float]:
    """The sum of each model's squared distances to its n - f - 2 nearest (at least one), shape ``(n,)``.

    Args:
        distances: Squared distances, shape ``(n, n)``, of at least two models.
        byzantine: f.
    """
    count = len(distances)
    nearest = max(1, count - byzantine - 2)
    others = (np.delete(row, index) for index, row in enumerate(distances))
    return [math.fsum(sorted(row.tolist())[:nearest]) for row in others]


def lowest(scores: Sequence[float], keep: int) -> list[int]:
    """Places of the ``keep`` lowest scores, in ascending order; of equal scores the earlier."""
    return sorted(sorted(range(len(scores)), key=lambda index: (scores[index], index))[:keep])
