"""Push-sum: counting by gossip."""

import math
from itertools import combinations, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError
from fl_simulator.graphs.gain import PushSum, estimate_num_nodes, push_sum_rounds
from fl_simulator.graphs.topology.graph import Graph
from tests.reference import initialisation as naive

PAIR = Graph.from_edges(2, [(0, 1)])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_before_gossip_the_root_counts_itself_and_others_know_nothing() -> None:
    assert estimate_num_nodes(Graph.from_edges(3, [(0, 1), (1, 2)]), rounds=0, rng=rng(), root=1).tolist() == [
        math.inf,
        1,
        math.inf,
    ]


def test_two_nodes_know_after_one_round() -> None:
    # Both keep half and send half: sums 1 and 1, weights 1/2 and 1/2.
    (after,) = islice(push_sum_rounds(PAIR, PushSum.counting(2), rng=rng()), 1)
    assert after.sums.tolist() == [1, 1]
    assert after.weights.tolist() == [0.5, 0.5]
    assert after.estimates.tolist() == [2, 2]


def test_a_node_alone_counts_one() -> None:
    assert estimate_num_nodes(Graph.from_edges(1, []), rounds=3, rng=rng()).tolist() == [1]


def test_who_is_heard_by_nobody_keeps_everything() -> None:
    # 0 hears 1; nobody hears 0, so what 1 sends stays with 0.
    one_way = Graph.from_arcs(2, [(0, 1)])
    (after,) = islice(push_sum_rounds(one_way, PushSum.counting(2), rng=rng()), 1)
    assert after.sums.tolist() == [1.5, 0.5]
    assert after.weights.tolist() == [1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_of_a_hundred_nodes_that_hear_all_everybody_can_count_after_sixty_rounds(seed: int) -> None:
    graph = Graph.from_edges(100, list(combinations(range(100), 2)))
    estimates = estimate_num_nodes(graph, rounds=60, rng=rng(seed))
    # The mean square of the weights' differences halves each round or faster: 2^-30 after 60 rounds, of weights of 1/100.
    assert estimates == pytest.approx(np.full(100, 100.0), rel=1e-5)


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(0, 6), st.integers(0, 1000), st.data())
def test_it_is_kempe_s_algorithm(count: int, rounds: int, seed: int, data: st.DataObject) -> None:
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    graph = Graph.from_arcs(count, sorted(set(data.draw(st.lists(st.sampled_from(pairs), max_size=20)))))
    heard = naive.heard_of(graph)
    hearers_of = [[i for i in range(count) if j in heard[i]] for j in range(count)]
    draws, picks = rng(seed), []
    for _ in range(rounds):
        drawn = iter(draws.integers(np.array([len(each) for each in hearers_of if each], dtype=np.int64)).tolist())
        picks.append([next(drawn) if each else 0 for each in hearers_of])
    assert estimate_num_nodes(graph, rounds=rounds, rng=rng(seed)).tolist() == pytest.approx(
        naive.push_sum(hearers_of, picks)
    )


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 1000))
def test_nothing_is_lost(rounds: int, seed: int) -> None:
    graph = Graph.from_edges(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4)])
    states = [PushSum.counting(6), *islice(push_sum_rounds(graph, PushSum.counting(6), rng=rng(seed)), rounds)]
    assert states[-1].sums.sum() == pytest.approx(6)
    assert states[-1].weights.sum() == pytest.approx(1)


def test_rounds_and_roots_out_of_range_are_refused() -> None:
    with pytest.raises(ParameterError, match="rounds"):
        estimate_num_nodes(PAIR, rounds=-1, rng=rng())
    with pytest.raises(ParameterError, match="from 2"):
        estimate_num_nodes(PAIR, rounds=1, rng=rng(), root=2)
