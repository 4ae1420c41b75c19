"""Tip selection: which tips' models a client is given the average of.

A new rule is one file and one line in ``SELECTORS``; the contract tests in ``tests/contract/test_selectors.py`` then
hold it to what every selector promises.
"""

from typing import Final

from fl_core.registry import PartRegistry
from fl_core.selection.protocol import Candidate, Ranking, Selection, SelectionRequest, TipSelector

SELECTORS: Final = PartRegistry[TipSelector](
    "selector",
    {
        "beast": "fl_core.selection.beast:Beast",
        "largest-gap": "fl_core.selection.largest_gap:LargestGap",
        "least-squares": "fl_core.selection.least_squares:LeastSquares",
        "top-k": "fl_core.selection.top_k:TopK",
    },
    group="dag_acfl.selectors",
)
"""Context: ``detect``, the ``ChangePointDetector`` of ``beast``; by default BEAST itself."""

__all__ = ["SELECTORS", "Candidate", "Ranking", "Selection", "SelectionRequest", "TipSelector"]
