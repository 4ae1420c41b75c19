"""Mixing matrices that a person can work out, and against formulas written entry by entry."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.errors import ParameterError, ShapeMismatchError
from fl_simulator.graphs.topology import Graph, decentralised_average, metropolis_hastings
from tests.reference import mixing


@st.composite
def graphs(draw: st.DrawFn, *, directed: bool = False) -> Graph:
    count = draw(st.integers(1, 7))
    pairs = [(i, j) for i in range(count) for j in range(count) if (i != j if directed else i < j)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    weights = draw(st.lists(st.floats(0.1, 10), min_size=len(chosen), max_size=len(chosen)))
    make = Graph.from_arcs if directed else Graph.from_edges
    return make(count, chosen, weights=weights)


def arcs_of(graph: Graph) -> mixing.Arcs:
    pairs = zip(graph.targets.tolist(), graph.sources.tolist(), strict=True)
    return dict(zip(pairs, graph.weights.tolist(), strict=True))


def test_w_of_the_papers_two_cliques() -> None:
    # D-Cliques, Sec. Clique Averaging: two cliques of ten and one edge between them, from 1 to 10. Node 0 is the
    # paper's A (neighbours only in its clique), node 10 its B, which has the edge to the other clique's node 1.
    cliques = [range(10), range(10, 20)]
    edges = [pair for clique in cliques for pair in combinations(clique, 2)]
    w = metropolis_hastings(Graph.from_edges(20, [*edges, (1, 10)])).dense()
    assert w[0, 0] == pytest.approx(12 / 110)
    assert w[0, 1] == pytest.approx(10 / 110)
    assert w[0, 2:10] == pytest.approx([11 / 110] * 8)
    assert w[10, 10:] == pytest.approx([1 / 11] * 10)
    assert w[10, 1] == pytest.approx(1 / 11)
    assert w[10, [0, 2]].tolist() == [0, 0]


@given(graphs())
def test_metropolis_hastings_is_the_papers(graph: Graph) -> None:
    w = metropolis_hastings(graph).dense()
    assert w.tolist() == pytest.approx(np.array(mixing.metropolis_hastings(graph.num_nodes, arcs_of(graph))))
    assert np.array_equal(w, w.T)
    assert w.sum(axis=0) == pytest.approx(np.ones(graph.num_nodes))


def test_metropolis_hastings_needs_both_directions_but_not_both_weights() -> None:
    with pytest.raises(ParameterError, match="undirected"):
        metropolis_hastings(Graph.from_arcs(2, [(0, 1)]))
    one_way = Graph.from_arcs(2, [(0, 1), (1, 0)], weights=[1.0, 9.0])
    assert metropolis_hastings(one_way).dense().tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_an_average_goes_by_data_and_by_the_weight_of_edges() -> None:
    # 0 hears 1 (10 samples, weight 2) and 2 (30 samples, weight 1), and has 50 itself: 50, 20 and 30 of 100.
    graph = Graph.from_edges(3, [(0, 1), (0, 2)], weights=[2.0, 1.0])
    examples = np.array([50, 10, 30])
    assert decentralised_average(graph, examples, include_self=True).dense()[0].tolist() == [0.5, 0.2, 0.3]
    assert decentralised_average(graph, examples, include_self=False).dense()[0].tolist() == [0.0, 0.4, 0.6]


def test_equal_data_give_one_over_one_more_than_the_neighbours() -> None:
    # Uncoordinated initialisation, below Eq. (3): beta = 1 / (k + 1).
    path = Graph.from_edges(3, [(0, 1), (1, 2)])
    w = decentralised_average(path, np.array([7, 7, 7]), include_self=True).dense()
    assert w == pytest.approx(np.array([[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]]))


def test_who_hears_nobody_or_nobody_with_data_keeps_the_own_model() -> None:
    graph = Graph.from_arcs(3, [(1, 2)])
    for include_self in (True, False):
        w = decentralised_average(graph, np.array([4, 0, 0]), include_self=include_self)
        assert w.dense().tolist() == np.eye(3).tolist()


@given(graphs(directed=True), st.lists(st.integers(0, 50), min_size=7, max_size=7), st.booleans())
def test_a_decentralised_average_is_the_papers(graph: Graph, examples: list[int], include_self: bool) -> None:  # noqa: FBT001
    given_examples = examples[: graph.num_nodes]
    w = decentralised_average(graph, np.array(given_examples), include_self=include_self).dense()
    naive = mixing.decentralised_average(graph.num_nodes, arcs_of(graph), given_examples, include_self=include_self)
    assert w == pytest.approx(np.array(naive))
    assert w.sum(axis=1) == pytest.approx(np.ones(graph.num_nodes))


@given(graphs(directed=True), st.lists(st.integers(0, 50), min_size=7, max_size=7))
def test_rows_ascend_and_hold_no_zero(graph: Graph, examples: list[int]) -> None:
    matrix = decentralised_average(graph, np.array(examples[: graph.num_nodes]), include_self=True)
    assert (matrix.values > 0).all()
    for start, end in zip(matrix.offsets[:-1], matrix.offsets[1:], strict=True):
        assert (np.diff(matrix.columns[start:end]) > 0).all()


def test_numbers_of_examples_are_checked() -> None:
    graph = Graph.from_edges(2, [(0, 1)])
    with pytest.raises(ShapeMismatchError):
        decentralised_average(graph, np.array([1]), include_self=True)
    with pytest.raises(ParameterError, match="fewer than 0"):
        decentralised_average(graph, np.array([1, -1]), include_self=True)
