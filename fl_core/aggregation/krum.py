"""Krum: the one model that lies closest to the others, unchanged. It is Multi-Krum that keeps one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fl_core.aggregation.multi_krum import KrumParams, MultiKrum, MultiKrumParams
from fl_core.aggregation.protocol import VectorSource, equal_shares
from fl_core.aggregation.span_pool import ONE_THREAD, SpanPool
from fl_core.types import Vector32


@dataclass(frozen=True, slots=True)
class Krum:
    """Krum (Blanchard et al., Machine Learning with Adversaries, NeurIPS 2017, Sec. 3).

    Breakdown point f of n >= 2f + 3; what happens with fewer, and with equal scores: see ``MultiKrum``. The result is
    somebody's model byte for byte, so nothing of what the others learned goes into it.
    """

    params: KrumParams = field(default_factory=KrumParams)
    pool: SpanPool = ONE_THREAD
    name: str = "krum"

    @property
    def min_models(self) -> int:
        return 2 * self.params.byzantine + 3

    def aggregate(self, sources: Sequence[VectorSource], weights: Sequence[float]) -> Vector32:
        """The chosen one of the ``sources`` whose weight is not 0; see ``Aggregator`` and ``MultiKrum.aggregate``."""
        rule = MultiKrum(MultiKrumParams(byzantine=self.params.byzantine, keep=1), self.pool)
        return rule.aggregate(sources, weights)

    def shares(self, weights: Sequence[float]) -> list[float]:
        """See ``Aggregator``: the chosen model has all."""
        return equal_shares(weights, 1)
