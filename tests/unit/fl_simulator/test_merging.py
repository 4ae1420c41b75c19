"""DecDiff: numbers by hand, values by the twin, and where a step can lead."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.errors import ParameterError
from fl_core.models import MAX_ABS_VALUE
from fl_core.types import JsonScalar, Vector32
from fl_simulator.strategies.merging import MERGES, decdiff
from tests.reference import merging as naive

VALUES = st.floats(-1e6, 1e6, width=32)


def vector(*values: float) -> Vector32:
    return np.array(values, dtype=np.float32)


def test_one_distance_for_the_whole_model_is_the_papers_formula() -> None:
    # The difference (4, 3, 0) is 5 long: a step of (4, 3, 0) / (5 + 1).
    merged = decdiff(vector(1, 1, 1), vector(5, 4, 1), s=1.0)
    assert merged.tolist() == vector(1 + 4 / 6, 1 + 3 / 6, 1).tolist()


def test_a_larger_s_makes_the_step_shorter() -> None:
    assert decdiff(vector(0, 0), vector(4, 3), s=5.0).tolist() == vector(0.4, 0.3).tolist()


def test_one_distance_for_each_tensor_is_the_papers_text() -> None:
    # Tensors (4, 3) and (1): distances 5 and 1, divisors 6 and 2.
    merged = decdiff(vector(0, 0, 0), vector(4, 3, 1), s=1.0, tensors=[slice(0, 2), slice(2, 3)])
    assert merged.tolist() == vector(4 / 6, 3 / 6, 1 / 2).tolist()


def test_the_step_grows_with_the_distance_but_never_reaches_one() -> None:
    lengths = [float(decdiff(vector(0), vector(distance), s=1.0)[0]) for distance in (0.0, 1.0, 3.0, 99.0)]
    assert lengths == pytest.approx([0, 1 / 2, 3 / 4, 99 / 100])


def test_models_that_agree_stay_as_they_are() -> None:
    model = vector(3, -1, 0.5)
    assert decdiff(model, model, s=1.0).tobytes() == model.tobytes()


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=12), st.floats(1, 100), st.data())
def test_it_is_the_naive_twin(pairs: list[tuple[float, float]], s: float, data: st.DataObject) -> None:
    own, average = (vector(*values) for values in zip(*pairs, strict=True))
    edges = sorted(data.draw(st.lists(st.integers(0, len(pairs)), max_size=3)))
    bounds = [0, *edges, len(pairs)]
    pieces = [slice(a, b) for a, b in pairwise(bounds)]
    sizes = [piece.stop - piece.start for piece in pieces]
    # float64 inside, one rounding to float32 at the end: half a unit in the last place, and the sums' own rounding.
    for merged, expected in (
        (decdiff(own, average, s=s), naive.decdiff(own, average, s=s)),
        (decdiff(own, average, s=s, tensors=pieces), naive.decdiff(own, average, s=s, sizes=sizes)),
    ):
        np.testing.assert_allclose(merged, expected, rtol=2e-7, atol=1e-9)


def test_distance_of_a_rule_says_whether_tensors_are_told_apart() -> None:
    own, average, tensors = vector(0, 0), vector(1, 1), [slice(0, 1), slice(1, 2)]
    whole = MERGES.build("decdiff", {}).merge(own, average, tensors=tensors)
    each = MERGES.build("decdiff", {"distance": "tensor"}).merge(own, average, tensors=tensors)
    assert whole.tolist() == vector(*[1 / (math.sqrt(2) + 1)] * 2).tolist()
    assert each.tolist() == [0.5, 0.5]


def test_largest_admitted_values_do_not_overflow() -> None:
    own, average = (np.full(1000, sign * MAX_ABS_VALUE, dtype=np.float32) for sign in (-1, 1))
    with np.errstate(all="raise"):
        assert np.isfinite(decdiff(own, average, s=1.0)).all()


def test_replacing_forgets_the_own_model() -> None:
    average = vector(5, 6)
    assert MERGES.build("replace", {}).merge(vector(1, 2), average, tensors=[]) is average


def test_models_are_left_as_they_were_and_the_result_lies_between_them() -> None:
    rng = np.random.default_rng(0)
    own, average = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    own.flags.writeable = average.flags.writeable = False
    merged = decdiff(own, average, s=1.0)
    slack = 1e-6  # one float32 rounding of values around 1
    assert (merged >= np.minimum(own, average) - slack).all()
    assert (merged <= np.maximum(own, average) + slack).all()


@pytest.mark.parametrize("params", [{"s": 0.999}, {"distance": "layer"}, {"pace": 0.1}])
def test_parameters_that_cannot_be_are_refused(params: dict[str, JsonScalar]) -> None:
    with pytest.raises(ParameterError):
        MERGES.build("decdiff", params)
