"""What every registered estimator of the gain promises."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError, UnknownNameError
from fl_simulator.graphs.gain import (
    GAIN_ESTIMATORS,
    GainEstimator,
    NetworkSketch,
    gain,
    gains_of_nodes,
)
from fl_simulator.graphs.topology.graph import Graph

names = st.sampled_from(sorted(GAIN_ESTIMATORS))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def ring_with_chords(count: int) -> Graph:
    pairs = [(node, (node + step) % count) for node in range(count) for step in (1, 2)]
    return Graph.from_edges(count, sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}))


@pytest.mark.parametrize("name", GAIN_ESTIMATORS)
def test_it_bears_its_name(name: str) -> None:
    estimator = GAIN_ESTIMATORS.build(name, {})
    assert isinstance(estimator, GainEstimator)
    assert estimator.name == name


@settings(deadline=None)
@given(names, st.integers(1, 40), st.integers(0, 9))
def test_a_gain_lies_between_one_and_the_root_of_the_nodes(name: str, count: int, seed: int) -> None:
    estimate = GAIN_ESTIMATORS.build(name, {}).estimate(NetworkSketch.of(ring_with_chords(count)), rng=rng(seed))
    assert isinstance(estimate, float)
    assert estimate * (1 + 1e-12) >= 1
    assert estimate <= math.sqrt(count) * (1 + 1e-12)


@settings(deadline=None)
@given(names, st.integers(5, 40))
def test_on_a_regular_graph_all_estimate_the_gain(name: str, count: int) -> None:
    graph = ring_with_chords(count)
    params: dict[str, str] = {"family": "k-regular"} if name == "family" else {}
    estimate = GAIN_ESTIMATORS.build(name, params).estimate(NetworkSketch.of(graph), rng=rng())
    assert estimate == pytest.approx(gain(graph)) == pytest.approx(math.sqrt(count))


@settings(deadline=None)
@given(names, st.integers(1, 40), st.integers(0, 9))
def test_the_same_seed_gives_the_same_gain(name: str, count: int, seed: int) -> None:
    estimator, sketch = GAIN_ESTIMATORS.build(name, {}), NetworkSketch.of(ring_with_chords(count))
    assert estimator.estimate(sketch, rng=rng(seed)) == estimator.estimate(sketch, rng=rng(seed))


@pytest.mark.parametrize("name", GAIN_ESTIMATORS)
def test_a_node_alone_has_no_gain(name: str) -> None:
    alone = NetworkSketch.of(Graph.from_edges(1, []))
    assert GAIN_ESTIMATORS.build(name, {}).estimate(alone, rng=rng()) == 1


@pytest.mark.parametrize("name", GAIN_ESTIMATORS)
def test_what_it_cannot_do_without_it_asks_for(name: str) -> None:
    with pytest.raises(ParameterError, match=f"'{name}' needs .* does not know"):
        GAIN_ESTIMATORS.build(name, {}).estimate(NetworkSketch(), rng=rng())


@pytest.mark.parametrize("name", GAIN_ESTIMATORS)
def test_each_node_of_a_graph_has_a_gain(name: str) -> None:
    graph = ring_with_chords(12)
    estimator = GAIN_ESTIMATORS.build(name, {})
    alike = gains_of_nodes(estimator, graph, rng=rng())
    assert alike.shape == (12,)
    assert alike == pytest.approx(np.full(12, estimator.estimate(NetworkSketch.of(graph), rng=rng())))
    for rounds in (0, 3, 50):
        assert (gains_of_nodes(estimator, graph, rng=rng(), gossip_rounds=rounds) >= 1 - 1e-12).all()
    # Push-sum among twelve is done after fifty rounds.
    assert gains_of_nodes(estimator, graph, rng=rng(), gossip_rounds=200) == pytest.approx(alike, rel=1e-3)


@pytest.mark.parametrize("name", GAIN_ESTIMATORS)
def test_an_unknown_parameter_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="colour"):
        GAIN_ESTIMATORS.build(name, {"colour": 1})


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="degrees, exact, family, size"):
        GAIN_ESTIMATORS.build("guess", {})


@pytest.mark.parametrize(
    "make",
    [
        lambda: NetworkSketch(num_nodes=0.5),
        lambda: NetworkSketch(num_nodes=math.inf),
        lambda: NetworkSketch(degrees=np.array([])),
        lambda: NetworkSketch(degrees=np.array([-1.0])),
        lambda: NetworkSketch(degrees=np.array([math.nan])),
    ],
)
def test_a_sketch_of_nothing_that_can_be_is_refused(make: Callable[[], NetworkSketch]) -> None:
    with pytest.raises(ParameterError):
        make()
