"""The steady state of averaging among peers, and the gain that undoes its compression of parameters.

Each round, node i's next model is a weighted mean of those that it hears: row i of a row-stochastic matrix. After many
rounds every node holds the same mean of the initial models, in which node i's counts ``v_i``: v is the matrix's left
eigenvector of eigenvalue 1, with sum 1. Initial parameters of standard deviation σ therefore end at σ ||v||, and
multiplying them with the gain 1 / ||v|| brings them back to σ.

Source: Uncoordinated initialisation, Eq. (4) and Sec. 4.3. There A' averages by columns (the denominator sums over
k of A_kj); here models are rows, as everywhere in this project, so the matrix is the transpose of the Gain paper's A'.

* Undirected graphs, weighted or not: closed form, v_i in proportion to the sum of i's weights, its own included.
  Unweighted, that is ``(k_i + 1) / sum(k_j + 1)``.
* Matrices in detailed balance (DecAvg by amounts of data on an undirected graph): along a spanning tree.
* All others: power iteration.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError, ShapeMismatchError
from fl_core.types import Vector64
from fl_simulator.graphs.topology.graph import Graph
from fl_simulator.graphs.topology.mixing import MixingMatrix, with_diagonal

SelfWeight: TypeAlias = float | Sequence[float] | Vector64
"""What a node's own model weighs beside its neighbours': one number for all, or one for each."""

TOLERANCE: Final = 1e-12
"""Error of power iteration, as the sum of absolute differences of v, estimated from how fast its steps shrink."""
MAX_STEPS: Final = 20_000
_CHECKED_EVERY: Final = 10
_ROUNDING: Final = 2e-15
"""A step as short as this is rounding."""
_IN_BALANCE: Final = 1e-10
"""Logarithms of two opposite flows that differ by less are taken for equal; power iteration has the last word."""


def averaging_matrix(graph: Graph, *, self_weight: SelfWeight = 1.0) -> MixingMatrix:
    """A' of the graph: every node averages what it hears and its own model (the transpose of the Gain paper's).

    Args:
        graph: Who hears whom; its weights are A.
        self_weight: What stands in the place of the identity matrix I; above 0.

    Raises:
        ParameterError: A self weight is not a number above 0.
        ShapeMismatchError: Not one self weight for each node.

    Source: Uncoordinated initialisation, Eq. (4) and the end of Sec. 4.3.
    """
    own, targets = _self_weights(graph, self_weight), graph.targets
    totals = own + np.bincount(targets, weights=graph.weights, minlength=graph.num_nodes)  # (n,)
    return with_diagonal(graph, graph.weights / totals[targets], own / totals)


def steady_state(graph: Graph, *, self_weight: SelfWeight = 1.0) -> Vector64:
    """v_steady of a graph: how much each node's initial model counts in the end.

    Args:
        graph: Who hears whom; everybody must reach everybody.
        self_weight: As in ``averaging_matrix``.

    Returns:
        Shape ``(n,)``, all above 0, sum 1.

    Raises:
        ParameterError: Some node's model never reaches some other; a self weight is not a number above 0; or power
            iteration does not settle (a large directed graph that mixes very slowly).
        ShapeMismatchError: Not one self weight for each node.
    """
    heard_as_often = np.array_equal(np.bincount(graph.sources, minlength=graph.num_nodes), graph.degrees)
    if not (heard_as_often and graph.is_symmetric):  # the first is quicker than sorting the arcs
        return steady_state_of(averaging_matrix(graph, self_weight=self_weight))
    own = _self_weights(graph, self_weight)
    _require_connected(graph.offsets, graph.sources)
    totals: Vector64 = own + np.bincount(graph.targets, weights=graph.weights, minlength=graph.num_nodes)
    return _of_sum_one(totals)


def steady_state_of(matrix: MixingMatrix) -> Vector64:
    """v_steady of any mixing matrix: its left eigenvector of eigenvalue 1.

    Returns:
        Shape ``(n,)``, all above 0, sum 1.

    Raises:
        ParameterError: Some node's model never reaches some other, or power iteration does not settle.
    """
    rows = matrix.rows
    turned = np.argsort(matrix.columns * matrix.num_nodes + rows, kind="stable")
    is_mutual = np.array_equal(matrix.columns[turned], rows) and np.array_equal(rows[turned], matrix.columns)
    start: Vector64 | None = None
    if is_mutual:
        _require_connected(matrix.offsets, matrix.columns)
        start = _balanced(matrix, rows, turned)
    else:
        _require_connected(matrix.offsets, matrix.columns, backwards=(rows[turned], matrix.columns[turned]))
    return power_iteration(matrix, start=start)


def power_iteration(
    matrix: MixingMatrix,
    *,
    start: Vector64 | None = None,
    tolerance: float = TOLERANCE,
    max_steps: int = MAX_STEPS,
) -> Vector64:
    """The left eigenvector of eigenvalue 1 by ``v <- v P``, for a matrix whose nodes all reach one another.

    Args:
        matrix: Row-stochastic P. Where a diagonal entry is 0 the walk may be periodic, and ``(I + P) / 2``, which has
            the same v, is taken instead.
        start: Shape ``(n,)``, sum 1; by default uniform, which is v already where columns sum to 1, too.
        tolerance: Estimated sum of absolute errors at which to stop.
        max_steps: At which to give up.

    Returns:
        Shape ``(n,)``, sum 1.

    Raises:
        ParameterError: No end after ``max_steps``.
    """
    count, rows = matrix.num_nodes, matrix.rows
    keeps = 0.0 if bool(np.isin(np.arange(count), matrix.columns[matrix.columns == rows]).all()) else 0.5
    v: Vector64 = np.full(count, 1 / count) if start is None else start
    before = np.inf
    for step in range(max_steps):
        moved = keeps * v
        moved += (1 - keeps) * np.bincount(matrix.columns, weights=v[rows] * matrix.values, minlength=count)
        if step % _CHECKED_EVERY == 0:
            change = float(np.abs(moved - v).sum())
            rate = (change / before) ** (1 / _CHECKED_EVERY) if before else 0.0
            if change <= _ROUNDING or (rate < 1 and change * rate / (1 - rate) <= tolerance and step > 0):
                return _of_sum_one(moved)
            before = change
        v = moved
    raise ParameterError(
        f"the steady state of {count} nodes has not settled after {max_steps} steps: this graph mixes very slowly; "
        "make it undirected, add links, or allow more steps"
    )


def gain(graph: Graph, *, self_weight: SelfWeight = 1.0) -> float:
    """1 / ||v_steady|| of a graph: between 1 and √n, and √n where all nodes are equally central.

    Raises:
        ParameterError, ShapeMismatchError: As ``steady_state``.

    Source: Uncoordinated initialisation, Sec. 4.3, "exact".
    """
    return gain_of(steady_state(graph, self_weight=self_weight))


def gain_of(steady: Vector64) -> float:
    """1 / ||v_steady|| of a steady state of shape ``(n,)``."""
    return float(1 / np.sqrt(np.square(steady).sum()))


def _self_weights(graph: Graph, given: SelfWeight) -> Vector64:
    weights = np.asarray(given, dtype=np.float64)
    if weights.shape not in {(), (graph.num_nodes,)}:
        raise ShapeMismatchError(f"self weights of shape {weights.shape} for {graph.num_nodes} nodes")
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise ParameterError("a node's weight of its own model must be a number above 0")
    return np.broadcast_to(weights, (graph.num_nodes,))


def _of_sum_one(v: Vector64) -> Vector64:
    shares: Vector64 = v / v.sum()
    return shares


def _require_connected(
    offsets: NDArray[np.int64],
    columns: NDArray[np.int64],
    *,
    backwards: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> None:
    """Refuse unless all reach all. ``backwards``: arcs' targets and sources by source, where some arc is not mutual."""
    count = len(offsets) - 1
    reached = len(_search(offsets, columns)[0])
    if backwards is not None and reached == count:
        targets, sources = backwards
        starts = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=count))])
        reached = len(_search(starts, targets)[0])
    if reached < count:
        raise ParameterError(
            f"the graph is not strongly connected: {count - reached} of {count} nodes do not exchange models with node "
            "0, directly or through others, so there is no common steady state; connect them or leave them out"
        )


def _search(offsets: NDArray[np.int64], columns: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Nodes that node 0 reaches, in the order in which they are found, and the arc by which each was.

    In plain Python: its time depends on the number of arcs alone, not on how many hops a ring has.
    """
    begins, heard = offsets.tolist(), columns.tolist()
    count = len(begins) - 1
    seen = bytearray(count)
    seen[0] = 1
    found, arcs = [0], [-1]
    for node in found:
        begin = begins[node]
        for place, other in enumerate(heard[begin : begins[node + 1]]):
            if not seen[other]:
                seen[other] = 1
                found.append(other)
                arcs.append(begin + place)
        if len(found) == count:
            break  # most arcs lead back: in a random graph this comes early
    return found, arcs


def _balanced(matrix: MixingMatrix, rows: NDArray[np.int64], turned: NDArray[np.int64]) -> Vector64 | None:
    """The v with ``v_i P_ij = v_j P_ji`` on all arcs, up to rounding; None where there is none.

    ``turned`` is the place of each arc's opposite. Logarithms, so that long chains do not overflow.
    """
    logs = np.log(matrix.values)
    ratios = logs - logs[turned]  # of arc (i, j): log v_j - log v_i
    found, arcs = _search(matrix.offsets, matrix.columns)
    froms, steps = rows[arcs].tolist(), ratios[arcs].tolist()
    levels = [0.0] * matrix.num_nodes
    for node, source, step in zip(found[1:], froms[1:], steps[1:], strict=True):
        levels[node] = levels[source] + step
    level = np.array(levels)
    if (np.abs(level[rows] + ratios - level[matrix.columns]) > _IN_BALANCE).any():
        return None
    return _of_sum_one(np.exp(level - level.max()))
