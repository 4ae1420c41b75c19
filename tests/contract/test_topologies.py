"""What every registered topology promises."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError, UnknownNameError
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology import TOPOLOGIES, build_graph
from tests.reference.topologies import hops

counts = st.integers(1, 25)
names = st.sampled_from(sorted(TOPOLOGIES))


def built(name: str, count: int, *, seed: int = 0) -> Graph:
    """The graph of nodes that have one of two classes in turn."""
    label_counts = np.eye(2, dtype=np.int64)[np.arange(count) % 2] * 5
    return build_graph(name, {}, count=count, rng=np.random.default_rng(seed), label_counts=label_counts)


@lru_cache(maxsize=1000)
def graph_of(name: str, count: int, *, seed: int = 0) -> Graph | None:
    """None where the topology refuses so many."""
    try:
        return built(name, count, seed=seed)
    except ParameterError:
        return None


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    arcs = zip(graph.targets.tolist(), graph.sources.tolist(), strict=True)
    return {(a, b) for a, b in arcs if a < b}


@settings(deadline=None)
@given(names, counts)
def test_edges_join_two_different_nodes_of_those_that_there_are(name: str, count: int) -> None:
    if (graph := graph_of(name, count)) is not None:
        assert graph.num_nodes == count
        assert all(0 <= a < b < count for a, b in edges_of(graph))
        assert len(edges_of(graph)) == graph.num_edges


@settings(deadline=None)
@given(names, counts)
def test_every_node_is_reached_from_the_first(name: str, count: int) -> None:
    if (graph := graph_of(name, count)) is not None:
        edges = {frozenset(edge) for edge in edges_of(graph)}
        assert hops(count, edges, 0).keys() == set(range(count))


@settings(deadline=None)
@given(names, counts, st.integers(0, 5))
def test_the_same_seed_gives_the_same_edges(name: str, count: int, seed: int) -> None:
    first = graph_of(name, count, seed=seed)
    graph_of.cache_clear()
    again = graph_of(name, count, seed=seed)
    assert (first is None) == (again is None)
    if first is not None and again is not None:
        assert edges_of(first) == edges_of(again)
        assert first.cliques == again.cliques


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_neighbours_are_mutual(name: str) -> None:
    graph = built(name, 24)
    for node in range(24):
        assert all(node in graph.in_neighbours(int(other)) for other in graph.in_neighbours(node))


@settings(deadline=None)
@given(names, counts)
def test_a_refusal_names_the_topology(name: str, count: int) -> None:
    if graph_of(name, count) is None:
        with pytest.raises(ParameterError, match=f"topology '{name}'"):
            built(name, count)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_an_unknown_parameter_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="colour"):
        TOPOLOGIES.read_params(name, {"colour": 1})


@pytest.mark.parametrize("name", ["d-cliques", "random-diverse"])
def test_a_topology_that_looks_at_data_asks_for_them(name: str) -> None:
    with pytest.raises(ParameterError, match="label_counts"):
        build_graph(name, {}, count=24, rng=np.random.default_rng(0))


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="k-regular"):
        build_graph("star", {}, count=3, rng=np.random.default_rng(0))
