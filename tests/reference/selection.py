"""The selection rules once more, in plain lists and loops: what the fast versions must agree with."""

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise


def top_k(ids: Sequence[str], similarities: Sequence[float], k: int, room: int) -> set[str]:
    """Algorithm 2."""
    ranked = sorted(zip(ids, similarities, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return {name for name, _ in ranked[: min(k, room)]}


def literal_index(confidence: Sequence[float], alpha: float, nt: int) -> int:
    """Algorithm 3, lines 9-17, with a 0-based index."""
    index = 0
    for i in range(len(confidence)):
        if confidence[i] > alpha:
            index = i
            break
    return max(index, nt)


def robust_cut(
    ranked: Sequence[float],
    confidence: Sequence[float],
    *,
    alpha: float,
    beta: float,
    least: float,
    nt: int,
    floor: float,
    alone: float = 1.0,
) -> int:
    """Our rule: the first change whose drop is large, also among the changes, never below the floor.

    Where all are below the floor, ``alone`` is the floor.
    """
    if all(each < floor for each in ranked):
        floor = alone
    changes = [i for i in range(1, len(confidence)) if confidence[i] > alpha]
    largest = max((ranked[i - 1] - ranked[i] for i in changes), default=0.0)
    cut = len(ranked)
    for i in changes:
        drop = ranked[i - 1] - ranked[i]
        if drop >= beta * largest and drop >= least:
            cut = max(i, nt)
            break
    while cut > len(ranked) or (cut > 0 and ranked[cut - 1] < floor):
        cut -= 1
    return cut


def fit_cost(values: Sequence[float], changes: Sequence[int]) -> Fraction:
    """Sum of squares about each segment's mean, without rounding; segments begin at 0 and at the changes."""
    cost = Fraction(0)
    for begin, end in zip([0, *changes], [*changes, len(values)], strict=True):
        segment = [Fraction(value) for value in values[begin:end]]
        mean = sum(segment) / len(segment)
        cost += sum((value - mean) ** 2 for value in segment)
    return cost


def best_changes(values: Sequence[float], penalty: float) -> list[list[int]]:
    """Of all partitions those of least squares plus penalty; several when they cost the same."""
    costs: dict[tuple[int, ...], Fraction] = {}
    for chosen in range(2 ** (len(values) - 1)):
        changes = tuple(i for i in range(1, len(values)) if chosen >> (i - 1) & 1)
        costs[changes] = fit_cost(values, changes) + len(changes) * Fraction(penalty)
    least = min(costs.values())
    return [list(changes) for changes, cost in costs.items() if cost == least]


def least_cost(values: Sequence[float], penalty: float) -> float:
    """Cost of the best partition, by trying every last segment behind every best beginning."""
    least = [-penalty]
    for end in range(1, len(values) + 1):
        costs = []
        for begin in range(end):
            mean = statistics.fmean(values[begin:end])
            costs.append(least[begin] + penalty + sum((value - mean) ** 2 for value in values[begin:end]))
        least.append(min(costs))
    return least[-1]


def least_squares_penalty(ranked: Sequence[float], penalty: float, max_penalty: float) -> float:
    """Our penalty: by the noise that the median spacing tells, at most a share of the whole."""
    spacings = [left - right for left, right in pairwise(ranked)]
    noise = len(ranked) * statistics.median(spacings) / (math.sqrt(12) * math.log(2))
    return min(penalty * len(ranked) * noise**2, max_penalty * float(fit_cost(ranked, [])))
