"""Mixing times on walks that can be followed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError
from fl_simulator.graphs.gain import averaging_matrix, mixing_time, mixing_time_bounds, spectral_gap, steady_state_of
from fl_simulator.graphs.topology.graph import Graph
from fl_simulator.graphs.topology.mixing import MixingMatrix, decentralised_average
from tests.reference import initialisation as naive


def ring(count: int) -> Graph:
    return Graph.from_edges(count, sorted({(min(a, b), max(a, b)) for a in range(count) for b in [(a + 1) % count]}))


def complete(count: int) -> MixingMatrix:
    return averaging_matrix(Graph.from_edges(count, [(a, b) for b in range(count) for a in range(b)]))


def test_all_are_mixed_after_one_round_among_all() -> None:
    assert mixing_time(complete(5)) == 1
    assert spectral_gap(complete(5)) == pytest.approx(1)


def test_one_node_is_mixed_already() -> None:
    assert mixing_time(complete(1)) == 0
    assert spectral_gap(complete(1)) == 1


def test_two_that_keep_nine_tenths() -> None:
    # P = [[.9, .1], [.1, .9]]: λ₂ = .8 and the distance is .8^t / 2; .8^3 / 2 = .256, .8^4 / 2 = .205.
    two = MixingMatrix(np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([0.9, 0.1, 0.1, 0.9]))
    assert spectral_gap(two) == pytest.approx(0.2)
    assert mixing_time(two) == 4
    assert mixing_time(two, tolerance=0.49) == 1


def test_a_ring_s_gap() -> None:
    # Eigenvalues of a ring with self-loops: (1 + 2 cos(2πj/n)) / 3.
    gap = 1 - (1 + 2 * math.cos(2 * math.pi / 12)) / 3
    assert spectral_gap(averaging_matrix(ring(12))) == pytest.approx(gap)


def test_a_one_way_ring_s_gap() -> None:
    # Eigenvalues (1 + exp(2πij/3)) / 2, whose modulus is 1/2.
    one_way = averaging_matrix(Graph.from_arcs(3, [(0, 1), (1, 2), (2, 0)]))
    assert spectral_gap(one_way) == pytest.approx(0.5)


def test_who_only_swap_never_mix() -> None:
    swap = decentralised_average(Graph.from_edges(2, [(0, 1)]), np.array([1, 1]), include_self=False)
    assert spectral_gap(swap) == 0
    assert mixing_time_bounds(swap)[1] == math.inf
    with pytest.raises(ParameterError, match="periodic"):
        mixing_time(swap)


def test_a_ring_of_four_times_the_nodes_takes_sixteen_times_the_rounds() -> None:
    short, long = (mixing_time(averaging_matrix(ring(count))) for count in (16, 64))
    assert long / short == pytest.approx(16, rel=0.1)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 7), st.sampled_from([0.01, 0.1, 0.25, 0.4]), st.data())
def test_it_is_found_round_by_round_and_lies_within_its_bounds(
    count: int, tolerance: float, data: st.DataObject
) -> None:
    edges = {(data.draw(st.integers(0, node - 1)), node) for node in range(1, count)}
    matrix = averaging_matrix(Graph.from_edges(count, sorted(edges)))
    found = mixing_time(matrix, tolerance=tolerance)
    assert found == naive.mixing_time(matrix.dense(), steady_state_of(matrix), tolerance)
    low, high = mixing_time_bounds(matrix, tolerance=tolerance)
    assert low - 1e-9 <= found <= math.ceil(high)


@pytest.mark.parametrize("tolerance", [0.0, 1.0])
def test_a_tolerance_out_of_range_is_refused(tolerance: float) -> None:
    with pytest.raises(ParameterError, match="tolerance"):
        mixing_time(complete(2), tolerance=tolerance)


def test_too_many_nodes_are_refused_before_they_take_the_memory() -> None:
    large = averaging_matrix(ring(5000))
    for work in (mixing_time, spectral_gap):
        with pytest.raises(ParameterError, match="4096"):
            work(large)
