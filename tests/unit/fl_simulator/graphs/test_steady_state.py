"""v_steady and the gain, by hand and against the reported equation."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError
from fl_simulator.graphs.gain.steady_state import averaging_matrix, gain, power_iteration, steady_state
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, decentralised_average, metropolis_hastings
from tests.reference import initialisation as naive

CLOSE = 1e-9  # power iteration stops at 1e-12, dense eigenvectors of nearly periodic walks lose three digits more
PATH = Graph.from_edges(3, [(0, 1), (1, 2)])
STAR = Graph.from_edges(4, [(0, 1), (0, 2), (0, 3)])
SWAP = decentralised_average(Graph.from_edges(2, [(0, 1)]), np.array([1, 1]), include_self=False)


@st.composite
def graphs(draw: st.DrawFn, *, weighted: bool) -> Graph:
    """A tree and some more edges: connected."""
    count = draw(st.integers(1, 9))
    edges = {(draw(st.integers(0, node - 1)), node) for node in range(1, count)}
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges |= set(draw(st.lists(st.sampled_from(pairs), max_size=8))) if pairs else set()
    given = draw(st.lists(st.floats(0.1, 10), min_size=len(edges), max_size=len(edges))) if weighted else None
    return Graph.from_edges(count, sorted(edges), weights=given)


def test_a_path_of_three_counts_degrees_plus_one() -> None:
    assert steady_state(averaging_matrix(PATH)) == pytest.approx([2 / 7, 3 / 7, 2 / 7])
    assert gain(averaging_matrix(PATH)) == pytest.approx(7 / math.sqrt(17))  # 7 / √(4 + 9 + 4)


def test_a_node_alone_counts_fully() -> None:
    alone = averaging_matrix(Graph.from_edges(1, []))
    assert steady_state(alone).tolist() == [1.0]
    assert gain(alone) == 1


def test_edges_of_different_weight_count_by_their_sums() -> None:
    # Self weight 1 and edges of 1 and 4: sums 2, 6, 5.
    graph = Graph.from_edges(3, [(0, 1), (1, 2)], weights=[1, 4])
    assert steady_state(averaging_matrix(graph)) == pytest.approx([2 / 13, 6 / 13, 5 / 13])


def test_amounts_of_data_count_twice_over() -> None:
    # Reversible: v_i in proportion to D_i times the data that i averages over. Path, D = 1, 2, 3: 1*3, 2*6, 3*5.
    matrix = decentralised_average(PATH, np.array([1, 2, 3]), include_self=True)
    assert steady_state(matrix) == pytest.approx([3 / 30, 12 / 30, 15 / 30])


def test_metropolis_hastings_makes_all_equal() -> None:
    assert steady_state(metropolis_hastings(STAR)) == pytest.approx([1 / 4] * 4)


def test_two_that_only_swap_models_have_a_steady_state_too() -> None:
    assert steady_state(SWAP) == pytest.approx([0.5, 0.5])
    assert power_iteration(SWAP, start=np.array([0.9, 0.1])) == pytest.approx([0.5, 0.5])


def test_a_long_ring_is_answered_though_it_mixes_slowly() -> None:
    # Amounts of data that differ by a factor of 50 around a ring of 2,000 nodes: power iteration alone would take
    # millions of steps, so this shows that detailed balance is used.
    count = 2000
    ring = Graph.from_edges(count, [(node, (node + 1) % count) for node in range(count)])
    data = 10 + (np.arange(count) % 491)
    matrix = decentralised_average(ring, data, include_self=True)
    around = data + np.roll(data, 1) + np.roll(data, -1)
    assert steady_state(matrix) == pytest.approx(data * around / (data * around).sum(), rel=1e-9)
    with pytest.raises(ParameterError, match="mixes very slowly"):
        power_iteration(matrix, max_steps=50)


@pytest.mark.parametrize("graph", [Graph.from_edges(4, [(0, 1), (2, 3)]), Graph.from_edges(2, [])])
def test_a_graph_in_which_some_never_hear_of_others_is_refused(graph: Graph) -> None:
    with pytest.raises(ParameterError, match="not connected"):
        steady_state(averaging_matrix(graph))


@settings(deadline=None)
@given(st.booleans().flatmap(lambda weighted: graphs(weighted=weighted)))
def test_it_is_the_eigenvector_of_eq_4(graph: Graph) -> None:
    reported = naive.eq_4(naive.heard_of(graph))
    matrix = averaging_matrix(graph)
    assert matrix.dense() == pytest.approx(reported.T)
    assert steady_state(matrix) == pytest.approx(naive.eigenvector_of_one(reported), abs=CLOSE)
    assert power_iteration(matrix) == pytest.approx(naive.eigenvector_of_one(reported), abs=CLOSE)


@settings(deadline=None)
@given(graphs(weighted=False), st.data())
def test_decavg_by_data_is_the_dense_eigenvector(graph: Graph, data: st.DataObject) -> None:
    assume(graph.num_nodes > 1)
    amounts = data.draw(st.lists(st.integers(1, 100), min_size=graph.num_nodes, max_size=graph.num_nodes))
    matrix = decentralised_average(graph, np.array(amounts), include_self=True)
    assert steady_state(matrix) == pytest.approx(naive.eigenvector_of_one(matrix.dense().T), abs=CLOSE)


@settings(deadline=None)
@given(graphs(weighted=False))
def test_no_gain_is_above_the_root_of_the_nodes_and_regular_graphs_reach_it(graph: Graph) -> None:
    root, found = math.sqrt(graph.num_nodes), gain(averaging_matrix(graph))
    assert found * (1 + 1e-12) >= 1
    if len(set(graph.degrees.tolist())) == 1:
        assert found == pytest.approx(root)
    else:
        assert found < root


def test_a_walk_in_no_balance_on_mutual_links_is_not_taken_for_one() -> None:
    # A triangle round which more goes one way than the other: doubly stochastic, so v is uniform, and not balanced.
    third = MixingMatrix(
        np.array([0, 3, 6, 9]), np.array([0, 1, 2] * 3), np.array([0.2, 0.7, 0.1, 0.1, 0.2, 0.7, 0.7, 0.1, 0.2])
    )
    assert steady_state(third) == pytest.approx([1 / 3] * 3)
