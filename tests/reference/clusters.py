"""Modularity as Eq. 6 prints it: a double sum over all pairs."""

from collections.abc import Sequence


def modularity(weights: Sequence[Sequence[float]], community: Sequence[int]) -> float:
    """Q of Eq. 6 for a symmetric weight matrix and the community of each node."""
    nodes = range(len(weights))
    degree = [sum(weights[i]) for i in nodes]
    two_m = sum(degree)
    if two_m == 0:
        return 0.0
    return (
        sum(weights[i][j] - degree[i] * degree[j] / two_m for i in nodes for j in nodes if community[i] == community[j])
        / two_m
    )
