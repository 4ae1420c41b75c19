"""Mixing matrices: with what weights each node averages the models that it hears with its own.

Row i says what node i's next model is made of; rows sum to 1. Here the weights are decided and nothing is averaged:
``fl_simulator.graphs.mixing.mix`` multiplies.

* ``metropolis_hastings``: D-Cliques, Eq. metro; symmetric, so its columns sum to 1 as well.
* ``decentralised_average``: DecAvg, by the amount of data (DecDiff, Eq. 4 and 6; uncoordinated initialisation, Eq. 3).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError, ShapeMismatchError
from fl_core.types import Vector64
from fl_simulator.graphs.topology.graph import Graph


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
        """Rows, n."""
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

    Args:
        graph: Undirected: the weights need both degrees, and give a symmetric matrix only where both hear.

    Raises:
        ParameterError: somebody hears a node that does not hear back.

    Source: D-Cliques, Eq. (metro).
    """
    degrees = graph.degrees  # (n,)
    if not graph.unweighted().is_symmetric:
        raise ParameterError(
            "Metropolis-Hastings weights need an undirected graph; take links down in both directions, "
            "or average by data (decentralised_average)"
        )
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

    Raises:
        ShapeMismatchError: not one number of examples for each node.
        ParameterError: a negative number of examples.

    Source: DecDiff+VT, Eq. (4) and (6); uncoordinated initialisation, Eq. (3). Deviation: Eq. (4) as reported divides
    by the sum of omega alone, under which weights sum to less than 1 and models shrink; the sum of omega p, as in
    Eq. (6), makes it the average that the text speaks of.
    """
    if num_examples.shape != (graph.num_nodes,):
        raise ShapeMismatchError(f"{num_examples.shape} numbers of examples for {graph.num_nodes} nodes")
    if (num_examples < 0).any():
        raise ParameterError("a node cannot have fewer than 0 examples")
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
