"""The numerical model of the first rounds (Sec. 4.2), and when its curve is flat."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.uncoordinated_initialisation import numerical
from experiments.uncoordinated_initialisation.numerical_model import early_stage, stabilisation_time
from fl_core.errors import ParameterError
from fl_simulator.graphs.gain.dispersion import parameter_spread
from fl_simulator.graphs.gain.steady_state import averaging_matrix
from fl_simulator.graphs.graph import Graph

PATH = Graph.from_edges(3, [(0, 1), (1, 2)])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def complete(count: int) -> Graph:
    return Graph.from_edges(count, [(a, b) for b in range(count) for a in range(b)])


def test_one_round_among_all_makes_all_alike() -> None:
    an, ap = early_stage(averaging_matrix(complete(4)), num_parameters=1000, rounds=1, sigma_noise=0, rng=rng())
    assert an[0] > 0.5
    assert an[1] == pytest.approx(0, abs=1e-12)
    # The mean of four values of N(0, 1) deviates by 1/2: 1000 of them give that to within 3 %.
    assert ap[1] == pytest.approx(0.5, rel=0.1)


def test_nodes_alone_keep_their_values_and_gather_noise() -> None:
    alone = averaging_matrix(Graph.from_edges(2, []))
    _, still = early_stage(alone, num_parameters=50, rounds=3, sigma_noise=0, rng=rng())
    assert still.tolist() == [still[0]] * 4
    _, noisy = early_stage(alone, num_parameters=20_000, rounds=3, sigma_init=0, sigma_noise=2, rng=rng())
    # Three sums of N(0, 4): 2 √t, to within 1 % with 20,000 parameters.
    assert noisy == pytest.approx([0, 2, 2 * math.sqrt(2), 2 * math.sqrt(3)], rel=0.03)


def test_what_is_left_within_a_node_is_the_norm_of_the_steady_state() -> None:
    # Path: √(4 + 9 + 4) / 7. Twice as much where initial values are twice as far apart.
    _, ap = early_stage(
        averaging_matrix(PATH), num_parameters=20_000, rounds=60, sigma_init=2, sigma_noise=0, rng=rng(3)
    )
    assert ap[-1] == pytest.approx(2 * math.sqrt(17) / 7, rel=0.03)


def test_the_gain_restores_the_initial_spread() -> None:
    graph = complete(64)
    _, ap = early_stage(
        averaging_matrix(graph), num_parameters=20_000, rounds=5, sigma_init=8, sigma_noise=0, rng=rng()
    )
    assert ap[-1] == pytest.approx(1, rel=0.03)


@settings(deadline=None, max_examples=30)
@given(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 3)), st.floats(0, 2), st.integers(0, 99))
def test_it_is_sec_4_2_in_loops(sizes: tuple[int, int, int], noise: float, seed: int) -> None:
    nodes, size, rounds = sizes
    graph = Graph.from_edges(nodes, [(node, node + 1) for node in range(nodes - 1)])
    found = early_stage(averaging_matrix(graph), num_parameters=size, rounds=rounds, sigma_noise=noise, rng=rng(seed))
    draws = rng(seed)
    w = draws.standard_normal((nodes, size)).tolist()
    expected = [parameter_spread(np.array(w))]
    for _ in range(rounds):
        near = [[i, *graph.in_neighbours(i).tolist()] for i in range(nodes)]
        mean = [[sum(w[k][j] for k in near[i]) / len(near[i]) for j in range(size)] for i in range(nodes)]
        more = draws.standard_normal((nodes, size))
        w = [[mean[i][j] + noise * more[i, j] for j in range(size)] for i in range(nodes)]
        expected.append(parameter_spread(np.array(w)))
    assert np.stack(found, axis=1) == pytest.approx(np.array(expected), abs=1e-12)


def test_a_curve_is_flat_from_where_it_stays_within_a_tenth_of_its_end() -> None:
    assert stabilisation_time(np.array([8, 4, 2, 1.2, 1.05, 1, 1, 1, 1, 1, 1, 1])) == 4


def test_a_curve_that_rises_again_is_not_flat_before() -> None:
    assert stabilisation_time(np.array([8, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1])) == 4


def test_a_curve_that_still_falls_is_not_flat() -> None:
    assert stabilisation_time(2.0 ** -np.arange(20)) is None


def test_a_curve_without_a_fall_is_flat_from_the_start() -> None:
    assert stabilisation_time(np.ones(8)) == 0


def test_three_rounds_tell_nothing() -> None:
    with pytest.raises(ParameterError, match="play more"):
        stabilisation_time(np.ones(3))


def test_the_longest_run_that_is_allowed_may_be_the_one_that_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = averaging_matrix(complete(4))
    monkeypatch.setattr(numerical, "MOST_ROUNDS", 32)
    assert numerical.rounds_until_flat(matrix, seed=0) < 32
    monkeypatch.setattr(numerical, "MOST_ROUNDS", 16)
    with pytest.raises(RuntimeError, match=r"within 16 rounds; let MOST_ROUNDS .* be greater"):
        numerical.rounds_until_flat(matrix, seed=0)


def test_the_committed_table_is_made_of_the_committed_figures() -> None:
    found = json.loads((numerical.RESULTS / "numerical.json").read_text("utf-8"))
    assert numerical.table(found) == (numerical.RESULTS / "numerical.md").read_text("utf-8")
