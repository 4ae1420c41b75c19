"""v_steady and the gain, by hand and against the printed equation."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError, ShapeMismatchError
from fl_simulator.graphs.gain import (
    averaging_matrix,
    gain,
    gain_of,
    power_iteration,
    steady_state,
    steady_state_of,
)
from fl_simulator.graphs.topology.graph import Graph
from fl_simulator.graphs.topology.mixing import MixingMatrix, decentralised_average, metropolis_hastings
from tests.reference import initialisation as naive

CLOSE = 1e-9  # power iteration stops at 1e-12, dense eigenvectors of nearly periodic walks lose three digits more
PATH = Graph.from_edges(3, [(0, 1), (1, 2)])
STAR = Graph.from_edges(4, [(0, 1), (0, 2), (0, 3)])

weights = st.floats(0.1, 10)


@st.composite
def undirected(draw: st.DrawFn, *, weighted: bool) -> Graph:
    """A tree and some more edges: connected."""
    count = draw(st.integers(1, 9))
    edges = {(draw(st.integers(0, node - 1)), node) for node in range(1, count)}
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges |= set(draw(st.lists(st.sampled_from(pairs), max_size=8))) if pairs else set()
    given = draw(st.lists(weights, min_size=len(edges), max_size=len(edges))) if weighted else None
    return Graph.from_edges(count, sorted(edges), weights=given)


@st.composite
def directed(draw: st.DrawFn) -> Graph:
    """A ring one way round and some more arcs: strongly connected."""
    count = draw(st.integers(2, 8))
    arcs = {(node, (node + 1) % count) for node in range(count)}
    pairs = [(a, b) for b in range(count) for a in range(count) if a != b]
    arcs |= set(draw(st.lists(st.sampled_from(pairs), max_size=8)))
    given = draw(st.lists(weights, min_size=len(arcs), max_size=len(arcs)))
    return Graph.from_arcs(count, sorted(arcs), weights=given)


def expected(graph: Graph, own: list[float]) -> np.ndarray:
    return naive.eigenvector_of_one(naive.eq_4(naive.heard_of(graph), own))


def test_a_path_of_three_counts_degrees_plus_one() -> None:
    assert steady_state(PATH) == pytest.approx([2 / 7, 3 / 7, 2 / 7])
    assert gain(PATH) == pytest.approx(7 / math.sqrt(17))  # 7 / √(4 + 9 + 4)


def test_a_star_of_four_counts_its_middle_twice() -> None:
    assert steady_state(STAR) == pytest.approx([4 / 10, 2 / 10, 2 / 10, 2 / 10])
    assert gain(STAR) == pytest.approx(10 / math.sqrt(28))


def test_a_node_alone_counts_fully() -> None:
    alone = Graph.from_edges(1, [])
    assert steady_state(alone).tolist() == [1.0]
    assert gain(alone) == 1


def test_averaging_among_three_on_a_path() -> None:
    assert averaging_matrix(PATH).dense() == pytest.approx(
        np.array([[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]])
    )


def test_a_heavier_self_weight_takes_the_place_of_the_identity() -> None:
    # Sums of weights: 3 + 1, 1 + 2, 1 + 1.
    assert steady_state(PATH, self_weight=[3, 1, 1]) == pytest.approx([4 / 9, 3 / 9, 2 / 9])
    assert averaging_matrix(PATH, self_weight=[3, 1, 1]).dense()[0] == pytest.approx([3 / 4, 1 / 4, 0])


def test_edges_of_different_weight_count_by_their_sums() -> None:
    # Self weight 1 and edges of 1 and 4: sums 2, 6, 5.
    graph = Graph.from_edges(3, [(0, 1), (1, 2)], weights=[1, 4])
    assert steady_state(graph) == pytest.approx([2 / 13, 6 / 13, 5 / 13])


def test_who_is_heard_by_more_counts_more_in_a_directed_graph() -> None:
    # 0 hears 1 and 2, 1 hears 2, 2 hears 0. v = vP with P = [[1,1,1]/3, [0,1,1]/2, [1,0,1]/2] by hand:
    # v0/3 + v2/2 = v0, v0/3 + v1/2 = v1, hence v2 = 4/3 v0 and v1 = 2/3 v0.
    graph = Graph.from_arcs(3, [(0, 1), (0, 2), (1, 2), (2, 0)])
    assert steady_state(graph) == pytest.approx([3 / 9, 2 / 9, 4 / 9])


def test_it_is_what_a_model_becomes_that_is_averaged_often() -> None:
    graph = Graph.from_arcs(3, [(0, 1), (0, 2), (1, 2), (2, 0)])
    often = np.linalg.matrix_power(averaging_matrix(graph).dense(), 200)
    assert often == pytest.approx(np.tile(steady_state(graph), (3, 1)))


def test_amounts_of_data_count_twice_over() -> None:
    # Reversible: v_i in proportion to D_i times the data that i averages over. Path, D = 1, 2, 3: 1*3, 2*6, 3*5.
    matrix = decentralised_average(PATH, np.array([1, 2, 3]), include_self=True)
    assert steady_state_of(matrix) == pytest.approx([3 / 30, 12 / 30, 15 / 30])


def test_metropolis_hastings_makes_all_equal() -> None:
    assert steady_state_of(metropolis_hastings(STAR)) == pytest.approx([1 / 4] * 4)


def test_two_that_only_swap_models_have_a_steady_state_too() -> None:
    swap = decentralised_average(Graph.from_edges(2, [(0, 1)]), np.array([1, 1]), include_self=False)
    assert steady_state_of(swap) == pytest.approx([0.5, 0.5])
    assert power_iteration(swap, start=np.array([0.9, 0.1])) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_long_ring_is_answered_though_it_mixes_slowly(*, symmetric: bool) -> None:
    # Amounts of data that differ by a factor of 50 around a ring of 2,000 nodes: power iteration alone would take
    # millions of steps, so this shows that detailed balance is used.
    count = 2000
    ring = Graph.from_edges(count, [(node, (node + 1) % count) for node in range(count)])
    data = 10 + (np.arange(count) % 491)
    matrix = decentralised_average(ring, data, include_self=True)
    around = data + np.roll(data, 1) + np.roll(data, -1)
    assert steady_state_of(matrix) == pytest.approx(data * around / (data * around).sum(), rel=1e-9)
    if not symmetric:
        one_way = Graph.from_arcs(count, [(node, (node + 1) % count) for node in range(count)])
        with pytest.raises(ParameterError, match="mixes very slowly"):
            power_iteration(decentralised_average(one_way, data, include_self=True), max_steps=50)


@pytest.mark.parametrize(
    "graph",
    [
        Graph.from_edges(4, [(0, 1), (2, 3)]),
        Graph.from_arcs(3, [(0, 1), (1, 0), (2, 0)]),
        Graph.from_arcs(3, [(0, 1), (1, 0), (0, 2)]),
        Graph.from_edges(2, []),
    ],
    ids=["two parts", "nobody hears 2", "2 hears nobody", "no edges"],
)
def test_a_graph_in_which_some_never_hear_of_others_is_refused(graph: Graph) -> None:
    for work in (steady_state, lambda each: steady_state_of(averaging_matrix(each))):
        with pytest.raises(ParameterError, match="not strongly connected"):
            work(graph)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), [1, 1, 0]])
def test_a_self_weight_is_a_number_above_zero(weight: float | list[float]) -> None:
    with pytest.raises(ParameterError, match="above 0"):
        steady_state(PATH, self_weight=weight)


def test_self_weights_are_one_or_one_for_each() -> None:
    with pytest.raises(ShapeMismatchError):
        steady_state(PATH, self_weight=[1, 1])


@settings(deadline=None)
@given(undirected(weighted=False))
def test_undirected_it_is_the_eigenvector_of_eq_4(graph: Graph) -> None:
    assert steady_state(graph) == pytest.approx(expected(graph, [1] * graph.num_nodes), abs=CLOSE)


@settings(deadline=None)
@given(undirected(weighted=True), weights)
def test_weighted_it_is_the_eigenvector_of_eq_4(graph: Graph, own: float) -> None:
    wanted = expected(graph, [own] * graph.num_nodes)
    assert steady_state(graph, self_weight=own) == pytest.approx(wanted, abs=CLOSE)
    assert steady_state_of(averaging_matrix(graph, self_weight=own)) == pytest.approx(wanted, abs=CLOSE)
    assert power_iteration(averaging_matrix(graph, self_weight=own)) == pytest.approx(wanted, abs=CLOSE)


@settings(deadline=None)
@given(directed(), st.data())
def test_directed_it_is_the_eigenvector_of_eq_4(graph: Graph, data: st.DataObject) -> None:
    own = data.draw(st.lists(weights, min_size=graph.num_nodes, max_size=graph.num_nodes))
    assert steady_state(graph, self_weight=own) == pytest.approx(expected(graph, own), abs=CLOSE)


@settings(deadline=None)
@given(undirected(weighted=True), st.data())
def test_averaging_is_the_transpose_of_eq_4(graph: Graph, data: st.DataObject) -> None:
    own = data.draw(st.lists(weights, min_size=graph.num_nodes, max_size=graph.num_nodes))
    matrix = averaging_matrix(graph, self_weight=own)
    assert matrix.dense() == pytest.approx(naive.eq_4(naive.heard_of(graph), own).T)
    assert all(
        np.diff(matrix.columns[a:b]).min(initial=1) > 0
        for a, b in zip(matrix.offsets, matrix.offsets[1:], strict=False)
    )


@settings(deadline=None)
@given(st.integers(2, 7), st.data())
def test_it_is_refused_where_the_transitive_closure_says_so(count: int, data: st.DataObject) -> None:
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    graph = Graph.from_arcs(count, sorted(set(data.draw(st.lists(st.sampled_from(pairs), max_size=20)))))
    if naive.is_strongly_connected(naive.heard_of(graph)):
        assert steady_state(graph).min() > 0
    else:
        with pytest.raises(ParameterError):
            steady_state(graph)


@settings(deadline=None)
@given(undirected(weighted=False))
def test_no_gain_is_above_the_root_of_the_nodes_and_regular_graphs_reach_it(graph: Graph) -> None:
    root = math.sqrt(graph.num_nodes)
    assert gain(graph) * (1 + 1e-12) >= 1
    if len(set(graph.degrees.tolist())) == 1:
        assert gain(graph) == pytest.approx(root)
    else:
        assert gain(graph) < root


@settings(deadline=None)
@given(directed(), st.randoms(use_true_random=False))
def test_numbers_of_nodes_do_not_matter(graph: Graph, random: object) -> None:
    order = list(range(graph.num_nodes))
    random.shuffle(order)  # type: ignore[attr-defined]
    named = np.array(order)
    renamed = Graph.from_arcs(
        graph.num_nodes, np.stack([named[graph.targets], named[graph.sources]], axis=1), weights=graph.weights
    )
    assert steady_state(renamed)[named] == pytest.approx(steady_state(graph), abs=CLOSE)
    assert gain(renamed) == pytest.approx(gain(graph))


@settings(deadline=None)
@given(undirected(weighted=False), st.data())
def test_decavg_by_data_is_the_dense_eigenvector(graph: Graph, data: st.DataObject) -> None:
    assume(graph.num_nodes > 1)
    amounts = data.draw(st.lists(st.integers(1, 100), min_size=graph.num_nodes, max_size=graph.num_nodes))
    matrix = decentralised_average(graph, np.array(amounts), include_self=True)
    assert steady_state_of(matrix) == pytest.approx(naive.eigenvector_of_one(matrix.dense().T), abs=CLOSE)


def test_a_walk_in_no_balance_on_mutual_links_is_not_taken_for_one() -> None:
    # A triangle round which more goes one way than the other: doubly stochastic, so v is uniform, and not balanced.
    third = MixingMatrix(
        np.array([0, 3, 6, 9]), np.array([0, 1, 2] * 3), np.array([0.2, 0.7, 0.1, 0.1, 0.2, 0.7, 0.7, 0.1, 0.2])
    )
    assert steady_state_of(third) == pytest.approx([1 / 3] * 3)


def test_a_gain_of_a_steady_state() -> None:
    assert gain_of(np.array([0.6, 0.4])) == pytest.approx(1 / math.sqrt(0.52))
