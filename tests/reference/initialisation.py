"""Uncoordinated initialisation once more, dense and in loops: what the fast versions must agree with.

Graphs are lists: ``heard[i]`` is a dictionary of who i hears and with what weight.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_simulator.graphs.graph import Graph

Heard = Sequence[Mapping[int, float]]
Dense = NDArray[np.float64]


def heard_of(graph: Graph) -> Heard:
    """The graph as dictionaries."""
    return [
        {int(graph.sources[arc]): float(graph.weights[arc]) for arc in range(graph.offsets[i], graph.offsets[i + 1])}
        for i in range(graph.num_nodes)
    ]


def eq_4(heard: Heard) -> Dense:
    """Eq. (4) as printed: (A_ij + I_ij) / sum_k (A_kj + I_kj), where column j is what node j averages."""
    count = len(heard)
    a = np.zeros((count, count))
    for j in range(count):
        for i, weight in heard[j].items():
            a[i, j] = weight
    diagonal = np.eye(count)
    out = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            out[i, j] = (a[i, j] + diagonal[i, j]) / sum(a[k, j] + diagonal[k, j] for k in range(count))
    return out


def eigenvector_of_one(column_stochastic: Dense) -> Dense:
    """The right eigenvector of eigenvalue 1, sum 1."""
    values, vectors = np.linalg.eig(column_stochastic)
    vector = np.real(vectors[:, int(np.argmin(np.abs(values - 1)))])
    return vector / vector.sum()


def parameter_spread(models: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Sec. 3.1 by its words."""
    nodes, size = len(models), len(models[0])

    def deviation(values: Sequence[float]) -> float:
        mean = math.fsum(values) / len(values)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))

    across_nodes = [deviation([models[i][j] for i in range(nodes)]) for j in range(size)]
    across_parameters = [deviation(models[i]) for i in range(nodes)]
    return math.fsum(across_nodes) / size, math.fsum(across_parameters) / nodes


def push_sum(hearers_of: Sequence[Sequence[int]], picks: Sequence[Sequence[int]]) -> list[float]:
    """Estimates of the number of nodes after gossip in which node j picks hearer number ``picks[round][j]``."""
    count = len(hearers_of)
    sums, weights = [1.0] * count, [1.0] + [0.0] * (count - 1)
    for picked in picks:
        inbox: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        for j in range(count):
            half = (sums[j] / 2, weights[j] / 2)
            inbox[j].append(half)
            inbox[hearers_of[j][picked[j]] if hearers_of[j] else j].append(half)
        sums = [math.fsum(s for s, _ in box) for box in inbox]
        weights = [math.fsum(w for _, w in box) for box in inbox]
    return [s / w if w else math.inf for s, w in zip(sums, weights, strict=True)]


def mixing_time(rows: Dense, steady: Dense, tolerance: float) -> int:
    """Round by round."""
    power, rounds = np.eye(len(rows)), 0
    while max(0.5 * sum(abs(power[i] - steady)) for i in range(len(rows))) > tolerance:
        power, rounds = power @ rows, rounds + 1
    return rounds
