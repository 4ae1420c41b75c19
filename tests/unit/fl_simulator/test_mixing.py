"""Mixing models over a graph: fast, and the same as sums written out."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ShapeMismatchError
from fl_core.types import Matrix32
from fl_simulator.graphs.mixing import mix
from fl_simulator.graphs.topology import (
    TOPOLOGIES,
    Graph,
    MixingMatrix,
    build_graph,
    decentralised_average,
    metropolis_hastings,
)
from fl_simulator.graphs.topology.complete import Complete
from tests.reference import mixing


def models(count: int, values: int, *, seed: int = 0) -> Matrix32:
    return np.random.default_rng(seed).standard_normal((count, values), dtype=np.float32)


def some_matrix(count: int, *, seed: int = 0) -> MixingMatrix:
    graph = build_graph(TOPOLOGIES.build("erdos-renyi", {}), count=count, rng=np.random.default_rng(seed))
    examples = np.random.default_rng(seed).integers(1, 50, count)
    return decentralised_average(graph, examples, include_self=True)


def test_a_path_of_three_with_metropolis_hastings_weights() -> None:
    w = metropolis_hastings(Graph.from_edges(3, [(0, 1), (1, 2)]))  # rows 2/3 1/3 0; 1/3 1/3 1/3; 0 1/3 2/3
    mixed = mix(w, np.array([[3.0, 0.0], [0.0, 3.0], [9.0, 6.0]], dtype=np.float32))
    assert mixed == pytest.approx(np.array([[2.0, 1.0], [4.0, 3.0], [6.0, 5.0]]), rel=1e-6)
    assert mixed.dtype == np.float32


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(1, 20), st.integers(0, 100))
def test_mixing_is_sums_written_out(count: int, values: int, seed: int) -> None:
    matrix, rows = some_matrix(count, seed=seed), models(count, values, seed=seed)
    naive = np.array(mixing.mix(matrix.dense().tolist(), rows.astype(np.float64).tolist()))
    # A row adds up to 12 products of weights below 1 and values below 5: some roundings of 6e-8 each.
    assert mix(matrix, rows) == pytest.approx(naive, abs=3e-6)


def test_wide_models_are_mixed_in_blocks_to_the_same_sums() -> None:
    matrix, rows = some_matrix(300), models(300, 2500)  # 2,500 columns are three blocks of 300 rows
    np.testing.assert_allclose(mix(matrix, rows), matrix.dense() @ rows.astype(np.float64), rtol=0, atol=3e-6)


def test_without_torch_numpy_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, rows = some_matrix(20), models(20, 50)
    with_torch = mix(matrix, rows)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert mix(matrix, rows) == pytest.approx(with_torch, abs=1e-6)


def test_any_number_of_threads_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, rows = some_matrix(300), models(300, 2500)
    monkeypatch.setattr("fl_simulator.graphs.mixing._SHARED_PRODUCTS", 1)
    found = set()
    for cores in (1, 2, 3):
        monkeypatch.setattr("fl_simulator.training.threads.usable_cores", lambda cores=cores: cores)
        found.add(mix(matrix, rows).tobytes())
    assert len(found) == 1


def test_on_a_complete_graph_everybody_gets_the_same_mean() -> None:
    matrix = metropolis_hastings(build_graph(Complete(), count=40, rng=np.random.default_rng(0)))
    rows = models(40, 30)
    mixed = mix(matrix, rows)
    assert (mixed == mixed[0]).all()
    assert mixed[0] == pytest.approx(rows.mean(axis=0), abs=1e-6)
    mixed[0] = 0  # each row is the node's own
    assert mixed[1].any()


def test_models_are_left_as_they_are_even_where_they_may_not_be_written() -> None:
    matrix, rows = some_matrix(10), models(10, 8)
    before = rows.copy()
    rows.flags.writeable = False
    assert mix(matrix, rows) == pytest.approx(mix(matrix, before))
    assert np.array_equal(rows, before)


def test_every_row_needs_its_model() -> None:
    with pytest.raises(ShapeMismatchError, match="10 nodes"):
        mix(some_matrix(10), models(9, 4))
