"""Taint: the share of a model that descends from quarantined steps.

An update's model is the ledger's average of its parents plus its author's step (``fl_core.dag.figures``). Where the
average is a mean, unrolling that to genesis makes a model genesis's plus a sum of steps, each weighted by what is left
of it in the averages since:

    model = genesis + Σ c · step        with c = 1 for the own step, and c = Σ weight · (c in that parent) for others

Two numbers follow each update, both computed from its parents' and their weights:

* ``steps``: Σ c, how much training went into the model, in steps;
* ``quarantined``: the same sum over the quarantined steps alone.

Taint is their ratio, 0 to 1. A step counts as one however long it is: so its author cannot make it count less by
keeping it short, and every server comes to the same, whether or not it could measure the step.

For means both sums are exact. Other rules take each value of a model from few parents, and not the same ones for every
value: there weights are the largest share that a parent can have. Then the quarantined sum is the largest and the other
the smallest that any shares within these bounds can give, summing to 1: taint bounds that of every single value.

What lineage does not see: a model that was copied without naming its update as a parent. That is its author's step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import Final

from fl_core.dag.graph import Node
from fl_core.types import AuthorId, TxId

_MEAN: Final = 1 + 1e-5
"""Shares of a mean sum to 1; float32 rounds each."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """Whose steps count: all of these authors', and those of these updates."""

    authors: frozenset[AuthorId] = frozenset()
    updates: frozenset[TxId] = frozenset()

    def __contains__(self, node: Node) -> bool:
        return node.author in self.authors or node.id in self.updates

    def __bool__(self) -> bool:
        return bool(self.authors or self.updates)


class Lineage:
    """Follows a growing ledger; parents before children.

    Args:
        genesis: Its first transaction, which descends from nothing.
        suspects: Whose steps are quarantined.
    """

    def __init__(self, genesis: TxId, suspects: Suspects) -> None:
        self.suspects = suspects
        self._steps: dict[TxId, float] = {genesis: 0.0}
        self._quarantined: dict[TxId, float] = {}  # where it is not 0

    def add(self, node: Node) -> None:
        """Take in an update whose parents are here."""
        parents, caps = node.parents, node.weights
        if len(caps) != len(parents):
            caps = (1.0,) * len(parents)
        counts = [self._steps[parent] for parent in parents]
        bad = [self._quarantined.get(parent, 0.0) for parent in parents]
        if sum(caps) <= _MEAN:
            steps = sum(map(mul, caps, counts))
            quarantined = sum(map(mul, caps, bad))
        else:
            steps, quarantined = _smallest_mean(counts, caps), _largest_mean(bad, caps)
        self._steps[node.id] = steps + 1.0
        if quarantined := quarantined + (node in self.suspects):
            self._quarantined[node.id] = quarantined

    def taint(self, transaction: TxId) -> float:
        """The share of an update's model that descends from quarantined steps, 0 to 1.

        Raises:
            KeyError: It has not been added.
        """
        return min(1.0, self._quarantined.get(transaction, 0.0) / (self._steps[transaction] or 1.0))

    def descends(self, transaction: TxId) -> bool:
        """Whether a quarantined step is in an update's model at all, its own included."""
        return transaction in self._quarantined


def _largest_mean(values: Sequence[float], caps: Sequence[float]) -> float:
    """The largest mean of values of at least 0 by shares that sum to 1, none above its cap."""
    mean, left = 0.0, 1.0
    for value, cap in sorted(zip(values, caps, strict=True), reverse=True):
        share = min(cap, left)
        if share <= 0 or value == 0:
            break
        mean += share * value
        left -= share
    return mean


def _smallest_mean(values: Sequence[float], caps: Sequence[float]) -> float:
    """The smallest, likewise."""
    mean, left = 0.0, 1.0
    for value, cap in sorted(zip(values, caps, strict=True)):
        share = min(cap, left)
        mean += share * value
        left -= share
    return mean
