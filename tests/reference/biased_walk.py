"""SDAGFL's walk from the definition: one walker after the other, asking everything anew at each step."""

import math
from collections.abc import Callable, Mapping, Sequence

Parents = Mapping[int, Sequence[int]]


def approvers(parents: Parents, transaction: int) -> list[int]:
    return [each for each in sorted(parents) if transaction in parents[each]]


def height(parents: Parents, transaction: int) -> int:
    """Longest path from a transaction that nobody approves."""
    return max((1 + height(parents, each) for each in approvers(parents, transaction)), default=0)


def starts(parents: Parents, low: int, high: int) -> list[int]:
    return [each for each in sorted(parents) if low <= height(parents, each) <= high] or [0]


def can_be_asked_for(parents: Parents, low: int, high: int) -> set[int]:
    """Where a walk may start, and all that stands above."""
    found: set[int] = set()
    for start in starts(parents, low, high):
        found |= {start, *future(parents, start)}
    return found


def future(parents: Parents, transaction: int) -> set[int]:
    found: set[int] = set()
    for each in approvers(parents, transaction):
        found |= {each, *future(parents, each)}
    return found


def probabilities(ratings: Sequence[float], alpha: float) -> list[float]:
    low, high = min(ratings), max(ratings)
    if low == high:
        return [1 / len(ratings) for _ in ratings]
    weights = [math.exp(alpha * (rating - high) / (high - low)) for rating in ratings]
    return [weight / sum(weights) for weight in weights]


def walk(
    parents: Parents, options: Sequence[int], rating: Callable[[int], float], draw: Callable[[], float], alpha: float
) -> int:
    """Where a walk ends; a draw falls into one of the options' stretches of [0, 1), laid end to end."""
    while True:
        at = options[0] if len(options) == 1 else choose(options, [rating(each) for each in options], draw(), alpha)
        options = approvers(parents, at)
        if not options:
            return at


def choose(options: Sequence[int], ratings: Sequence[float], drawn: float, alpha: float) -> int:
    upto = 0.0
    for option, share in zip(options, probabilities(ratings, alpha), strict=True):
        upto += share
        if drawn < upto:
            return option
    return options[-1]
