"""The adaptive choice (DAG-ACFL, Algorithm 3): take the tips before the first change of similarity.

Two rules share the detector and its parameters.

``robust``, the default, ranks by the cosine of *updates* (model minus genesis) and takes a candidate when
all of this holds:

1. It stands before the change point: the first index i whose probability is above ``alpha`` and whose
   drop from i - 1 to i is at least ``min_drop``, and at least ``gap_filter`` times the largest drop among
   such indices. Sorting turns noise into a smooth curve whose ends BEAST sees as segments of their own; the
   filter removes those beside a real change, ``min_drop`` those of one cluster alone. No such index: all
   candidates. At least ``min_tips`` (DAG-ACFL's nt) in any case.
2. It resembles the client: its update similarity is at least ``min_update_similarity``. At the default,
   1/2, two updates of equal length lie nearer to each other than either lies to genesis; below it a tip
   shares little more than its origin with the client. When none is left the client keeps its own model.

Why updates: everybody's model contains the genesis model, which hides in Eq. 5 how little two clients have
learnt in common, and a joiner's Eq. 5 ranks foreign beginners above its own cluster's experienced members.
ADR 0004 has the measurements.

``literal`` is Algorithm 3 as reported, on Eq. 5, with its open points decided: index i is 0-based, so the
first i tips are taken (DAG-ACFL's i - 1 is 1-based; read 0-based it would always drop one tip of the own
cluster); no change found means index 0, hence nt tips; the own tip is outside the sequence and always
taken, as with every selector here. It never keeps the own model while there is a candidate.

Cost: only the head of the ranking is given to BEAST; and where no drop reaches ``min_drop`` it is not asked at all.
What follows BEAST in ``robust`` is shared with ``least-squares`` and ``largest-gap`` (``fl_core.selection.filters``).
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_core.selection.change_points import BeastPriors, ChangePointDetector, change_point_probabilities
from fl_core.selection.filters import answer_before, first_large, head_of, may_change
from fl_core.selection.protocol import Selection, SelectionRequest
from fl_core.selection.ranking import answer, rank
from fl_core.types import Vector64

NAME: Final = "beast"


@dataclass(frozen=True, slots=True)
class BeastParams:
    """Parameters of Algorithm 3. DAG-ACFL gives no values; these were measured (ADR 0004)."""

    rule: str = parameter("robust", choices=("robust", "literal"), doc="robust, or literal: Alg. 3 as reported.")
    alpha: float = parameter(
        0.5, above=0.0, below=1.0, doc="Confidence above which an index is a change point (DAG-ACFL's α)."
    )
    min_tips: int = parameter(
        1, at_least=1, at_most=10_000, doc="Tips to take when the change comes earlier (DAG-ACFL's nt)."
    )
    gap_filter: float = parameter(
        0.3,
        at_least=0.0,
        at_most=1.0,
        doc="robust: share of the largest drop that a change point's own drop must reach; 0 is no filter.",
    )
    min_drop: float = parameter(
        0.05,
        at_least=0.0,
        at_most=2.0,
        doc="robust: smallest drop of update similarity that can part clusters; 0 asks BEAST alone.",
    )
    min_update_similarity: float = parameter(
        0.5,
        at_least=-1.0,
        at_most=1.0,
        doc="robust: update similarity below which a tip is foreign; -1 never keeps the own model.",
    )
    trend_order_min: int = parameter(
        0, at_least=0, at_most=3, doc="BEAST: lowest polynomial order of a segment; 0 is flat."
    )
    trend_order_max: int = parameter(0, at_least=0, at_most=3, doc="BEAST: highest polynomial order.")
    changepoints_min: int = parameter(0, at_least=0, at_most=100, doc="BEAST: fewest change points.")
    changepoints_max: int = parameter(
        4,
        at_least=1,
        at_most=100,
        doc="BEAST: most change points; with one fixed order Rbeast fits one fewer than it is given.",
    )
    min_segment_length: int = parameter(1, at_least=1, at_most=1000, doc="BEAST: shortest segment.")
    left_margin: int = parameter(0, at_least=0, at_most=1000, doc="BEAST: no change this near the start.")
    right_margin: int = parameter(0, at_least=0, at_most=1000, doc="BEAST: no change this near the end.")
    samples: int = parameter(3000, at_least=800, at_most=100_000, doc="BEAST: samples per chain; time grows with it.")
    chains: int = parameter(3, at_least=1, at_most=20, doc="BEAST: chains.")
    thin: int = parameter(5, at_least=1, at_most=100, doc="BEAST: keep one sample of so many.")
    burn_in: int = parameter(200, at_least=150, at_most=100_000, doc="BEAST: samples dropped at first.")
    seed: int = parameter(42, at_least=1, at_most=2**31 - 1, doc="BEAST: random seed; Rbeast reads 0 as the clock.")
    cpu_type: str = parameter(
        "sse", choices=("sse", "AVX2"), doc="BEAST: code path; Rbeast's others do not repeat themselves."
    )

    def __post_init__(self) -> None:
        if self.trend_order_min > self.trend_order_max:
            raise ParameterError("trend_order_min must not exceed trend_order_max")
        if self.changepoints_min > self.changepoints_max:
            raise ParameterError("changepoints_min must not exceed changepoints_max")

    @property
    def priors(self) -> BeastPriors:
        """The part that the change-point detector needs."""
        return BeastPriors(
            trend_order_min=self.trend_order_min,
            trend_order_max=self.trend_order_max,
            changepoints_min=self.changepoints_min,
            changepoints_max=self.changepoints_max,
            min_segment_length=self.min_segment_length,
            left_margin=self.left_margin,
            right_margin=self.right_margin,
            samples=self.samples,
            chains=self.chains,
            thin=self.thin,
            burn_in=self.burn_in,
            seed=self.seed,
            cpu_type=self.cpu_type,
        )


@dataclass(frozen=True, slots=True)
class Beast:
    """Takes the candidates before the first change point of the ranked similarities."""

    params: BeastParams = field(default_factory=BeastParams)
    detect: ChangePointDetector = change_point_probabilities
    name: str = NAME

    def choose(self, request: SelectionRequest) -> Selection:
        """Rank, ask the detector, cut; see the module for the two rules."""
        literal = self.params.rule == "literal"
        scores = request.similarities if literal else request.update_similarities
        order = rank(scores)
        head = head_of(scores, order, max_selected=request.max_selected)
        probabilities = self._probabilities(head, min_drop=0.0 if literal else self.params.min_drop)
        if literal:
            change = first_change(head, probabilities, alpha=self.params.alpha)
            cut, rule = max(change or 0, self.params.min_tips), "literal"
            return answer(request, order, cut=cut, rule=rule, probabilities=probabilities)
        change = first_change(
            head,
            probabilities,
            alpha=self.params.alpha,
            gap_filter=self.params.gap_filter,
            min_drop=self.params.min_drop,
        )
        return answer_before(
            request,
            order,
            change=change,
            min_tips=self.params.min_tips,
            min_update_similarity=self.params.min_update_similarity,
            rule="robust",
            probabilities=probabilities,
        )

    def _probabilities(self, head: Vector64, *, min_drop: float) -> Vector64:
        """An empty vector where there is nothing to ask: ``first_change`` would find nothing whatever BEAST said."""
        return self.detect(head, self.params.priors) if may_change(head, min_drop=min_drop) else np.zeros(0)


def first_change(
    ranked: Vector64,
    probabilities: Vector64,
    *,
    alpha: float,
    gap_filter: float = 0.0,
    min_drop: float = 0.0,
) -> int | None:
    """How many elements stand before the first change point; None when there is none.

    Args:
        ranked: Values in falling order, shape ``(n,)``.
        probabilities: Of a new segment at each element, shape ``(n,)`` or empty.
        alpha: A change point's probability is above this.
        gap_filter: Its drop is at least this share of the largest drop among all such indices.
        min_drop: Its drop is at least this.

    Source: DAG-ACFL, Alg. 3, lines 9-14. Deviation: the two filters; 0 gives DAG-ACFL's rule.
    """
    likely = np.flatnonzero(probabilities[1:] > alpha) + 1
    return first_large(ranked, likely, gap_filter=gap_filter, min_drop=min_drop)
