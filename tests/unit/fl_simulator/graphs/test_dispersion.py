"""The paper's two spreads, on numbers that fit in a head."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fl_core.errors import ShapeMismatchError
from fl_simulator.graphs.gain import dispersion
from fl_simulator.graphs.gain.dispersion import parameter_spread
from tests.reference import initialisation as naive


def test_two_nodes_of_three_parameters() -> None:
    # Across nodes: (1, 3), (1, 1), (1, 1) deviate by 1, 0, 0. Within: (1, 1, 1) by 0, (3, 1, 1) by √(8/9).
    an, ap = parameter_spread(np.array([[1, 1, 1], [3, 1, 1]], dtype=np.float32))
    assert an == pytest.approx(1 / 3)
    assert ap == pytest.approx(np.sqrt(8 / 9) / 2)


def test_equal_models_do_not_differ_across_nodes() -> None:
    assert parameter_spread(np.array([[0.0, 2.0]] * 5)) == (0, 1)


def test_one_node_has_no_spread_across_nodes() -> None:
    assert parameter_spread(np.array([[0.0, 2.0]])) == (0, 1)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3,), (1, 1, 1)])
def test_an_empty_or_flat_array_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeMismatchError):
        parameter_spread(np.zeros(shape))


@given(
    arrays.arrays(
        np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.floats(-8, 8, width=32)
    ),
    st.integers(1, 60),
)
def test_it_is_what_its_words_say_whatever_the_block(models: np.ndarray, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispersion, "_BLOCK_VALUES", block)
        # Each deviation is right to eight digits of values up to 8; a deviation of 0 comes out as 1e-15 or so.
        assert parameter_spread(models) == pytest.approx(naive.parameter_spread(models.tolist()), abs=1e-12)


def test_a_large_common_offset_does_not_hide_the_spread() -> None:
    models = np.float64(1e8) + np.array([[0.0, 1.0], [1.0, 0.0]])
    assert parameter_spread(models) == (0.5, 0.5)
