"""Candidate rules: which updates are offered to a selection.

A new rule is one file with a class like ``Newest`` and one line in ``CANDIDATE_RULES``.
"""

from typing import Final

from fl_core.candidates.protocol import CandidateRule, CandidateRuleFactory
from fl_core.registry import Registry

CANDIDATE_RULES: Final[Registry[CandidateRuleFactory]] = Registry(
    "candidate rule",
    {"newest": "fl_core.candidates.newest:Newest", "tips": "fl_core.candidates.tips:Tips"},
)

__all__ = ["CANDIDATE_RULES", "CandidateRule", "CandidateRuleFactory"]
