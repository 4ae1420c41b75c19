"""Random walks through a DAG of models, biased towards those that do well on the walker's own samples.

The walk of SDAGFL (Beilharz et al., Middleware 2021) as its authors' program does it: from transaction to approver,
until nobody approves. Of several approvers one is drawn by how accurate it is; an only one is taken unseen.

A ``Tangle`` is the DAG in numbers: 0 is genesis, the others follow in the order they came. A transaction's *height* is
the longest path from a tip down to it (the program's "depth"; ``Node.depth`` counts from the other end).
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np

Pair: TypeAlias = tuple[int, int]
"""A client and a transaction."""

Ratings: TypeAlias = dict[Pair, float]
"""How well transactions' models do on clients' samples, in [0, 1]: facts that never change, so each is found once."""

Rate: TypeAlias = Callable[[Sequence[Pair]], None]
"""Finds ratings of pairs that were never rated, and puts them into the walk's ``Ratings``."""


class Tangle:
    """Who approves whom.

    Args:
        tallest: Heights beyond this are all alike, and cost nothing to keep.
    """

    def __init__(self, *, tallest: int) -> None:
        self._beyond = tallest + 1
        self._parents: list[tuple[int, ...]] = [()]
        self._approvers: list[list[int]] = [[]]
        self._heights = [0]

    def __len__(self) -> int:
        return len(self._parents)

    def add(self, parents: Sequence[int]) -> int:
        """Append a transaction; its number."""
        number = len(self._parents)
        self._parents.append(tuple(parents))
        self._approvers.append([])
        self._heights.append(0)
        rising = [number]
        for parent in parents:
            self._approvers[parent].append(number)
        while rising:
            above = rising.pop()
            height = min(self._heights[above] + 1, self._beyond)
            for parent in self._parents[above]:
                if self._heights[parent] < height:
                    self._heights[parent] = height
                    rising.append(parent)
        return number

    def approvers(self, transaction: int) -> Sequence[int]:
        """Who approves this one, in the order they came."""
        return self._approvers[transaction]

    def is_tip(self, transaction: int) -> bool:
        return not self._approvers[transaction]

    def height(self, transaction: int) -> int:
        """Longest path from a tip, or ``tallest + 1`` where it is longer than that."""
        return self._heights[transaction]

    def starts(self, low: int, high: int) -> list[int]:
        """Transactions of these heights, ascending; genesis where there is none: the DAG is not ``low`` high yet."""
        return [number for number, height in enumerate(self._heights) if low <= height <= high] or [0]

    def within_reach(self, low: int, high: int) -> list[int]:
        """Whatever a walk from ``starts(low, high)`` can ask for, now or after any future publication, ascending.

        Walks rise, and heights only grow. So below ``high`` is over for good; and so is a part of the rest that hangs
        together with no start, because only what a walk ends at is ever approved.
        """
        starts = self.starts(low, high)
        if starts == [0]:  # all of it: no height is beyond, and every walk begins at genesis
            return list(range(len(self)))
        found, waiting = set(starts), list(starts)
        while waiting:
            number = waiting.pop()
            for other in (*self._parents[number], *self._approvers[number]):
                if other not in found and self._heights[other] <= high:
                    found.add(other)
                    waiting.append(other)
        return sorted(found)


@dataclass(slots=True)
class Walker:
    """One walk.

    Attributes:
        client: Whose samples rate.
        options: What it can go to next, at least one; at first, where it may start.
        draws: Decides where options differ: one draw for each step that has several.
        at: Where it is.
    """

    client: int
    options: Sequence[int]
    draws: np.random.Generator
    at: int = 0


def preferences(ratings: Sequence[float], alpha: float) -> list[float]:
    """Weights of options, the best one's 1: exp(α (r - max) / (max - min)), and all alike where no rating differs.

    Dividing by the spread is the program's "dynamic" normalisation: α means the same whether accuracies differ by a
    tenth or by a thousandth.

    Args:
        ratings: At least one, finite.
        alpha: α, at least 0. 0: an unbiased walk.
    """
    best = max(ratings)
    spread = best - min(ratings)
    if spread == 0:
        return [1.0] * len(ratings)
    return [math.exp(alpha * ((rating - best) / spread)) for rating in ratings]


def walk(tangle: Tangle, walkers: Sequence[Walker], ratings: Ratings, *, alpha: float, rate: Rate) -> list[int]:
    """Where each walk ends: at a tip.

    All take their steps together, so that one question covers what all of them must know for the next; each goes where
    it would have gone alone.

    Args:
        tangle: The DAG, which does not change meanwhile.
        walkers: Who walks; used up.
        ratings: What is known already.
        alpha: α of ``preferences``.
        rate: Asked for pairs that are not known, each once.
    """
    walking = list(walkers)
    while walking:
        unknown = {
            (walker.client, option): None
            for walker in walking
            if len(walker.options) > 1
            for option in walker.options
            if (walker.client, option) not in ratings
        }
        if unknown:
            rate(list(unknown))
        for walker in walking:
            walker.at = _step(walker, ratings, alpha)
            walker.options = tangle.approvers(walker.at)
        walking = [walker for walker in walking if walker.options]
    return [walker.at for walker in walkers]


def _step(walker: Walker, ratings: Ratings, alpha: float) -> int:
    options = walker.options
    if len(options) == 1:
        return options[0]
    bounds = list(accumulate(preferences([ratings[walker.client, option] for option in options], alpha)))
    return options[min(bisect_right(bounds, walker.draws.random() * bounds[-1]), len(options) - 1)]
