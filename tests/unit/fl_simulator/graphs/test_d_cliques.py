"""D-Cliques: the paper's counts, its algorithm, and swaps for data that are skewed in any way."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.types import JsonScalar
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology import build_graph
from fl_simulator.graphs.topology.d_cliques import greedy_cliques, swapped_cliques
from fl_simulator.graphs.topology.interclique import interconnect
from tests.reference import topologies


def one_class_each(count: int, classes: int, *, seed: int = 0) -> NDArray[np.int64]:
    """The paper's nodes: samples of one class each, every class on as many nodes."""
    labels = np.random.default_rng(seed).permutation(np.arange(count) % classes)
    return np.eye(classes, dtype=np.int64)[labels] * 45


def d_cliques(label_counts: NDArray[np.int64], *, seed: int = 0, **params: JsonScalar) -> Graph:
    return data_aware("d-cliques", label_counts, seed=seed, **params)


def data_aware(name: str, label_counts: NDArray[np.int64], *, seed: int = 0, **params: JsonScalar) -> Graph:
    rng = np.random.default_rng(seed)
    return build_graph(name, params, count=len(label_counts), rng=rng, label_counts=label_counts)


def skew(label_counts: NDArray[np.int64], cliques: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    return np.array([topologies.skew(label_counts.tolist(), list(clique)) for clique in cliques])


def between(graph: Graph) -> int:
    """Edges that join different cliques."""
    clique = np.empty(graph.num_nodes, dtype=np.int64)
    for number, members in enumerate(graph.cliques):
        clique[list(members)] = number
    return int(np.count_nonzero(clique[graph.targets] != clique[graph.sources])) // 2


def test_a_thousand_nodes_have_18_9_edges_and_send_37_8_messages() -> None:
    graph = d_cliques(one_class_each(1000, 10))
    assert graph.num_edges == 100 * 45 + 4950
    assert graph.edges_per_node == 18.9
    assert graph.messages_per_node(clique_averaging=True) == 37.8


def test_that_is_98_percent_fewer_edges_and_96_percent_fewer_messages_than_all_to_all() -> None:
    graph = d_cliques(one_class_each(1000, 10))
    everybody = build_graph("complete", {}, count=1000, rng=np.random.default_rng(0))
    assert everybody.edges_per_node == everybody.messages_per_node() == 999
    assert round(100 * (1 - graph.edges_per_node / 999)) == 98
    assert round(100 * (1 - graph.messages_per_node(clique_averaging=True) / 999)) == 96


def test_a_hundred_nodes_have_9_9_edges_and_one_between_cliques_at_most() -> None:
    graph = d_cliques(one_class_each(100, 10))
    assert graph.edges_per_node == 9.9
    assert sorted(set(graph.degrees.tolist())) == [9, 10]
    assert between(graph) == 10 * 9 / 2


@pytest.mark.parametrize("seed", range(3))
def test_a_small_world_of_cliques_has_the_papers_14_5_edges_when_digits_are_cut_off(seed: int) -> None:
    # Of 2,800 fingers about a dozen meet another one, so 14.57 are left and not 14.6. Rounded they are not the paper's
    # 14.5; its 22 % fewer edges than 18.9 are 22.9 % as well, where 14.5 would be 23.3 %: both have their digits cut.
    graph = d_cliques(one_class_each(1000, 10), inter_clique="small-world", seed=seed)
    assert math.floor(10 * graph.edges_per_node) / 10 == 14.5
    assert math.floor(100 * (1 - graph.edges_per_node / 18.9)) == 22


def test_cliques_have_one_node_of_each_class() -> None:
    label_counts = one_class_each(50, 5)
    graph = d_cliques(label_counts)
    assert len(graph.cliques) == 10
    for clique in graph.cliques:
        assert (label_counts[list(clique)] > 0).sum(axis=0).tolist() == [1] * 5
        assert all(b in graph.in_neighbours(a) for a, b in combinations(clique, 2))
    assert skew(label_counts, graph.cliques).tolist() == [0.0] * 10


def test_greedy_builds_one_clique_from_whoever_brings_a_class() -> None:
    # Classes of the nodes: {0}, {0}, {1}, {0, 1}. Node 3 is a clique by itself when it is picked first; otherwise it
    # completes the clique of the node before it, and the other two complete each other or are left over.
    label_counts = np.array([[1, 0], [1, 0], [0, 1], [1, 1]])
    found = set()
    for seed in range(30):
        try:
            found.add(frozenset(greedy_cliques(label_counts, rng=np.random.default_rng(seed))))
        except ParameterError as error:
            found.add(str(error).partition(";")[0])
    whole = {frozenset({(0, 2), (1, 3)}), frozenset({(0, 3), (1, 2)})}
    stuck = {each for each in found if isinstance(each, str)}
    assert found == whole | stuck
    assert all("nodes are left that do not hold all 2 classes" in each for each in stuck)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 100))
def test_greedy_is_the_papers_algorithm(num_cliques: int, classes: int, seed: int) -> None:
    label_counts = one_class_each(num_cliques * classes, classes, seed=seed)
    cliques = greedy_cliques(label_counts, rng=np.random.default_rng(seed))
    node_classes = [set(np.flatnonzero(row).tolist()) for row in label_counts]
    # With one class each, any order within a clique is one that the algorithm may pick.
    picks = [node for clique in cliques for node in clique]
    assert topologies.d_clique_construction(node_classes, picks) == [set(clique) for clique in cliques]


def test_greedy_says_when_the_papers_assumptions_do_not_hold() -> None:
    with pytest.raises(ParameterError, match=r"after 2 cliques, 1 nodes are left.*greedy-swap"):
        d_cliques(np.eye(2, dtype=np.int64)[[0, 1, 0, 1, 0]])


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 14), st.integers(1, 5), st.integers(1, 4), st.integers(0, 1000))
def test_no_swap_of_two_nodes_would_help_any_more(count: int, clique_size: int, classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    label_counts = rng.integers(0, 4, (count, classes))
    label_counts[0, 0] = 1
    cliques = [list(clique) for clique in swapped_cliques(label_counts, clique_size=clique_size, rng=rng)]
    counts = label_counts.tolist()
    assert sorted(node for clique in cliques for node in clique) == list(range(count))
    assert max(map(len, cliques)) - min(map(len, cliques)) <= 1
    found = skew(label_counts, cliques)
    for a, b in combinations(range(len(cliques)), 2):
        for i in cliques[a]:
            for j in cliques[b]:
                mine = [j if node == i else node for node in cliques[a]]
                theirs = [i if node == j else node for node in cliques[b]]
                swapped = topologies.skew(counts, mine) + topologies.skew(counts, theirs)
                assert swapped >= found[a] + found[b] - 1e-8


def test_swaps_reach_what_greedy_reaches_on_the_papers_nodes() -> None:
    label_counts = one_class_each(100, 10)
    graph = d_cliques(label_counts, construction="greedy-swap")
    assert len(graph.cliques) == 10
    assert skew(label_counts, graph.cliques).max() == pytest.approx(0)
    assert graph.edges_per_node == 9.9


def test_swaps_represent_a_skewed_population_far_better_than_chance() -> None:
    rng = np.random.default_rng(5)
    label_counts = np.array([rng.multinomial(45, rng.dirichlet([0.3] * 10)) for _ in range(200)])
    by_chance = tuple(tuple(part.tolist()) for part in np.array_split(rng.permutation(200), 20))
    arranged = d_cliques(label_counts, construction="greedy-swap", clique_size=10).cliques
    assert skew(label_counts, arranged).mean() < skew(label_counts, by_chance).mean() / 5


@pytest.mark.parametrize("remove", [1, 5])
def test_edges_are_removed_from_each_clique(remove: int) -> None:
    label_counts = one_class_each(100, 10)
    whole, thinned = d_cliques(label_counts), d_cliques(label_counts, remove=remove)
    assert thinned.num_edges == whole.num_edges - 10 * remove
    for clique in thinned.cliques:
        inside = [(a, b) for a, b in combinations(clique, 2) if b in thinned.in_neighbours(a)]
        assert len(inside) == 45 - remove
        assert topologies.hops(100, set(map(frozenset, inside)), clique[0]).keys() == set(clique)


def test_a_clique_that_would_fall_apart_is_refused() -> None:
    with pytest.raises(ParameterError, match="3 nodes does not hold together without 2 of its 3 edges"):
        d_cliques(one_class_each(6, 3), remove=2)


FOUR_PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_cliques_on_a_ring_have_an_edge_to_the_next() -> None:
    assert interconnect("ring", FOUR_PAIRS) == {(0, 2), (3, 4), (5, 6), (1, 7)}
    assert interconnect("ring", FOUR_PAIRS[:2]) == {(0, 2)}
    assert interconnect("ring", FOUR_PAIRS[:1]) == set()


def test_complete_joins_any_two_cliques_once_and_spreads_the_edges() -> None:
    # 0-2, then 1-4 (0 has one), then 0-6, then 3-5, then 2-7 (2 and 3 have one each), then 4-6.
    assert interconnect("complete", FOUR_PAIRS) == {(0, 2), (1, 4), (0, 6), (3, 5), (2, 7), (4, 6)}


def test_so_many_cliques_that_their_edges_would_fill_the_memory_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"up to 5,000 cliques.*'fractal'"):
        interconnect("complete", [[node] for node in range(5001)])


def test_fractal_joins_pairs_then_pairs_of_pairs() -> None:
    # Cliques of two: groups of two cliques. 0-2 and 4-6 within groups, then 1-5 between them.
    assert interconnect("fractal", FOUR_PAIRS) == {(0, 2), (4, 6), (1, 5)}


def test_a_thousand_nodes_in_a_fractal_have_45_edges_in_each_of_ten_groups_and_45_between() -> None:
    graph = d_cliques(one_class_each(1000, 10), inter_clique="fractal")
    assert between(graph) == 10 * 45 + 45
    assert graph.degrees.max() <= 9 + 1


@pytest.mark.parametrize("inter_clique", ["complete", "ring", "fractal", "small-world"])
def test_cliques_are_connected_however_they_are_joined(inter_clique: str) -> None:
    assert d_cliques(one_class_each(120, 4), inter_clique=inter_clique).is_connected


def test_everybody_has_k_neighbours_of_all_classes_in_a_random_diverse_graph() -> None:
    label_counts = one_class_each(100, 10)
    graph = data_aware("random-diverse", label_counts, seed=1)
    assert set(graph.degrees.tolist()) == {10}
    for node in range(100):
        assert (label_counts[graph.in_neighbours(node)] > 0).any(axis=0).all()
    assert graph.cliques == ()


def test_diversity_that_cannot_be_had_is_refused() -> None:
    # Two of four nodes have class 0 and the others class 1; with one neighbour nobody has both.
    with pytest.raises(ParameterError, match="raise k"):
        data_aware("random-diverse", one_class_each(4, 2), k=1)
