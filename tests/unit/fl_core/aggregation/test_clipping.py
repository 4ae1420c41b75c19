"""Norm clipping: numbers by hand, bytes by the twin, and what it bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.aggregation import AGGREGATORS, ArraySource, FedAvg
from fl_core.aggregation.clipping import clipped
from fl_core.aggregation.model import aggregate_model
from fl_core.models import flat
from fl_core.types import Vector32
from tests.builders import LAYOUT, make_genesis, model
from tests.reference.robust_aggregation import clipped as twin

VALUES = st.floats(-1e6, 1e6, width=32)
CLIPPING = make_genesis(growth_rule="clip", max_step_growth=2.0)


def after(*rows: list[float] | Vector32, genesis: list[float] | Vector32, growth: float = 2.0) -> list[list[float]]:
    sources = [ArraySource(np.asarray(row, dtype=np.float32)) for row in rows]
    first = ArraySource(np.asarray(genesis, dtype=np.float32))
    return [each.read(0, each.size).tolist() for each in clipped(sources, genesis_model=first, growth=growth)]


def test_an_update_beyond_the_bound_is_shortened_to_it_in_its_direction() -> None:
    # Updates of norm 5, 5 and 500 since genesis (0, 1): the bound is 2 * 5, a fiftieth of the last.
    assert after([3, 5], [4, -2], [300, 401], genesis=[0, 1]) == [[3, 5], [4, -2], [6, 9]]


def test_of_two_the_larger_is_measured_by_the_smaller() -> None:
    assert after([3, 4], [300, 400], genesis=[0, 0]) == [[3, 4], [6, 8]]


def test_genesis_norm_is_the_floor_so_that_tiny_updates_clip_nobody() -> None:
    assert after([3, 4.001], [3, 4.001], [6, 8], genesis=[3, 4]) == [
        pytest.approx([3, 4.001]),
        pytest.approx([3, 4.001]),
        [6, 8],
    ]


def test_models_that_learned_nothing_say_nothing_about_scale() -> None:
    assert after([0, 0], [0, 0], [3, 4], genesis=[0, 0]) == [[0, 0], [0, 0], [3, 4]]
    assert after([1, 1], [1, 1], genesis=[1, 1]) == [[1, 1], [1, 1]]


def test_one_model_alone_stays_as_it_is() -> None:
    assert after([300, 400], genesis=[1, 0], growth=1.5) == [[300, 400]]


def test_an_update_beyond_float32_counts_as_none() -> None:
    assert after([3, 4], [3, 4], [1e38, 0], genesis=[1, 1])[2] == [1, 1]


@given(
    st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=7),
    st.lists(VALUES, min_size=3, max_size=3),
    st.floats(1.001, 20),
)
def test_bytes_are_the_naive_twins(rows: list[list[float]], genesis: list[float], growth: float) -> None:
    models, first = [np.array(row, dtype=np.float32) for row in rows], np.array(genesis, dtype=np.float32)
    with np.errstate(under="ignore"):
        expected = [each.tolist() for each in twin(models, first, growth)]
        assert after(*models, genesis=first, growth=growth) == expected


def test_one_liar_of_thirty_moves_the_mean_by_a_thirtieth_of_the_bound() -> None:
    rng = np.random.default_rng(30)
    genesis = rng.standard_normal(1000, dtype=np.float32)
    models = genesis + 0.5 * rng.standard_normal((30, 1000), dtype=np.float32)
    models[0] *= 1e6
    sources = [ArraySource(each) for each in models]
    kept = clipped(sources, genesis_model=ArraySource(genesis), growth=1.5)
    honest = models[1:].mean(axis=0)
    moved = np.linalg.norm(FedAvg().aggregate(kept, [1.0] * 30) - honest)
    assert moved <= (1.5 * np.linalg.norm(genesis) + np.linalg.norm(honest - genesis)) / 30 * 1.001
    assert np.linalg.norm(FedAvg().aggregate(sources, [1.0] * 30) - honest) > 1e5


@pytest.mark.parametrize("name", ["fedavg", "median", "krum"])
def test_the_aggregate_is_made_of_clipped_models_where_policy_says_so(name: str) -> None:
    genesis, first = model(0, 1), [model(3, 5), model(4, -2), model(300, 401)]
    sources = [ArraySource(flat(LAYOUT, each)) for each in first]
    seen = [ArraySource(flat(LAYOUT, each)) for each in (*(first[:2]), model(6, 9))]
    rule = AGGREGATORS.build(name, {})
    ours = aggregate_model(
        CLIPPING, rule, sources, num_examples=[2, 3, 4], genesis_model=ArraySource(flat(LAYOUT, genesis))
    )
    assert flat(LAYOUT, ours).tobytes() == rule.aggregate(seen, [2, 3, 4]).tobytes()


def test_a_policy_that_refuses_needs_no_genesis_model_and_one_that_clips_does() -> None:
    sources = [ArraySource(flat(LAYOUT, model(1, 2)))]
    assert aggregate_model(make_genesis(), FedAvg(), sources, num_examples=[1], genesis_model=None) == model(1, 2)
    with pytest.raises(ValueError, match="genesis model"):
        aggregate_model(CLIPPING, FedAvg(), sources, num_examples=[1], genesis_model=None)
