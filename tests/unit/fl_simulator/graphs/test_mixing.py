"""Mixing matrices that a person can work out, and models mixed over a graph: fast, and the same as sums written out."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ShapeMismatchError
from fl_core.types import Matrix32
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, decentralised_average, metropolis_hastings, mix
from fl_simulator.graphs.topology import build_graph
from tests.reference import mixing


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 7))
    pairs = list(combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    weights = draw(st.lists(st.floats(0.1, 10), min_size=len(chosen), max_size=len(chosen)))
    return Graph.from_edges(count, chosen, weights=weights)


def arcs_of(graph: Graph) -> mixing.Arcs:
    pairs = zip(graph.targets.tolist(), graph.sources.tolist(), strict=True)
    return dict(zip(pairs, graph.weights.tolist(), strict=True))


def models(count: int, values: int, *, seed: int = 0) -> Matrix32:
    return np.random.default_rng(seed).standard_normal((count, values), dtype=np.float32)


def some_matrix(count: int, *, seed: int = 0) -> MixingMatrix:
    graph = build_graph("erdos-renyi", {}, count=count, rng=np.random.default_rng(seed))
    examples = np.random.default_rng(seed).integers(1, 50, count)
    return decentralised_average(graph, examples, include_self=True)


def test_w_of_the_papers_two_cliques() -> None:
    # D-Cliques, Sec. Clique Averaging: two cliques of ten and one edge between them, from 1 to 10. Node 0 is the
    # paper's A (neighbours only in its clique), node 10 its B, which has the edge to the other clique's node 1.
    cliques = [range(10), range(10, 20)]
    edges = [pair for clique in cliques for pair in combinations(clique, 2)]
    w = metropolis_hastings(Graph.from_edges(20, [*edges, (1, 10)])).dense()
    assert w[0, 0] == pytest.approx(12 / 110)
    assert w[0, 1] == pytest.approx(10 / 110)
    assert w[0, 2:10] == pytest.approx([11 / 110] * 8)
    assert w[10, 10:] == pytest.approx([1 / 11] * 10)
    assert w[10, 1] == pytest.approx(1 / 11)
    assert w[10, [0, 2]].tolist() == [0, 0]


@given(graphs())
def test_metropolis_hastings_is_the_papers(graph: Graph) -> None:
    w = metropolis_hastings(graph).dense()
    assert w.tolist() == pytest.approx(np.array(mixing.metropolis_hastings(graph.num_nodes, arcs_of(graph))))
    assert np.array_equal(w, w.T)
    assert w.sum(axis=0) == pytest.approx(np.ones(graph.num_nodes))


def test_an_average_goes_by_data_and_by_the_weight_of_edges() -> None:
    # 0 hears 1 (10 samples, weight 2) and 2 (30 samples, weight 1), and has 50 itself: 50, 20 and 30 of 100.
    graph = Graph.from_edges(3, [(0, 1), (0, 2)], weights=[2.0, 1.0])
    examples = np.array([50, 10, 30])
    assert decentralised_average(graph, examples, include_self=True).dense()[0].tolist() == [0.5, 0.2, 0.3]
    assert decentralised_average(graph, examples, include_self=False).dense()[0].tolist() == [0.0, 0.4, 0.6]


def test_equal_data_give_one_over_one_more_than_the_neighbours() -> None:
    # Uncoordinated initialisation, below Eq. (3): beta = 1 / (k + 1).
    path = Graph.from_edges(3, [(0, 1), (1, 2)])
    w = decentralised_average(path, np.array([7, 7, 7]), include_self=True).dense()
    assert w == pytest.approx(np.array([[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]]))


def test_who_hears_nobody_or_nobody_with_data_keeps_the_own_model() -> None:
    graph = Graph.from_edges(3, [(1, 2)])
    for include_self in (True, False):
        w = decentralised_average(graph, np.array([4, 0, 0]), include_self=include_self)
        assert w.dense().tolist() == np.eye(3).tolist()


@given(graphs(), st.lists(st.integers(0, 50), min_size=7, max_size=7), st.booleans())
def test_a_decentralised_average_is_the_papers(graph: Graph, examples: list[int], include_self: bool) -> None:  # noqa: FBT001
    given_examples = examples[: graph.num_nodes]
    matrix = decentralised_average(graph, np.array(given_examples), include_self=include_self)
    naive = mixing.decentralised_average(graph.num_nodes, arcs_of(graph), given_examples, include_self=include_self)
    assert matrix.dense() == pytest.approx(np.array(naive))
    assert matrix.dense().sum(axis=1) == pytest.approx(np.ones(graph.num_nodes))
    assert (matrix.values > 0).all()
    for start, end in zip(matrix.offsets[:-1], matrix.offsets[1:], strict=True):
        assert (np.diff(matrix.columns[start:end]) > 0).all()


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


def test_wide_models_are_mixed_in_blocks_to_the_same_bytes_with_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix, rows = some_matrix(300), models(300, 2500)  # 2,500 columns are three blocks of 300 rows
    monkeypatch.setattr("fl_simulator.graphs.mixing._SHARED_PRODUCTS", 1)
    found = set()
    for cores in (1, 2, 3):
        monkeypatch.setattr("fl_simulator.training.threads.usable_cores", lambda cores=cores: cores)
        mixed = mix(matrix, rows)
        np.testing.assert_allclose(mixed, matrix.dense() @ rows.astype(np.float64), rtol=0, atol=3e-6)
        found.add(mixed.tobytes())
    assert len(found) == 1


def test_on_a_complete_graph_everybody_gets_the_same_mean() -> None:
    matrix = metropolis_hastings(build_graph("complete", {}, count=40, rng=np.random.default_rng(0)))
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
