"""The coordinate-wise median of models.

Value by value, the middle one; of an even number of models the mean of the two middle ones,
``float32(float32(a + b) * 0.5)``. Example counts are not weights here: they are claims, and a rule that stands
lies in the values must not fall for lies in the counts. A model of weight 0 is left out, as in FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from fl_core.aggregation.fedavg import FedAvg
from fl_core.aggregation.order_statistics import ranked_blocks
from fl_core.aggregation.protocol import VectorSource, counted
from fl_core.aggregation.workers import Workers
from fl_core.types import Vector32

NAME: Final = "median"

_HALF: Final = np.float32(0.5)


@dataclass(frozen=True, slots=True)
class MedianParams:
    """The median has no parameters."""


@dataclass(frozen=True, slots=True)
class Median:
    """Coordinate-wise median (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018, Def. 1).

    Breakdown point (n - 1) // 2 of n: while liars are fewer than half, each value lies between honest ones.
    One or two models have no outlier that could be told: of two it is the mean, and a liar moves it at will.
    The median of sites that differ may be nobody's model: it belongs behind a selector that finds clusters.

    ``threads``: as for ``FedAvg``.
    """

    params: MedianParams = field(default_factory=MedianParams)
    threads: int = 1
    name: str = NAME
    _workers: Workers = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_workers", Workers(self.threads, owner=NAME))

    @property
    def min_models(self) -> int:
        """See ``Aggregator.min_models``."""
        return 3

    def aggregate(self, sources: Sequence[VectorSource], weights: Sequence[float]) -> Vector32:
        """The median of the ``sources`` whose weight is not 0; see ``Aggregator``.

        One model comes back byte for byte; of several, -0 counts as +0. Memory beside the result: 2 MiB per
        thread, and what reading 384 KiB of every model takes.
        """
        models = counted(sources, weights)
        if len(models) == 1:
            return FedAvg().aggregate(models, [1.0])
        median = np.empty(models[0].size, dtype=np.float32)
        for _ in self._workers.in_order(partial(_fill, median, models), size=median.size, models=len(models)):
            pass
        return median


def _fill(median: Vector32, models: Sequence[VectorSource], start: int, stop: int) -> None:
    middle = range((len(models) - 1) // 2, len(models) // 2 + 1)
    for low, high, ranked in ranked_blocks(models, middle, start, stop):
        if len(ranked) == 1:
            median[low:high] = ranked[0]
        else:
            total = median[low:high]
            np.add(ranked[0], ranked[1], out=total)
            np.multiply(total, _HALF, out=total)
