"""Robust rules one number at a time, as docs/protocol.md defines them; and as textbooks do, where that is shorter."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fl_core.types import Vector32
from tests.reference.aggregation import fedavg

PIECE = 16_384


def median(models: Sequence[Vector32]) -> Vector32:
    """The middle value of each coordinate."""
    found = []
    for values in ascending(models):
        low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
        found.append(low if len(values) % 2 else np.float32(np.float32(low + high) * np.float32(0.5)))
    return np.array(found, dtype=np.float32)


def trimmed_mean(models: Sequence[Vector32], share: float) -> Vector32:
    """The mean of what is left of each coordinate, smallest first."""
    found = []
    for values in ascending(models):
        dropped = math.floor(share * len(values))
        left = values[dropped : len(values) - dropped]
        weight, total = np.float32(1 / len(left)), None
        for value in left:
            term = np.float32(weight * value)
            total = term if total is None else np.float32(total + term)
        found.append(total)
    return np.array(found, dtype=np.float32)


def ascending(models: Sequence[Vector32]) -> list[list[np.float32]]:
    """Each coordinate's values in ascending order, -0 as +0."""
    return [sorted(np.float32(value) + np.float32(0) for value in values) for values in zip(*models, strict=True)]


def squared_distance(one: Vector32, other: Vector32) -> float:
    """By pieces, float32 within and float64 between."""
    total = 0.0
    for start in range(0, len(one), PIECE):
        squares = []
        for x, y in zip(one[start : start + PIECE], other[start : start + PIECE], strict=True):
            difference = np.float32(x - y)
            squares.append(np.float32(difference * difference))
        while len(squares) & (len(squares) - 1):
            squares.append(np.float32(0))
        while len(squares) > 1:
            half = len(squares) // 2
            squares = [np.float32(a + b) for a, b in zip(squares[:half], squares[half:], strict=True)]
        total += float(squares[0])
    return total


def chosen(models: Sequence[Vector32], byzantine: int, keep: int) -> list[int]:
    """Places of the models that Multi-Krum averages, ascending."""
    count = len(models)
    f = min(byzantine, max(0, (count - 3) // 2))
    m = min(keep or max(1, count - f - 2), count - f)
    if m == count:
        return list(range(count))
    between = {pair: squared_distance(models[pair[0]], models[pair[1]]) for pair in combinations(range(count), 2)}
    scores = []
    for i in range(count):
        others = sorted(distance for pair, distance in between.items() if i in pair)
        scores.append((math.fsum(others[: max(1, count - f - 2)]), i))
    return sorted(index for _, index in sorted(scores)[:m])


def multi_krum(models: Sequence[Vector32], byzantine: int, keep: int) -> Vector32:
    """The plain mean of the chosen."""
    taken = [models[index] for index in chosen(models, byzantine, keep)]
    return fedavg(taken, [1.0] * len(taken))
