"""Estimates of the gain, by hand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.uncoordinated_initialisation.estimates import (
    FAMILIES,
    HEAVY_TAILS,
    gain_by_degrees,
    gain_by_family,
    gain_by_size,
)
from fl_simulator.graphs.gain.steady_state import averaging_matrix, gain
from fl_simulator.graphs.graph import Graph


def test_sixteen_nodes_ask_for_a_gain_of_four() -> None:
    assert gain_by_size(16) == 4


def test_fewer_than_one_node_count_as_one() -> None:
    assert gain_by_size(0.16) == gain_by_family(0.16, "erdos-renyi") == gain_by_degrees(0.16, np.array([3.0])) == 1


def test_two_polled_degrees() -> None:
    # k + 1 = 2 and 4: √100 · 3 / √10.
    assert gain_by_degrees(100, np.array([1.0, 3.0])) == pytest.approx(30 / math.sqrt(10))


@settings(deadline=None)
@given(st.integers(2, 12), st.data())
def test_all_degrees_and_the_number_of_nodes_give_the_exact_gain(count: int, data: st.DataObject) -> None:
    edges = {(data.draw(st.integers(0, node - 1)), node) for node in range(1, count)}
    graph = Graph.from_edges(count, edges)
    assert gain_by_degrees(count, graph.degrees.astype(np.float64)) == pytest.approx(gain(averaging_matrix(graph)))


@given(st.sampled_from((*FAMILIES, "configuration")), st.integers(1, 5000), st.floats(2, 5))
def test_a_family_s_gain_lies_between_one_and_the_root_of_the_nodes(family: str, count: int, gamma: float) -> None:
    assert 1 <= gain_by_family(count, family, gamma=gamma) <= math.sqrt(count)


def test_the_paper_s_law_has_no_factor() -> None:
    exponent, factor = FAMILIES["barabasi-albert"]
    assert gain_by_family(1000, "barabasi-albert", factor=1.0) == pytest.approx(1000**exponent)
    assert gain_by_family(1000, "barabasi-albert") == pytest.approx(factor * 1000**exponent)


def test_heavier_tails_ask_for_smaller_gains_and_laws_between_are_linear() -> None:
    gammas = list(HEAVY_TAILS)
    assert gammas == sorted(gammas)
    exponents = [exponent for exponent, _ in HEAVY_TAILS.values()]
    assert exponents == sorted(exponents)
    low, high = gammas[:2]

    def at(gamma: float, *, factor: float = 1) -> float:
        return gain_by_family(4096, "configuration", gamma=gamma, factor=factor)

    assert at(low) == pytest.approx(4096 ** exponents[0])
    assert at((low + high) / 2) == pytest.approx(4096 ** ((exponents[0] + exponents[1]) / 2))
    middle = (HEAVY_TAILS[low][1] + HEAVY_TAILS[high][1]) / 2
    assert at((low + high) / 2, factor=0) == pytest.approx(middle * at((low + high) / 2))


def test_laws_are_those_that_the_experiment_fitted() -> None:
    results = Path(__file__).parents[3] / "experiments" / "results" / "uncoordinated_initialisation" / "numerical.json"
    for row in json.loads(results.read_text("utf-8"))["exponents"]:
        law = FAMILIES[row["family"]] if row["gamma"] is None else HEAVY_TAILS[row["gamma"]]
        assert law == pytest.approx((row["exponent"], row["gain_factor"]), abs=5e-4)  # they stand with three digits
