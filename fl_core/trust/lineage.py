"""Taint: the share of a model that descends from quarantined steps.

An update's model is the ledger's average of its parents plus its author's step (``fl_core.dag.figures``). Where the
average is a mean, unrolling that to genesis makes a model genesis's plus a sum of steps, each weighted by what is left
of it in the averages since:

    model = genesis + Σ c · step        with c = 1 for the own step, and c = Σ weight · (c in that parent) for others

Two numbers follow each update, both computed from its parents' and from what was recorded at admission:

* ``length``: Σ c · |step|, the length of all the training that went into the model;
* ``quarantined``: the same sum over the quarantined steps alone.

Taint is their ratio, 0 to 1. For means both sums are exact, and so is the taint. Other rules take each value of a model
from few parents, and not the same ones for every value: there ``weights`` are the largest share that a parent can have.
The quarantined length is then the largest and the length the smallest that any shares within these bounds can give,
summing to 1: the taint is an upper bound for every single value of the model. A step that could not be measured counts
as nothing towards the length; where it is a quarantined one, what descends from it is all tainted.

What lineage does not see: a model that was copied without naming its update as a parent. That is its author's step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fl_core.dag.graph import Node
from fl_core.types import AuthorId, TxId


class _Descent(NamedTuple):
    """What went into an update's model: see the module docstring."""

    quarantined: float
    length: float


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
        self._suspects = suspects
        self._descents: dict[TxId, _Descent] = {genesis: _Descent(0.0, 0.0)}

    def add(self, node: Node) -> None:
        """Take in an update whose parents are here."""
        descents = [self._descents[parent] for parent in node.parents]
        caps = node.weights if len(node.weights) == len(descents) else (1.0,) * len(descents)
        lengths = [each.length for each in descents]
        quarantined = [each.quarantined for each in descents]
        foul = _largest_mean(quarantined, caps) if any(quarantined) else 0.0
        if node in self._suspects:
            foul += math.inf if node.step is None else node.step
        self._descents[node.id] = _Descent(foul, (node.step or 0.0) + _smallest_mean(lengths, caps))

    def taint(self, transaction: TxId) -> float:
        """The share of an update's model that descends from quarantined steps, 0 to 1.

        Raises:
            KeyError: It has not been added.
        """
        quarantined, length = self._descents[transaction]
        return 0.0 if quarantined == 0 else 1.0 if quarantined >= length else quarantined / length

    def descends(self, transaction: TxId) -> bool:
        """Whether a quarantined step is in an update's model at all, its own included.

        Raises:
            KeyError: It has not been added.
        """
        return self._descents[transaction].quarantined > 0


def _largest_mean(values: Sequence[float], caps: Sequence[float]) -> float:
    """The largest mean of values of at least 0 by shares that sum to 1, none above its cap.

    Caps that sum to 1 are the shares themselves: of a mean this is the mean.
    """
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
