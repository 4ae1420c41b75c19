"""How unequally samples are shared out: the Gini index, 0 where all have as much, near 1 where one has all.

DecDiff (Sec. V-3) tells its allocations apart by the Gini index, "in the range between 0.7 and 0.85", of each class
among the nodes; here the classes' mean stands for a run.
"""

import numpy as np
from numpy.typing import NDArray

from fl_core.types import Vector64


def gini_index(amounts: NDArray[np.int64] | Vector64) -> float:
    """The mean difference of two of the amounts, as a share of twice their mean: Σᵢⱼ |xᵢ - xⱼ| / (2 n Σᵢ xᵢ).

    Args:
        amounts: At least 0 each, shape ``(n,)``, n at least 1; where all are 0 they are equal.

    Returns:
        In [0, 1 - 1/n].
    """
    ordered = np.sort(np.asarray(amounts, dtype=np.float64))
    count, total = len(ordered), float(ordered.sum())
    if total == 0:
        return 0.0
    ranks = 2 * np.arange(1, count + 1) - count - 1
    return float(ranks @ ordered) / (count * total)


def label_gini(label_counts: NDArray[np.int64]) -> float:
    """The Gini index of each label among clients, averaged over the labels that occur."""
    occurring = label_counts[:, label_counts.sum(axis=0) > 0]
    return float(np.mean([gini_index(column) for column in occurring.T]))
