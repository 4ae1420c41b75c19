"""The steady state of averaging among peers, and the gain that undoes its compression of parameters.

Each round, node i's next model is a weighted mean of those that it hears: row i of a row-stochastic matrix. After many
rounds every node holds the same mean of the initial models, in which node i's counts ``v_i``: v is the matrix's left
eigenvector of eigenvalue 1, with sum 1. Initial parameters of standard deviation σ therefore end at σ ||v||, and
multiplying them with the gain 1 / ||v|| brings them back to σ.

Source: [Gain Eq. 4] and Sec. 4.3. There A' averages by columns (the denominator sums over k of A_kj); here models are
rows, as everywhere in this project, so the matrix is the transpose of the Gain paper's A'.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.types import Vector64
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, with_diagonal

TOLERANCE: Final = 1e-12
"""Error of power iteration, as the sum of absolute differences of v, estimated from how fast its steps shrink."""
MAX_STEPS: Final = 20_000
_CHECKED_EVERY: Final = 10
_ROUNDING: Final = 2e-15
"""A step as short as this is rounding."""
_IN_BALANCE: Final = 1e-10
"""Logarithms of two opposite flows that differ by less are taken for equal; power iteration has the last word."""


def averaging_matrix(graph: Graph) -> MixingMatrix:
    """The transpose of [Gain Eq. 4]'s A': every node averages its own model, of weight 1, and those that it hears."""
    targets = graph.targets
    totals = 1 + np.bincount(targets, weights=graph.weights, minlength=graph.num_nodes)  # (n,)
    return with_diagonal(graph, graph.weights / totals[targets], 1 / totals)


def gain(matrix: MixingMatrix) -> float:
    """1 / ||v_steady||: between 1 and √n, and √n where all nodes are equally central.

    Source: [Gain Sec. 4.3], "exact".
    """
    return float(1 / np.sqrt(np.square(steady_state(matrix)).sum()))


def steady_state(matrix: MixingMatrix) -> Vector64:
    """v_steady of averages over an undirected graph: how much each node's initial model counts in the end.

    Averages by the weights of links, by amounts of data or by Metropolis-Hastings are in detailed balance, so v follows
    along a spanning tree and power iteration only confirms it. For ``averaging_matrix`` without weights it is
    ``(k_i + 1) / sum(k_j + 1)``.

    Args:
        matrix: Who averages whom is averaged in turn.

    Returns:
        Shape ``(n,)``, all above 0, sum 1.

    Raises:
        ParameterError: Some node's model never reaches some other, or power iteration does not settle.
    """
    found, arcs = _search(matrix)
    if len(found) < matrix.num_nodes:
        raise ParameterError(
            f"the graph is not connected: {matrix.num_nodes - len(found)} of {matrix.num_nodes} nodes do not exchange "
            "models with node 0, directly or through others, so there is no common steady state; connect them or "
            "leave them out"
        )
    return power_iteration(matrix, start=_balanced(matrix, found, arcs))


def power_iteration(matrix: MixingMatrix, *, start: Vector64 | None = None, max_steps: int = MAX_STEPS) -> Vector64:
    """The left eigenvector of eigenvalue 1 by ``v <- v P``, for a matrix whose nodes all reach one another.

    Args:
        matrix: Row-stochastic P. Where a diagonal entry is 0 the walk may be periodic, and ``(I + P) / 2``, which has
            the same v, is taken instead.
        start: Shape ``(n,)``, sum 1; by default uniform, which is v already where columns sum to 1, too.
        max_steps: At which to give up.

    Returns:
        Shape ``(n,)``, sum 1.
    """
    count, rows = matrix.num_nodes, matrix.rows
    keeps = 0.0 if np.count_nonzero(matrix.columns == rows) == count else 0.5
    v: Vector64 = np.full(count, 1 / count) if start is None else start
    before = np.inf
    for step in range(max_steps):
        moved = keeps * v
        moved += (1 - keeps) * np.bincount(matrix.columns, weights=v[rows] * matrix.values, minlength=count)
        if step % _CHECKED_EVERY == 0:
            change = float(np.abs(moved - v).sum())
            rate = (change / before) ** (1 / _CHECKED_EVERY) if before else 0.0
            if change <= _ROUNDING or (rate < 1 and change * rate / (1 - rate) <= TOLERANCE and step > 0):
                return _of_sum_one(moved)
            before = change
        v = moved
    raise ParameterError(
        f"the steady state of {count} nodes has not settled after {max_steps} steps: this graph mixes very slowly; "
        "add links"
    )


def _search(matrix: MixingMatrix) -> tuple[list[int], list[int]]:
    """Nodes that node 0 reaches, in the order in which they are found, and the entry by which each was.

    In plain Python: its time depends on the number of arcs alone, not on how many hops a ring has.
    """
    begins, heard = matrix.offsets.tolist(), matrix.columns.tolist()
    seen = bytearray(matrix.num_nodes)
    seen[0] = 1
    found, arcs = [0], [-1]
    for node in found:
        begin = begins[node]
        for place, other in enumerate(heard[begin : begins[node + 1]]):
            if not seen[other]:
                seen[other] = 1
                found.append(other)
                arcs.append(begin + place)
        if len(found) == matrix.num_nodes:
            break  # most arcs lead back: in a random graph this comes early
    return found, arcs


def _balanced(matrix: MixingMatrix, found: list[int], arcs: list[int]) -> Vector64 | None:
    """The v with ``v_i P_ij = v_j P_ji`` on all arcs, up to rounding; None where there is none.

    Logarithms, so that long chains do not overflow.
    """
    rows: NDArray[np.int64] = matrix.rows
    turned = np.argsort(matrix.columns * matrix.num_nodes + rows, kind="stable")  # the place of each arc's opposite
    logs = np.log(matrix.values)
    ratios = logs - logs[turned]  # of arc (i, j): log v_j - log v_i
    froms, steps = rows[arcs].tolist(), ratios[arcs].tolist()
    levels = [0.0] * matrix.num_nodes
    for node, source, step in zip(found[1:], froms[1:], steps[1:], strict=True):
        levels[node] = levels[source] + step
    level = np.array(levels)
    if (np.abs(level[rows] + ratios - level[matrix.columns]) > _IN_BALANCE).any():
        return None
    return _of_sum_one(np.exp(level - level.max()))


def _of_sum_one(v: Vector64) -> Vector64:
    shares: Vector64 = v / v.sum()
    return shares
