"""The largest gap: take the tips before the largest drop of update similarity.

The simplest rule that sees clusters at all, kept beside ``beast`` to show what BEAST is worth. It asks nothing about
the spread inside a cluster, so where several clusters follow one another it cuts at the widest of the gaps between
them, which need not be the first: the floor then keeps most foreign tips out, or ``gap_filter`` below 1, which
takes the first drop of at least that share of the largest.

Ranking, head, ``min_tips``, ``min_drop`` and the floor are those of ``beast``'s rule ``robust``
(``fl_core.selection.filters``). Of equal drops the first counts. The same to the bit everywhere.
"""

from dataclasses import dataclass, field

import numpy as np

from fl_core.parameters import parameter
from fl_core.selection.filters import FilterParams, choose_by_change
from fl_core.selection.protocol import Selection, SelectionRequest


@dataclass(frozen=True)
class LargestGapParams(FilterParams):
    gap_filter: float = parameter(
        1.0,
        at_least=0.0,
        at_most=1.0,
        doc="Share of the largest drop that suffices: the first such drop counts; 1 is the largest itself.",
    )


@dataclass(frozen=True, slots=True)
class LargestGap:
    """Takes the candidates before the largest drop of the ranked update similarities."""

    params: LargestGapParams = field(default_factory=LargestGapParams)
    name: str = "largest-gap"

    def choose(self, request: SelectionRequest) -> Selection:
        return choose_by_change(request, self.params, places=lambda head: np.arange(1, len(head)), rule="largest gap")
