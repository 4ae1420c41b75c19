"""What every registered merge promises, whatever its rule."""

import numpy as np
import pytest

from fl_core.errors import ParameterError, ShapeMismatchError, UnknownNameError
from fl_core.types import Vector32
from fl_simulator.strategies.merging import MERGES, Merge

SIZE = 1000
TENSORS = [slice(0, 600), slice(600, SIZE)]


@pytest.fixture(params=sorted(MERGES))
def merge(request: pytest.FixtureRequest) -> Merge:
    return MERGES.build(request.param, {})


def two_models(*, seed: int = 3) -> tuple[Vector32, Vector32]:
    own, average = np.random.default_rng(seed).standard_normal((2, SIZE), dtype=np.float32)
    return own, average


def test_merge_is_called_what_the_registry_calls_it(merge: Merge) -> None:
    assert merge.name in MERGES
    assert isinstance(merge, Merge)


def test_result_is_new_and_models_are_left_as_they_were(merge: Merge) -> None:
    own, average = two_models()
    before = own.copy(), average.copy()
    for model in (own, average):
        model.flags.writeable = False
    merged = merge.merge(own, average, tensors=TENSORS)
    assert merged.shape == (SIZE,)
    assert merged.dtype == np.float32
    assert merged is not own
    assert merged is not average
    assert merged.flags.writeable
    assert (own == before[0]).all()
    assert (average == before[1]).all()


def test_every_value_lies_between_the_two_models(merge: Merge) -> None:
    own, average = two_models()
    merged = merge.merge(own, average, tensors=TENSORS)
    slack = 1e-6  # one float32 rounding of values around 1
    assert (merged >= np.minimum(own, average) - slack).all()
    assert (merged <= np.maximum(own, average) + slack).all()


def test_own_model_merged_with_itself_is_itself(merge: Merge) -> None:
    own, _ = two_models()
    assert merge.merge(own, own.copy(), tensors=TENSORS).tobytes() == own.tobytes()


def test_models_of_two_sizes_or_another_type_are_refused(merge: Merge) -> None:
    own, average = two_models()
    with pytest.raises(ShapeMismatchError, match="different sizes"):
        merge.merge(own, average[1:], tensors=TENSORS)
    with pytest.raises(ShapeMismatchError, match="float32"):
        merge.merge(own.astype(np.float64), average, tensors=TENSORS)  # type: ignore[arg-type]


def test_unknown_merge_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        MERGES.build("average", {})
    assert caught.value.known == tuple(sorted(MERGES))


@pytest.mark.parametrize("name", MERGES)
def test_unknown_parameter_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="no parameter 'pace'"):
        MERGES.build(name, {"pace": 0.1})
