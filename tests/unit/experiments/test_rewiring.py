"""Rewiring towards an assortativity, against networkx."""

import networkx as nx
import numpy as np
import pytest

from experiments.uncoordinated_initialisation.rewiring import assortativity, edges_of, rewire
from fl_simulator.graphs.graph import Graph

GRAPH = Graph.from_edges(120, np.array(nx.gnm_random_graph(120, 480, seed=3).edges()))


def test_a_star_is_as_disassortative_as_can_be() -> None:
    assert assortativity(Graph.from_edges(4, [(0, 1), (0, 2), (0, 3)])) == pytest.approx(-1)


def test_a_path_of_four() -> None:
    # Ends of edges have degrees (1, 2), (2, 2), (2, 1): mean 5/3, variance 2/9, mean product 8/3: (8/3 - 25/9) / (2/9).
    assert assortativity(Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)])) == pytest.approx(-1 / 2)


def test_equal_degrees_have_none() -> None:
    assert assortativity(Graph.from_edges(3, [(0, 1), (1, 2), (0, 2)])) == 0


def test_it_is_newmans() -> None:
    expected = nx.degree_assortativity_coefficient(nx.Graph(edges_of(GRAPH).tolist()))
    assert assortativity(GRAPH) == pytest.approx(expected)


@pytest.mark.parametrize("target", [-0.5, 0.0, 0.5])
def test_rewiring_reaches_its_target_and_keeps_all_degrees(target: float) -> None:
    other = rewire(GRAPH, target=target, rng=np.random.default_rng(0))
    assert assortativity(other) == pytest.approx(target, abs=2e-3)
    assert other.degrees.tolist() == GRAPH.degrees.tolist()
    assert edges_of(other).tolist() != edges_of(GRAPH).tolist()


def test_what_no_graph_of_these_degrees_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.uncoordinated_initialisation.rewiring.MOST_SWAPS", 5000)
    with pytest.raises(ValueError, match="not reached in 5000 swaps"):
        rewire(GRAPH, target=1.5, rng=np.random.default_rng(0))
