"""Graphs that a person can draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError, ShapeMismatchError
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology import build_graph
from tests.reference.topologies import hops

TRIANGLE_AND_TAIL = Graph.from_edges(4, [(0, 1), (2, 0), (1, 2), (2, 3)])


def test_rows_say_who_hears_whom_in_order() -> None:
    assert TRIANGLE_AND_TAIL.offsets.tolist() == [0, 2, 4, 7, 8]
    assert TRIANGLE_AND_TAIL.sources.tolist() == [1, 2, 0, 2, 0, 1, 3, 2]
    assert TRIANGLE_AND_TAIL.weights.tolist() == [1.0] * 8
    assert TRIANGLE_AND_TAIL.in_neighbours(2).tolist() == [0, 1, 3]
    assert TRIANGLE_AND_TAIL.targets.tolist() == [0, 0, 1, 1, 2, 2, 2, 3]


def test_an_edge_is_two_arcs() -> None:
    assert (TRIANGLE_AND_TAIL.num_nodes, TRIANGLE_AND_TAIL.num_edges, TRIANGLE_AND_TAIL.num_arcs) == (4, 4, 8)
    assert TRIANGLE_AND_TAIL.degrees.tolist() == [2, 2, 3, 1]
    assert TRIANGLE_AND_TAIL.edges_per_node == 2.0
    assert TRIANGLE_AND_TAIL.messages_per_node() == 2.0
    assert TRIANGLE_AND_TAIL.messages_per_node(clique_averaging=True) == 4.0


def test_weights_go_with_their_edges() -> None:
    graph = Graph.from_edges(3, [(1, 2), (0, 1)], weights=[5.0, 0.5])
    assert graph.sources.tolist() == [1, 0, 2, 1]
    assert graph.weights.tolist() == [0.5, 0.5, 5.0, 5.0]


def test_two_triangles_are_not_connected_and_a_bridge_connects_them() -> None:
    triangles = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]
    assert not Graph.from_edges(6, triangles).is_connected
    assert Graph.from_edges(6, [*triangles, (2, 3)]).is_connected
    assert Graph.from_edges(1, []).is_connected


def test_links_that_are_down_are_left_out_and_nodes_stay() -> None:
    up = np.array([True, False, True, False, True, True, False, False])
    some = TRIANGLE_AND_TAIL.only(up)
    assert [some.in_neighbours(node).tolist() for node in range(4)] == [[1], [0], [0, 1], []]
    assert TRIANGLE_AND_TAIL.only(~up).num_arcs == 4


@given(st.lists(st.booleans(), min_size=8, max_size=8))
def test_only_keeps_the_arcs_that_are_up(up: list[bool]) -> None:
    some = TRIANGLE_AND_TAIL.only(np.array(up))
    arcs = zip(TRIANGLE_AND_TAIL.targets.tolist(), TRIANGLE_AND_TAIL.sources.tolist(), strict=True)
    expected = [arc for arc, is_up in zip(arcs, up, strict=True) if is_up]
    assert list(zip(some.targets.tolist(), some.sources.tolist(), strict=True)) == expected


def test_cliques_stay_when_links_are_down() -> None:
    graph = Graph.from_edges(4, [(0, 1), (2, 3), (1, 2)], cliques=((0, 1), (2, 3)))
    assert graph.only(np.zeros(6, dtype=np.bool_)).cliques == ((0, 1), (2, 3))


@pytest.mark.parametrize(
    ("edges", "problem"),
    [([(0, 3)], "not among 0 to 2"), ([(-1, 0)], "not among"), ([(1, 1)], "itself"), ([(0, 1), (1, 0)], "twice")],
)
def test_edges_that_make_no_graph_are_refused(edges: list[tuple[int, int]], problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        Graph.from_edges(3, edges)


def test_weights_and_cliques_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ParameterError, match="above 0"):
        Graph.from_edges(2, [(0, 1)], weights=[0.0])
    with pytest.raises(ShapeMismatchError):
        Graph.from_edges(2, [(0, 1)], weights=[1.0, 1.0])
    with pytest.raises(ParameterError, match="exactly once"):
        Graph.from_edges(3, [(0, 1)], cliques=((0, 1),))
    with pytest.raises(ParameterError, match="at least 1 node"):
        Graph.from_edges(0, [])
    with pytest.raises(ShapeMismatchError):
        TRIANGLE_AND_TAIL.only(np.ones(7, dtype=np.bool_))


def test_random_weights_lie_in_their_range_and_are_the_same_both_ways() -> None:
    graph = build_graph("complete", {}, count=20, rng=np.random.default_rng(3), weights=(0.5, 2.0))
    turned = {(a, b): weight for a, b, weight in zip(graph.sources, graph.targets, graph.weights, strict=True)}
    assert all(turned[a, b] == w for a, b, w in zip(graph.targets, graph.sources, graph.weights, strict=True))
    assert 0.5 <= graph.weights.min() < 0.6
    assert 1.9 < graph.weights.max() <= 2.0
    with pytest.raises(ParameterError, match="above 0"):
        build_graph("complete", {}, count=2, rng=np.random.default_rng(3), weights=(0.0, 1.0))


def test_label_counts_are_of_as_many_nodes() -> None:
    with pytest.raises(ShapeMismatchError, match="3 nodes"):
        build_graph(
            "d-cliques", {}, count=3, rng=np.random.default_rng(0), label_counts=np.ones((2, 2), dtype=np.int64)
        )


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [("ring", 1, 0), ("ring", 2, 1), ("ring", 9, 4), ("ring", 300, 150), ("complete", 20, 1), ("grid", 12, 5)],
)
def test_diameters_that_one_can_count(name: str, count: int, expected: int) -> None:
    assert build_graph(name, {}, count=count, rng=np.random.default_rng(0)).diameter() == expected


@settings(deadline=None)
@given(st.integers(3, 30), st.integers(0, 100))
def test_a_diameter_is_the_longest_of_all_shortest_paths(count: int, seed: int) -> None:
    graph = build_graph("barabasi-albert", {"m": 1}, count=count, rng=np.random.default_rng(seed))
    pairs = {frozenset(pair) for pair in zip(graph.targets.tolist(), graph.sources.tolist(), strict=True)}
    assert graph.diameter() == max(max(hops(count, pairs, node).values()) for node in range(count))


def test_what_is_not_connected_has_no_diameter() -> None:
    with pytest.raises(ParameterError, match="not connected"):
        Graph.from_edges(5, [(0, 1), (2, 3)]).diameter()


def test_a_diameter_found_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build_graph("grid", {}, count=100, rng=np.random.default_rng(0))
    monkeypatch.setattr("fl_simulator.graphs.graph._GATHER_BYTES", 200)
    assert graph.diameter() == 18
