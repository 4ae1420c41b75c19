"""Mixing times on walks that can be followed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.uncoordinated_initialisation.mixing_time import MIXED, mixing_time, spectral_gap
from fl_core.errors import ParameterError
from fl_simulator.graphs.gain.steady_state import averaging_matrix, steady_state
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, decentralised_average
from tests.reference import initialisation as naive


def ring(count: int) -> MixingMatrix:
    return averaging_matrix(Graph.from_edges(count, [(node, (node + 1) % count) for node in range(count)]))


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


def test_a_ring_s_gap() -> None:
    # Eigenvalues of a ring with self-loops: (1 + 2 cos(2πj/n)) / 3.
    assert spectral_gap(ring(12)) == pytest.approx(1 - (1 + 2 * math.cos(2 * math.pi / 12)) / 3)


def test_who_only_swap_never_mix() -> None:
    swap = decentralised_average(Graph.from_edges(2, [(0, 1)]), np.array([1, 1]), include_self=False)
    assert spectral_gap(swap) == 0
    with pytest.raises(ParameterError, match="periodic"):
        mixing_time(swap)


def test_a_ring_of_four_times_the_nodes_takes_sixteen_times_the_rounds() -> None:
    short, long = (mixing_time(ring(count)) for count in (16, 64))
    assert long / short == pytest.approx(16, rel=0.1)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 7), st.data())
def test_it_is_found_round_by_round(count: int, data: st.DataObject) -> None:
    edges = {(data.draw(st.integers(0, node - 1)), node) for node in range(1, count)}
    matrix = averaging_matrix(Graph.from_edges(count, edges))
    assert mixing_time(matrix) == naive.mixing_time(matrix.dense(), steady_state(matrix), MIXED)
