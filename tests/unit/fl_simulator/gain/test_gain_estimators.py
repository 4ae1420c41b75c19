"""Estimates of the gain, by hand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError
from fl_simulator.graphs.gain import GAIN_ESTIMATORS, NetworkSketch, gain, gains_of_nodes
from fl_simulator.graphs.gain.by_degree import Degrees, DegreesParams
from fl_simulator.graphs.gain.by_family import FAMILIES, HEAVY_TAILS, Family, FamilyParams
from fl_simulator.graphs.gain.by_size import Size, SizeParams
from fl_simulator.graphs.gain.exact import Exact, ExactParams
from fl_simulator.graphs.topology.graph import Graph

PATH = Graph.from_edges(3, [(0, 1), (1, 2)])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_sixteen_nodes_ask_for_a_gain_of_four() -> None:
    assert Size().estimate(NetworkSketch(num_nodes=16), rng=rng()) == 4


def test_four_times_as_many_nodes_as_there_are_ask_for_twice_the_gain() -> None:
    assert Size(SizeParams(error_factor=4)).estimate(NetworkSketch(num_nodes=16), rng=rng()) == 8


def test_a_stated_number_of_nodes_takes_the_place_of_what_is_known() -> None:
    assert Size(SizeParams(nodes=9)).estimate(NetworkSketch(), rng=rng()) == 3
    assert Family(FamilyParams(nodes=9, exponent=0.5)).estimate(NetworkSketch(num_nodes=4), rng=rng()) == 3


def test_fewer_than_one_node_count_as_one() -> None:
    for rule in (Size(SizeParams(error_factor=0.01)), Family(FamilyParams(error_factor=0.01))):
        assert rule.estimate(NetworkSketch(num_nodes=16), rng=rng()) == 1


def test_exact_on_a_path_of_three_with_self_weights() -> None:
    sketch = NetworkSketch(graph=PATH)
    assert Exact().estimate(sketch, rng=rng()) == pytest.approx(7 / math.sqrt(17))
    # Sums of weights with 2 of its own: 3, 4, 3.
    assert Exact(ExactParams(self_weight=2)).estimate(sketch, rng=rng()) == pytest.approx(10 / math.sqrt(34))


def test_two_polled_degrees() -> None:
    # k + 1 = 2 and 4: √100 · 3 / √10.
    sketch = NetworkSketch(num_nodes=100, degrees=np.array([1.0, 3.0]))
    assert Degrees().estimate(sketch, rng=rng()) == pytest.approx(30 / math.sqrt(10))


def test_a_sample_of_one_degree_says_no_more_than_the_number_of_nodes() -> None:
    sketch = NetworkSketch(num_nodes=100, degrees=np.array([1.0, 3.0, 50.0]))
    assert Degrees(DegreesParams(sample=1)).estimate(sketch, rng=rng()) == pytest.approx(10)
    assert Degrees(DegreesParams(sample=1, error_factor=4)).estimate(sketch, rng=rng()) == pytest.approx(20)


def test_a_sample_is_drawn_without_replacement() -> None:
    sketch = NetworkSketch(num_nodes=100, degrees=np.array([1.0, 3.0]))
    whole = Degrees().estimate(sketch, rng=rng())
    assert Degrees(DegreesParams(sample=2)).estimate(sketch, rng=rng()) == whole
    assert Degrees(DegreesParams(sample=9)).estimate(sketch, rng=rng()) == whole


@settings(deadline=None)
@given(st.integers(2, 12), st.data())
def test_all_degrees_and_the_number_of_nodes_give_the_exact_gain(count: int, data: st.DataObject) -> None:
    edges = {(data.draw(st.integers(0, node - 1)), node) for node in range(1, count)}
    graph = Graph.from_edges(count, sorted(edges))
    assert Degrees().estimate(NetworkSketch.of(graph), rng=rng()) == pytest.approx(gain(graph))


def test_a_family_s_exponent() -> None:
    assert Family(FamilyParams(family="k-regular")).estimate(NetworkSketch(num_nodes=81), rng=rng()) == pytest.approx(9)
    assert Family(FamilyParams(exponent=0.25)).estimate(NetworkSketch(num_nodes=81), rng=rng()) == pytest.approx(3)


def test_an_exponent_may_be_overestimated_beyond_the_root_of_the_nodes() -> None:
    assert Family(FamilyParams(exponent=0.75)).estimate(NetworkSketch(num_nodes=16), rng=rng()) == pytest.approx(8)
    twice = FamilyParams(exponent=0.5, factor=2)
    assert Family(twice).estimate(NetworkSketch(num_nodes=16), rng=rng()) == pytest.approx(8)


def test_the_paper_s_law_has_no_factor() -> None:
    exponent, factor = FAMILIES["barabasi-albert"]
    with_factor, without = (
        Family(FamilyParams(family="barabasi-albert", factor=each)).estimate(NetworkSketch(num_nodes=1000), rng=rng())
        for each in (0.0, 1.0)
    )
    assert without == pytest.approx(1000**exponent)
    assert with_factor == pytest.approx(factor * 1000**exponent)


def test_no_family_has_a_gain_above_the_root_of_the_nodes() -> None:
    heavy = FamilyParams(family="configuration", gamma=min(HEAVY_TAILS))
    assert Family(heavy).estimate(NetworkSketch(num_nodes=4), rng=rng()) == 2


def test_heavier_tails_ask_for_smaller_gains_and_laws_between_are_linear() -> None:
    gammas = list(HEAVY_TAILS)
    assert gammas == sorted(gammas)
    exponents = [exponent for exponent, _ in HEAVY_TAILS.values()]
    assert exponents == sorted(exponents)
    low, high = gammas[:2]

    def at(gamma: float, *, factor: float = 1) -> float:
        tail = FamilyParams(family="configuration", gamma=gamma, factor=factor)
        return Family(tail).estimate(NetworkSketch(num_nodes=4096), rng=rng())

    assert at(low) == pytest.approx(4096 ** exponents[0])
    assert at((low + high) / 2) == pytest.approx(4096 ** ((exponents[0] + exponents[1]) / 2))
    middle = (HEAVY_TAILS[low][1] + HEAVY_TAILS[high][1]) / 2
    assert at((low + high) / 2, factor=0) == pytest.approx(middle * at((low + high) / 2))


def test_laws_are_those_that_the_experiment_fitted() -> None:
    results = Path(__file__).parents[4] / "experiments" / "results" / "uncoordinated_initialisation" / "numerical.json"
    for row in json.loads(results.read_text("utf-8"))["exponents"]:
        law = FAMILIES[row["family"]] if row["gamma"] is None else HEAVY_TAILS[row["gamma"]]
        assert law == pytest.approx((row["exponent"], row["gain_factor"]), abs=5e-4)  # they stand with three digits


@pytest.mark.parametrize(
    ("name", "params"), [("family", {"gamma": 1.0}), ("family", {"exponent": 1.1}), ("size", {"error_factor": 0})]
)
def test_parameters_out_of_range_are_refused(name: str, params: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        GAIN_ESTIMATORS.build(name, params)


def test_before_any_gossip_a_node_counts_those_it_hears_and_itself() -> None:
    # Node 0 begins with the weight and counts 1; node 1 hears two, node 2 hears one.
    assert gains_of_nodes(Size(), PATH, rng=rng(), gossip_rounds=0) == pytest.approx([1, math.sqrt(3), math.sqrt(2)])
