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
   shares little more than its origin with the client. When none is left those above a lower floor are taken, where
   genesis sets one (``min_update_similarity_alone``); else the client keeps its own model.

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

import numpy as np

from fl_core.parameters import parameter
from fl_core.selection.change_points import BeastPriors, ChangePointDetector, change_point_probabilities
from fl_core.selection.filters import FilterParams, answer_before, first_large, head_of, may_change
from fl_core.selection.protocol import Selection, SelectionRequest
from fl_core.selection.ranking import answer, rank


@dataclass(frozen=True)
class BeastParams(BeastPriors, FilterParams):
    """Parameters of Algorithm 3. DAG-ACFL gives no values; these were measured (ADR 0004)."""

    rule: str = parameter(
        "robust",
        choices=("robust", "literal"),
        doc="robust; or literal: Alg. 3 as reported, which has min_tips alone of the filters.",
    )
    alpha: float = parameter(
        0.5, above=0.0, below=1.0, doc="Confidence above which an index is a change point (DAG-ACFL's α)."
    )


@dataclass(frozen=True, slots=True)
class Beast:
    """Takes the candidates before the first change point of the ranked similarities."""

    params: BeastParams = field(default_factory=BeastParams)
    detect: ChangePointDetector = change_point_probabilities
    name: str = "beast"

    def choose(self, request: SelectionRequest) -> Selection:
        """Rank, ask the detector, cut; see the module for the two rules."""
        params, literal = self.params, self.params.rule == "literal"
        scores = request.similarities if literal else request.update_similarities
        order = rank(scores)
        head = head_of(scores, order, max_selected=request.max_selected)
        # Where nothing can part clusters, no index counts whatever BEAST says, and it is not asked.
        asks = may_change(head, min_drop=0.0 if literal else params.min_drop)
        probabilities = self.detect(head, params) if asks else np.zeros(0)
        likely = np.flatnonzero(probabilities[1:] > params.alpha) + 1  # DAG-ACFL, Alg. 3, lines 9-14
        if literal:
            cut = max(int(likely[0]) if len(likely) else 0, params.min_tips)
            return answer(request, order, cut=cut, rule="literal", probabilities=probabilities)
        change = first_large(head, likely, gap_filter=params.gap_filter, min_drop=params.min_drop)
        return answer_before(request, order, params, change=change, rule="robust", probabilities=probabilities)
