"""Tip selection: which tips' models a client is given the average of."""

from fl_core.selection.protocol import (
    Candidate,
    RankedCandidate,
    Selection,
    SelectionRequest,
    Source,
    TipSelector,
)

__all__ = ["Candidate", "RankedCandidate", "Selection", "SelectionRequest", "Source", "TipSelector"]
