"""Topologies on numbers that a person can draw."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_simulator.graphs.topology import Edge, Topology, neighbours
from fl_simulator.graphs.topology.complete import Complete
from fl_simulator.graphs.topology.ring import Ring
from fl_simulator.graphs.topology.small_world import SmallWorld, SmallWorldParams
from tests.reference import topologies


def drawn(topology: Topology, count: int) -> set[Edge]:
    return set(topology.edges(count, rng=np.random.default_rng(0)))


def test_a_ring_of_four() -> None:
    assert drawn(Ring(), 4) == {(0, 1), (1, 2), (2, 3), (0, 3)}


def test_a_ring_of_two_has_one_edge_and_one_of_one_has_none() -> None:
    assert drawn(Ring(), 2) == {(0, 1)}
    assert drawn(Ring(), 1) == set()


def test_complete_among_four_has_six_edges() -> None:
    assert len(drawn(Complete(), 4)) == 6


def test_neighbours_on_a_ring() -> None:
    assert neighbours(0, drawn(Ring(), 4)) == (1, 3)


def test_a_small_world_within_one_clique_is_that_clique() -> None:
    assert drawn(SmallWorld(), 3) == {(0, 1), (0, 2), (1, 2)}


def test_two_cliques_of_two_share_their_fingers_among_their_members() -> None:
    # 0-1 and 2-3 are the cliques. The first finger joins 0 and 2, the next 1 and 3, which have none yet; then all
    # have one, and the second clique's fingers join the same pairs again.
    edges = drawn(SmallWorld(SmallWorldParams(clique_size=2, neighbourhood=1)), 4)
    assert edges == {(0, 1), (2, 3), (0, 2), (1, 3)}


def test_a_thousand_nodes_in_cliques_of_ten_have_nine_edges_inside_and_five_or_six_outside() -> None:
    edges = drawn(SmallWorld(SmallWorldParams(clique_size=10, neighbourhood=2)), 1000)
    # Each of 100 cliques adds 2 fingers, 2 ways, to 7 sets: 2,800 edges beside 45 in each. The paper counts 14.5.
    assert len(edges) == 2800 + 100 * 45
    assert 2 * len(edges) / 1000 == 14.6


def test_fingers_of_single_nodes_reach_twice_as_far_each_time() -> None:
    # Eight nodes, cliques of one: every node reaches 1, 2 and 4 steps away, both ways round.
    edges = drawn(SmallWorld(SmallWorldParams(clique_size=1, neighbourhood=1)), 8)
    assert neighbours(0, edges) == (1, 2, 4, 6, 7)


@settings(deadline=None)
@given(st.integers(2, 30), st.integers(1, 5), st.integers(1, 3))
def test_a_small_world_is_the_papers(count: int, clique_size: int, neighbourhood: int) -> None:
    n_cliques = -(-count // clique_size)
    cliques = [list(map(int, part)) for part in np.array_split(np.arange(count), n_cliques)]
    inside = {(a, b) for clique in cliques for a in clique for b in clique if a < b}
    expected = set() if n_cliques == 1 else topologies.small_world(cliques, ns=neighbourhood)
    found = drawn(SmallWorld(SmallWorldParams(clique_size, neighbourhood)), count)
    assert {frozenset(edge) for edge in found - inside} == expected


def test_a_hundred_servers_are_few_hops_apart_with_few_neighbours() -> None:
    edges = drawn(SmallWorld(), 100)
    pairs = {frozenset(edge) for edge in edges}
    farthest = max(max(topologies.hops(100, pairs, node).values()) for node in range(0, 100, 10))
    assert farthest <= 4
    assert 2 * len(edges) / 100 < 20
