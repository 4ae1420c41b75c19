"""From samples, or amounts of each label, to clients' shares: what partitioners have in common."""

import numpy as np
from numpy.typing import NDArray

from fl_simulator.engine.population import Share


def split(samples: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator, cluster: int) -> Share:
    """A client's samples, shuffled and parted into those to train and those to test on."""
    order = rng.permutation(samples)
    middle = max(round(len(order) * train_fraction), 1)
    return Share(order[:middle], order[middle:], cluster)


def proportional(total: int, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """``total`` in whole parts, each within one of its exact proportion, shape ``(n,)``.

    The line from 0 to ``total`` is cut where the exact parts end, and the cuts are rounded: the parts sum to ``total``.

    Args:
        total: At least 0.
        weights: At least 0 each, shape ``(n,)``, n >= 1; one of them above 0.
    """
    ends = np.cumsum(weights)
    cuts: NDArray[np.int64] = np.rint(ends / ends[-1] * total).astype(np.int64)
    return np.diff(cuts, prepend=0)


def deal(
    labels: NDArray[np.int64], amounts: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """One share for each client, all of cluster 0: of each label as many samples as it is to get, drawn at random.

    Args:
        labels: Of all samples, shape ``(n,)``.
        amounts: Row l is for the l-th smallest label that occurs, shape ``(labels, clients)``; no row sums to more
            than the label has.
        train_fraction: Part of each client's samples to train on.
        rng: Every draw.
    """
    pools = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    ends = np.cumsum(amounts, axis=1)
    parts = [np.split(pool, end) for pool, end in zip(pools, ends, strict=True)]
    return [
        split(np.concatenate([part[client] for part in parts]), train_fraction=train_fraction, rng=rng, cluster=0)
        for client in range(amounts.shape[1])
    ]
