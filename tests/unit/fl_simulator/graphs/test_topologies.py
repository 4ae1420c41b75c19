"""What each topology is known by, on numbers that a person can draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError
from fl_core.types import JsonScalar
from fl_simulator.graphs.graph import Edge, Graph
from fl_simulator.graphs.topology import build_graph
from fl_simulator.graphs.topology.interclique import interconnect
from tests.reference import topologies


def drawn(name: str, count: int, *, seed: int = 0, **params: JsonScalar) -> Graph:
    return build_graph(name, params, count=count, rng=np.random.default_rng(seed))


def edges(name: str, count: int, **params: JsonScalar) -> set[Edge]:
    graph = drawn(name, count, **params)
    return {(a, b) for a, b in zip(graph.targets.tolist(), graph.sources.tolist(), strict=True) if a < b}


def test_a_ring_of_four_of_two_and_of_one() -> None:
    assert edges("ring", 4) == {(0, 1), (1, 2), (2, 3), (0, 3)}
    assert edges("ring", 2) == {(0, 1)}
    assert edges("ring", 1) == set()


@settings(deadline=None)
@given(st.integers(2, 30), st.integers(1, 5), st.integers(1, 3))
def test_a_small_world_is_the_papers(count: int, clique_size: int, neighbourhood: int) -> None:
    n_cliques = -(-count // clique_size)
    cliques = [list(map(int, part)) for part in np.array_split(np.arange(count), n_cliques)]
    expected = set() if n_cliques == 1 else topologies.small_world(cliques, ns=neighbourhood)
    assert set(map(frozenset, interconnect("small-world", cliques, neighbourhood=neighbourhood))) == expected


def test_a_grid_of_six_has_two_rows_of_three() -> None:
    assert edges("grid", 6) == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}


def test_a_torus_of_nine_joins_the_ends_of_rows_and_columns() -> None:
    rows = {(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (6, 7), (7, 8), (6, 8)}
    columns = {(0, 3), (3, 6), (0, 6), (1, 4), (4, 7), (1, 7), (2, 5), (5, 8), (2, 8)}
    assert edges("torus", 9) == rows | columns


def test_a_side_of_two_has_one_edge_and_not_two() -> None:
    assert edges("torus", 4) == edges("grid", 4) == {(0, 1), (0, 2), (1, 3), (2, 3)}


def test_a_hundred_nodes_make_a_grid_of_ten_by_ten() -> None:
    graph = drawn("grid", 100)
    assert graph.num_edges == 2 * 10 * 9
    assert sorted(set(graph.degrees.tolist())) == [2, 3, 4]


@pytest.mark.parametrize(("count", "dimensions", "degree"), [(10, 1, 2), (25, 2, 4), (64, 3, 6), (81, 4, 8)])
def test_on_a_torus_everybody_has_two_neighbours_in_each_dimension(count: int, dimensions: int, degree: int) -> None:
    assert set(drawn("torus", count, dimensions=dimensions).degrees.tolist()) == {degree}


@given(st.integers(1, 200), st.integers(1, 4))
def test_a_lattice_is_whole_or_refused(count: int, dimensions: int) -> None:
    try:
        graph = drawn("grid", count, dimensions=dimensions)
    except ParameterError:
        assert dimensions > 1
        assert count >= 2**dimensions
    else:
        assert graph.is_connected


def test_a_prime_number_of_nodes_is_no_grid() -> None:
    with pytest.raises(ParameterError, match="7 nodes do not fill 2 dimensions, as 4 nodes would"):
        drawn("grid", 7)


def test_everybody_has_k_neighbours_in_a_regular_graph() -> None:
    assert set(drawn("k-regular", 50, k=5).degrees.tolist()) == {5}
    with pytest.raises(ParameterError, match="one edge with one end"):
        drawn("k-regular", 51, k=5)
    with pytest.raises(ParameterError, match="more than k = 5 nodes"):
        drawn("k-regular", 5, k=5)


def test_barabasi_albert_brings_m_edges_a_node_and_makes_hubs() -> None:
    graph = drawn("barabasi-albert", 500, m=3)
    assert graph.num_edges == 3 * (500 - 3)
    assert graph.degrees.max() > 5 * graph.degrees.mean()
    with pytest.raises(ParameterError, match="lower m"):
        drawn("barabasi-albert", 3, m=3)


def test_erdos_renyi_has_p_of_all_pairs() -> None:
    # 50 nodes have 1,225 pairs, of which p = 0.2 are 245, give or take 14 (one standard deviation).
    found = [drawn("erdos-renyi", 50, seed=seed, p=0.2).num_edges for seed in range(10)]
    assert np.mean(found) == pytest.approx(245, abs=3 * 14 / 10**0.5)


def test_erdos_renyi_is_drawn_until_connected_or_says_what_to_change() -> None:
    # At p = 0.1 and 25 nodes a graph is connected about one time in ten.
    assert all(drawn("erdos-renyi", 25, seed=seed, p=0.1).is_connected for seed in range(20))
    with pytest.raises(ParameterError, match=r"none of 1000 draws connected 50 nodes; raise p = 0.01.*0.078"):
        drawn("erdos-renyi", 50, p=0.01)


def test_a_heavy_tail_has_few_large_degrees_and_many_small_ones() -> None:
    degrees = drawn("configuration", 2000, gamma=2.5, minimum=3).degrees
    # p(3) / p(6) = 2 ** 2.5 = 5.7; erased edges and chance move it a little.
    ratio = np.count_nonzero(degrees == 3) / np.count_nonzero(degrees == 6)
    assert 4.5 < ratio < 7
    assert degrees.max() > 50
    assert np.median(degrees) <= 4


def test_a_configuration_needs_room_for_the_smallest_degree() -> None:
    with pytest.raises(ParameterError, match="more than minimum = 3 nodes"):
        drawn("configuration", 3)


@pytest.mark.parametrize("name", ["erdos-renyi", "barabasi-albert", "k-regular", "configuration"])
def test_another_seed_gives_another_graph(name: str) -> None:
    assert drawn(name, 24, seed=1).sources.tolist() != drawn(name, 24, seed=2).sources.tolist()
