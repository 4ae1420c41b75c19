"""How far parameters lie apart: across nodes (σ_an) and across the parameters of a node (σ_ap)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ShapeMismatchError
from fl_core.types import Vector64

_BLOCK_VALUES: Final = 1 << 17
"""Values taken at a time, as float64 1 MiB: they stay in the cache between mean and deviation."""


def parameter_spread(models: NDArray[np.floating]) -> tuple[float, float]:
    """Standard deviations across nodes and across parameters.

    Args:
        models: One node in each row, shape ``(n, p)``, n and p at least 1. The Gain paper's W is its transpose.

    Returns:
        ``(sigma_an, sigma_ap)``: the mean over parameters of the standard deviation across nodes, and the mean over
        nodes of the standard deviation across parameters. Of the whole population (divided by n, by p), in float64.

    Raises:
        ShapeMismatchError: ``models`` is not a matrix, or empty.

    Source: Uncoordinated initialisation, Sec. 3.1.
    """
    if models.ndim != 2 or not models.size:
        raise ShapeMismatchError(f"models are a matrix (nodes, parameters) with values in it, not {models.shape}")
    count, size = models.shape
    width, height = max(1, _BLOCK_VALUES // count), max(1, _BLOCK_VALUES // size)
    across_nodes = sum(float(_deviations(models[:, start : start + width].T).sum()) for start in range(0, size, width))
    across_parameters = sum(
        float(_deviations(models[start : start + height]).sum()) for start in range(0, count, height)
    )
    return across_nodes / size, across_parameters / count


def _deviations(rows: NDArray[np.floating]) -> Vector64:
    """The standard deviation of each row; the mean goes first, so that nothing cancels."""
    values = rows.astype(np.float64)
    values -= values.mean(axis=1, keepdims=True)
    deviations: Vector64 = np.sqrt(np.einsum("ij,ij->i", values, values) / values.shape[1])
    return deviations
