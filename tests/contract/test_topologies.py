"""What every registered topology promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError, UnknownNameError
from fl_core.topology import TOPOLOGIES, Topology, build_topology, neighbours
from tests.reference.topologies import hops

counts = st.integers(1, 25)
names = st.sampled_from(sorted(TOPOLOGIES))


def edges_of(name: str, count: int, *, seed: int = 0) -> frozenset[tuple[int, int]]:
    return build_topology(name, {}).edges(count, rng=np.random.default_rng(seed))


@settings(deadline=None)
@given(names, counts)
def test_edges_join_two_different_nodes_of_those_that_there_are(name: str, count: int) -> None:
    assert all(0 <= a < b < count for a, b in edges_of(name, count))


@settings(deadline=None)
@given(names, counts)
def test_every_node_is_reached_from_the_first(name: str, count: int) -> None:
    edges = {frozenset(edge) for edge in edges_of(name, count)}
    assert hops(count, edges, 0).keys() == set(range(count))


@settings(deadline=None)
@given(names, counts, st.integers(0, 5))
def test_the_same_seed_gives_the_same_edges(name: str, count: int, seed: int) -> None:
    assert edges_of(name, count, seed=seed) == edges_of(name, count, seed=seed)


@settings(deadline=None)
@given(names, counts)
def test_neighbours_are_mutual(name: str, count: int) -> None:
    edges = edges_of(name, count)
    for node in range(count):
        assert all(node in neighbours(other, edges) for other in neighbours(node, edges))


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_it_bears_its_name(name: str) -> None:
    topology = build_topology(name, {})
    assert isinstance(topology, Topology)
    assert topology.name == name


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_an_unknown_parameter_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="colour"):
        build_topology(name, {"colour": 1})


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="small-world"):
        build_topology("star", {})
