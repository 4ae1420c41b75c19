"""Candidate rules: which updates are offered to a selection.

A new rule is one file with a class like ``Tips`` and one line in ``CANDIDATE_RULES``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fl_core.candidates import tips
from fl_core.candidates.protocol import CandidateRule, CandidateRuleFactory
from fl_core.dag.genesis import Policy
from fl_core.dag.graph import Graph
from fl_core.errors import UnknownNameError

CANDIDATE_RULES: Final[Mapping[str, CandidateRuleFactory]] = MappingProxyType({tips.NAME: tips.Tips})


def build_candidate_rule(name: str, graph: Graph, policy: Policy) -> CandidateRule:
    """The rule of this name, over a graph that holds genesis alone.

    Raises:
        UnknownNameError: There is no such rule.
    """
    if name not in CANDIDATE_RULES:
        raise UnknownNameError("candidate rule", name, CANDIDATE_RULES)
    return CANDIDATE_RULES[name](graph, policy)


__all__ = ["CANDIDATE_RULES", "CandidateRule", "CandidateRuleFactory", "build_candidate_rule"]
