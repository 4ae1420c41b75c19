"""Push-sum: counting by gossip."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.uncoordinated_initialisation.push_sum import estimate_num_nodes
from fl_simulator.graphs.graph import Graph
from tests.reference import initialisation as naive


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_before_gossip_the_first_counts_itself_and_others_those_they_hear_and_themselves() -> None:
    assert estimate_num_nodes(Graph.from_edges(3, [(0, 1), (1, 2)]), rounds=0, rng=rng()).tolist() == [1, 3, 2]


def test_two_nodes_know_after_one_round() -> None:
    # Both keep half and send half: sums 1 and 1, weights 1/2 and 1/2.
    assert estimate_num_nodes(Graph.from_edges(2, [(0, 1)]), rounds=1, rng=rng()).tolist() == [2, 2]


def test_a_node_alone_counts_one() -> None:
    assert estimate_num_nodes(Graph.from_edges(1, []), rounds=3, rng=rng()).tolist() == [1]


@pytest.mark.parametrize("seed", range(5))
def test_of_a_hundred_nodes_that_hear_all_everybody_can_count_after_sixty_rounds(seed: int) -> None:
    graph = Graph.from_edges(100, combinations(range(100), 2))
    estimates = estimate_num_nodes(graph, rounds=60, rng=rng(seed))
    # The mean square of the weights' differences halves each round or faster: 2^-30 after 60 rounds, of weights of 1/100.
    assert estimates == pytest.approx(np.full(100, 100.0), rel=1e-5)


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(0, 6), st.integers(0, 1000), st.data())
def test_it_is_kempe_s_algorithm(count: int, rounds: int, seed: int, data: st.DataObject) -> None:
    pairs = list(combinations(range(count), 2))
    graph = Graph.from_edges(count, set(data.draw(st.lists(st.sampled_from(pairs), max_size=20))))
    hearers_of = [graph.in_neighbours(node).tolist() for node in range(count)]
    draws, picks = rng(seed), []
    for _ in range(rounds):
        drawn = iter(draws.integers(np.array([len(each) for each in hearers_of if each], dtype=np.int64)).tolist())
        picks.append([next(drawn) if each else 0 for each in hearers_of])
    expected = naive.push_sum(hearers_of, picks)
    unreached = [len(each) + 1 for each in hearers_of]
    expected = [there if np.isinf(known) else known for known, there in zip(expected, unreached, strict=True)]
    assert estimate_num_nodes(graph, rounds=rounds, rng=rng(seed)).tolist() == pytest.approx(expected)
