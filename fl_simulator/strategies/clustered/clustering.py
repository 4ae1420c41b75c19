"""Geometry of few but long vectors: clients' models or updates, n of them with P values each, n far below P.

Everything is summed in float64 by blocks of columns, so that no second copy of the models is made, and what follows
(singular vectors, k-means) works on n-by-n numbers. What the vectors mean, and which tensors they hold, is decided by
whoever asks.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fl_core.types import Matrix32

Matrix64: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]
"""Cluster of each of n, shape ``(n,)``, numbered from 0 in the order in which they first occur."""

_BLOCK: Final = 1 << 16
_RESTARTS: Final = 10
_LLOYD_STEPS: Final = 100


def products(rows: Matrix32, others: Matrix32) -> Matrix64:
    """Scalar product of each row with each of the others, shape ``(n, m)``."""
    total = np.zeros((len(rows), len(others)))
    for left, right in _blocks(rows, others):
        total += left @ right.T
    return total


def cosines(rows: Matrix32, others: Matrix32) -> Matrix64:
    """Cosine of each row and each of the others, shape ``(n, m)``, in [-1, 1]; 0 where one has no direction."""
    found = products(rows, others)
    norms = np.sqrt(np.outer(_squares(rows), _squares(others)))
    return np.clip(np.divide(found, norms, out=np.zeros_like(found), where=norms > 0), -1.0, 1.0)


def distances(rows: Matrix32, others: Matrix32) -> Matrix64:
    """Euclidean distance of each row to each of the others, shape ``(n, m)``.

    By differences, not by scalar products: models that began alike differ by little, and subtracting their squares
    would lose it.
    """
    total = np.zeros((len(rows), len(others)))
    for left, right in _blocks(rows, others):
        for column, other in enumerate(right):
            total[:, column] += np.square(left - other).sum(axis=1)
    return np.sqrt(total)


def coordinates(rows: Matrix32) -> Matrix64:
    """Points that have the distances of the n rows from one another, in n dimensions: shape ``(n, n)``."""
    gram = products(rows, rows)
    gram -= gram.mean(axis=0)  # the rows less their mean, which has no part in distances
    gram -= gram.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(gram)
    found: Matrix64 = vectors * np.sqrt(np.maximum(values, 0.0))
    return found


def decomposed_cosines(rows: Matrix32, count: int) -> Matrix64:
    """Cosine of each row to the first right singular vectors of the matrix of rows, shape ``(n, min(count, n))``.

    With rows = U S Vᵀ, the product of row i and vector j is U_ij S_j; U and S² are the eigenvectors and eigenvalues of
    the n-by-n matrix of scalar products, so no vector of P values is ever made. A vector's sign is not determined, and
    distances between the results do not depend on it. A zero row has no direction; its cosines are 0.

    Source: FlexCFL (Duan et al., TPDS 2022), decomposed cosine similarity.
    """
    gram = products(rows, rows)
    values, vectors = np.linalg.eigh(gram)  # ascending
    order = np.argsort(-values, kind="stable")[:count]
    projections = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    norms = np.sqrt(np.diag(gram))[:, None]
    found: Matrix64 = np.divide(projections, norms, out=np.zeros_like(projections), where=norms > 0)
    return found


def k_means(points: Matrix64, count: int, rng: np.random.Generator) -> Labels:
    """Clusters of points by Lloyd's k-means from k-means++ seeds (Arthur & Vassilvitskii, SODA 2007).

    The best of ten runs by the sum of squared distances; the first of equals.

    Args:
        points: Shape ``(n, d)``, n at least 1.
        count: Clusters wanted, at least 1. There are fewer where fewer points differ.
        rng: Decides the seeds.
    """
    best, best_cost = np.zeros(len(points), dtype=np.int64), np.inf
    for _ in range(_RESTARTS):
        labels, cost = _lloyd(points, _seeds(points, count, rng))
        if cost < best_cost:
            best, best_cost = labels, cost
    return in_order_of_occurrence(best)


def bipartition(similarities: Matrix64) -> Labels:
    """The two parts for which the greatest similarity across them is least; exact.

    Joining the most similar pair again and again until two parts are left leaves the weakest link of the maximum
    spanning tree uncut, so no other two parts have a smaller greatest similarity across.

    Args:
        similarities: Symmetric, shape ``(n, n)``, n at least 2.

    Returns:
        0 for the first's part and 1 for the other, shape ``(n,)``.

    Source: Sattler et al., TNNLS 2020, optimal bipartition.
    """
    count = len(similarities)
    first, second = np.triu_indices(count, k=1)
    part = np.arange(count)
    parts = count
    for pair in np.argsort(-similarities[first, second], kind="stable"):
        if parts == 2:
            break
        joined, kept = part[second[pair]], part[first[pair]]
        if joined != kept:
            part[part == joined] = kept
            parts -= 1
    return in_order_of_occurrence(part)


def in_order_of_occurrence(labels: NDArray[np.int64]) -> Labels:
    """The same clusters, numbered from 0 in the order in which they first occur."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _blocks(rows: Matrix32, others: Matrix32) -> Iterator[tuple[Matrix64, Matrix64]]:
    for start in range(0, rows.shape[1], _BLOCK):
        columns = slice(start, start + _BLOCK)
        yield rows[:, columns].astype(np.float64), others[:, columns].astype(np.float64)


def _squares(rows: Matrix32) -> NDArray[np.float64]:
    total = np.zeros(len(rows))
    for block, _ in _blocks(rows, rows[:0]):
        total += np.square(block).sum(axis=1)
    return total


def _seeds(points: Matrix64, count: int, rng: np.random.Generator) -> Matrix64:
    chosen = [int(rng.integers(len(points)))]
    nearest = np.square(points - points[chosen[0]]).sum(axis=1)
    while len(chosen) < count and nearest.max() > 0:
        chosen.append(int(rng.choice(len(points), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(axis=1))
    return points[chosen]


def _lloyd(points: Matrix64, centres: Matrix64) -> tuple[NDArray[np.int64], float]:
    """Labels and the sum of squared distances to the centres; a cluster that loses all its points is given up."""
    labels = np.full(len(points), -1)
    for _ in range(_LLOYD_STEPS):
        squares = np.square(points[:, None] - centres).sum(axis=2)  # (n, k)
        before, labels = labels, squares.argmin(axis=1)
        if np.array_equal(before, labels):
            break
        used, labels = np.unique(labels, return_inverse=True)
        centres = np.stack([points[labels == each].mean(axis=0) for each in range(len(used))])
    return labels, float(np.square(points - centres[labels]).sum())
