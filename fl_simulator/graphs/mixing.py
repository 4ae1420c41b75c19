"""Mixing: every node's next model as a weighted average of its own and those that it hears.

Row i of a mixing matrix says what node i's next model is made of; rows sum to 1.

* ``metropolis_hastings``: D-Cliques, Eq. metro; symmetric, so its columns sum to 1 as well.
* ``decentralised_average``: DecAvg, by the amount of data (DecDiff, Eq. 4 and 6; uncoordinated initialisation, Eq. 3).

``mix`` multiplies such a sparse matrix of n rows with n models. It waits for memory, not for arithmetic, so models go
through it in blocks of columns, each small enough that all n rows of a block stay in a core's cache while the matrix
asks for them again and again. Torch's bag-of-rows kernel does the sums, twice as fast as its sparse matrices and 20
times as fast as a dense product (``benchmarks/graphs.py`` measures them). A sum is always taken in the order of its
row, so the bytes are the same with any number of threads; they differ in the last bit between processors.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ShapeMismatchError
from fl_core.types import Matrix32, Vector64
from fl_simulator.graphs.graph import Graph

_BLOCK_BYTES: Final = 1 << 20
"""Of all rows together: what a core's own cache holds."""
_SHARED_PRODUCTS: Final = 1 << 24
"""Products from which several threads are worth beginning; they meet once, at the end."""
_MIN_COLUMNS: Final = 128
"""Below this a row is so short that finding it costs more than reading it."""


@dataclass(frozen=True, slots=True, eq=False)
class MixingMatrix:
    """A square matrix in compressed rows, each ascending and summing to 1, the diagonal among them.

    Args:
        offsets: Where each row begins, shape ``(n + 1,)``.
        columns: Whose model a weight is for, shape ``(z,)``.
        values: The weights, in [0, 1], shape ``(z,)``.
    """

    offsets: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Vector64

    @property
    def num_nodes(self) -> int:
        return len(self.offsets) - 1

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each weight, shape ``(z,)``: written out beside ``columns``."""
        return np.repeat(np.arange(self.num_nodes), np.diff(self.offsets))

    def dense(self) -> Vector64:
        """The matrix written out, shape ``(n, n)``; for small ones and for products of dense ones."""
        full = np.zeros((self.num_nodes, self.num_nodes))
        full[self.rows, self.columns] = self.values
        return full


def metropolis_hastings(graph: Graph) -> MixingMatrix:
    """Metropolis-Hastings weights: 1 / (max(degree i, degree j) + 1) for neighbours, and what is left for oneself.

    Weights of edges are not read; who hears nobody keeps the own model.

    Source: D-Cliques, Eq. (metro).
    """
    degrees = graph.degrees  # (n,)
    larger = np.maximum(degrees[graph.targets], degrees[graph.sources])  # (a,)
    shares = np.reciprocal(larger.astype(np.float64) + 1)  # (a,)
    return with_diagonal(graph, shares, 1 - _row_sums(graph, shares))


def decentralised_average(graph: Graph, num_examples: NDArray[np.int64], *, include_self: bool) -> MixingMatrix:
    """The average of all that are heard by their amount of data times the weight of the edge (DecAvg).

    Args:
        graph: Who hears whom; its weights are DecDiff's omega. Who hears nobody keeps the own model.
        num_examples: Each node's training samples, at least 0, shape ``(n,)``. A node that has none among any that
            count keeps its own model.
        include_self: Whether the own model counts, with weight 1 on the node's edge to itself: True for the averages
            that replace a model (DecDiff, Eq. 4; initialisation, Eq. 3), False for the one that DecDiff moves towards
            (Eq. 6); the diagonal is then 0, and left out.

    Source: DecDiff+VT, Eq. (4) and (6); uncoordinated initialisation, Eq. (3). Deviation: Eq. (4) as reported divides
    by the sum of omega alone, under which weights sum to less than 1 and models shrink; the sum of omega p, as in
    Eq. (6), makes it the average that the text speaks of.
    """
    amounts = num_examples.astype(np.float64)
    shares = graph.weights * amounts[graph.sources]  # (a,)
    own = amounts if include_self else np.zeros(graph.num_nodes)  # (n,)
    totals = own + _row_sums(graph, shares)  # (n,)
    alone = totals == 0
    totals[alone] = 1
    return with_diagonal(graph, shares / totals[graph.targets], np.where(alone, 1, own / totals))


def with_diagonal(graph: Graph, shares: Vector64, own: Vector64) -> MixingMatrix:
    """The matrix of ``shares`` for the arcs, ``(a,)``, and ``own`` on the diagonal, ``(n,)``; zeros are left out."""
    nodes = np.arange(graph.num_nodes)
    rows = np.concatenate([graph.targets, nodes])
    columns = np.concatenate([graph.sources, nodes])
    values = np.concatenate([shares, own])
    rows, columns, values = (each[values != 0] for each in (rows, columns, values))
    order = np.argsort(rows * graph.num_nodes + columns, kind="stable")
    lengths = np.bincount(rows, minlength=graph.num_nodes)
    return MixingMatrix(np.concatenate([[0], np.cumsum(lengths)]), columns[order], values[order])


def _row_sums(graph: Graph, shares: Vector64) -> Vector64:
    return np.bincount(graph.targets, weights=shares, minlength=graph.num_nodes).astype(np.float64, copy=False)


def mix(matrix: MixingMatrix, models: Matrix32) -> Matrix32:
    """The product of the mixing matrix and the models.

    Args:
        matrix: Row i: what node i's next model is made of, shape ``(n, n)``; weights are rounded to float32.
        models: One row for each node, shape ``(n, p)``.

    Returns:
        The mixed models, shape ``(n, p)``, a new array. Rows that are all the same, as on a complete graph, are summed
        once.
    """
    n = matrix.num_nodes
    if models.ndim != 2 or len(models) != n:
        raise ShapeMismatchError(f"models of shape {models.shape} for a mixing matrix of {n} nodes")
    weights = matrix.values.astype(np.float32)
    if len(weights) == n * n and (weights.reshape(n, n) == weights[:n]).all():
        once = _sums(matrix.offsets[:2], matrix.columns[:n], weights[:n], models)  # (1, p)
        return np.repeat(once, n, axis=0)
    return _sums(matrix.offsets, matrix.columns, weights, models)


def _sums(
    offsets: NDArray[np.int64], columns: NDArray[np.int64], weights: NDArray[np.float32], models: Matrix32
) -> Matrix32:
    """The weighted sums of models that compressed rows ask for, a new array."""
    import torch  # noqa: PLC0415 -- seconds that reading a scenario need not wait

    from fl_simulator.training.threads import Workers  # noqa: PLC0415 -- as above

    rows = torch.from_numpy(np.require(models, requirements="W"))  # torch warns of arrays that it must not write
    members, begins, shares = (torch.from_numpy(each) for each in (columns, offsets, weights))
    mixed = torch.empty(len(offsets) - 1, models.shape[1])
    fitting = _BLOCK_BYTES // models[:, :1].nbytes
    width = max(_MIN_COLUMNS, fitting // _MIN_COLUMNS * _MIN_COLUMNS)

    @torch.no_grad()
    def sum_block(start: int) -> None:
        mixed[:, start : start + width] = torch.nn.functional.embedding_bag(
            members,
            rows[:, start : start + width],
            begins,
            mode="sum",
            per_sample_weights=shares,
            include_last_offset=True,
        )

    large = len(columns) * models.shape[1] >= _SHARED_PRODUCTS
    with closing(Workers(0 if large else 1)) as workers:
        workers.share_evenly(sum_block, range(0, models.shape[1], width))
    return mixed.numpy()
