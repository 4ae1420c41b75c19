"""How long a step may be, number by number, from the rule's words: docs/protocol.md, *Steps*."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass
class Update:
    """What the rule reads of an update; genesis has no parents."""

    author: str
    parents: Sequence[str]
    norm: float
    step: float = 0.0


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def bound(
    ledger: Mapping[str, Update], author: str, parents: Sequence[str], *, first: float, growth: float, genesis: float
) -> float:
    """Of a new update of this author upon these parents; walks back through its own chain."""
    if len(parents) == 1:
        parent = ledger[parents[0]]
        if parent.author == author and parent.parents:
            return bound(ledger, author, parent.parents, first=first, growth=growth, genesis=genesis)
    longest = first * genesis if genesis else math.inf
    updates = [ledger[each] for each in parents if ledger[each].parents]
    if not updates:
        return longest
    usual = median([each.step for each in updates])
    least = 0.01 * median([each.norm for each in updates])
    return min(longest, growth * max(usual, least))
