"""Mixing: every node's next model at once, as a weighted sum of the models that it hears.

One multiplication of a sparse matrix of n rows with the n models. It waits for memory, not for arithmetic, so models
go through it in blocks of columns, each small enough that all n rows of a block stay in a core's cache while the
matrix asks for them again and again. With torch its bag-of-rows kernel does the sums (twice as fast as its sparse
matrices, 20 times as fast as a dense product; ``benchmarks/graphs.py`` measures them); without torch numpy does.

A sum is always taken in the order of its row, so the bytes are the same with any number of threads. They differ
in the last bit between torch and numpy, and between processors.
"""

from contextlib import closing
from typing import Final

import numpy as np

from fl_core.errors import ShapeMismatchError
from fl_core.types import Matrix32
from fl_simulator.graphs.topology.mixing import MixingMatrix

_BLOCK_BYTES: Final = 1 << 20
"""Of all rows together: what a core's own cache holds."""
_SHARED_PRODUCTS: Final = 1 << 24
"""Products from which several threads are worth beginning; they meet once, at the end."""
_MIN_COLUMNS: Final = 128
"""Below this a row is so short that finding it costs more than reading it."""


def mix(matrix: MixingMatrix, models: Matrix32) -> Matrix32:
    """The product of the mixing matrix and the models.

    Args:
        matrix: Row i: what node i's next model is made of, shape ``(n, n)``; weights are rounded to float32.
        models: One row for each node, shape ``(n, p)``.

    Returns:
        The mixed models, shape ``(n, p)``, a new array. Rows that are all the same, as on a complete graph, are summed
        once.

    Raises:
        ShapeMismatchError: not one model for each row of the matrix.
    """
    if models.ndim != 2 or len(models) != matrix.num_nodes:
        raise ShapeMismatchError(f"models of shape {models.shape} for a mixing matrix of {matrix.num_nodes} nodes")
    if matrix.num_nodes > 1 and _all_rows_alike(matrix):
        once = _sums(_first_row(matrix), models)  # (1, p)
        return np.repeat(once, matrix.num_nodes, axis=0)
    return _sums(matrix, models)


def _all_rows_alike(matrix: MixingMatrix) -> bool:
    """Whether all rows are full and equal as float32, which is what is multiplied."""
    n = matrix.num_nodes
    if len(matrix.columns) != n * n:
        return False
    values = matrix.values.astype(np.float32).reshape(n, n)
    return bool((values == values[0]).all())


def _first_row(matrix: MixingMatrix) -> MixingMatrix:
    end = matrix.offsets[1]
    return MixingMatrix(matrix.offsets[:2], matrix.columns[:end], matrix.values[:end])


def _sums(matrix: MixingMatrix, models: Matrix32) -> Matrix32:
    try:
        return _with_torch(matrix, models)
    except ModuleNotFoundError:  # only training needs torch
        return with_numpy(matrix, models)


def _block_columns(num_models: int) -> int:
    fitting = _BLOCK_BYTES // (num_models * np.dtype(np.float32).itemsize)
    return max(_MIN_COLUMNS, fitting // _MIN_COLUMNS * _MIN_COLUMNS)


def _with_torch(matrix: MixingMatrix, models: Matrix32) -> Matrix32:
    import torch  # noqa: PLC0415 -- seconds that a simulation without torch need not wait

    from fl_simulator.training.threads import Workers  # noqa: PLC0415 -- as above

    rows = torch.from_numpy(
        np.require(models, requirements="W")
    )  # (n, p); torch warns of arrays that it must not write
    columns = torch.from_numpy(matrix.columns)
    offsets = torch.from_numpy(matrix.offsets)
    weights = torch.from_numpy(matrix.values.astype(np.float32))
    mixed = torch.empty(matrix.num_nodes, models.shape[1])
    width = _block_columns(len(models))

    @torch.no_grad()
    def sum_block(start: int) -> None:
        mixed[:, start : start + width] = torch.nn.functional.embedding_bag(
            columns,
            rows[:, start : start + width],
            offsets,
            mode="sum",
            per_sample_weights=weights,
            include_last_offset=True,
        )

    starts = range(0, models.shape[1], width)
    large = len(matrix.columns) * models.shape[1] >= _SHARED_PRODUCTS
    with closing(Workers(0 if large else 1)) as workers:
        workers.share_evenly(sum_block, starts)
    return mixed.numpy()


def with_numpy(matrix: MixingMatrix, models: Matrix32) -> Matrix32:
    """What ``mix`` does where torch is not installed, about three times as slow."""
    weights = matrix.values.astype(np.float32)
    mixed = np.empty((matrix.num_nodes, models.shape[1]), dtype=np.float32)
    for node, (start, end) in enumerate(zip(matrix.offsets[:-1], matrix.offsets[1:], strict=True)):
        # einsum and not @: BLAS may part the sum among its threads.
        np.einsum("k,kp->p", weights[start:end], models[matrix.columns[start:end]], out=mixed[node])
    return mixed
