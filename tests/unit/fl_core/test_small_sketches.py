"""Small sketches: those of the twin, exact sums, and what is nearest by them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.small_sketches import VALUES, SmallSketches
from tests.reference import sketch as twin


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1100), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_a_small_sketch_is_the_twins(size: int, seed: int, drawn: int) -> None:
    update = np.random.default_rng(drawn).standard_normal(size, dtype=np.float32)
    assert SmallSketches(size, seed=seed).of(update).tolist() == twin.small_sketch(update.tolist(), seed=seed)


def test_the_largest_product_is_exact() -> None:
    small = SmallSketches(VALUES, seed=1)
    update = np.ones(VALUES, np.float32)  # every value becomes 127 or -127
    small.resize(2, used=0)
    small.put(0, update, lengthened=1.0)
    small.put(1, -update, lengthened=2.0)
    square = 512 * 127**2
    assert small.scores(update, 2).tolist() == [square * (1 / square**0.5), -square * (2 / square**0.5)]


def test_an_update_without_direction_is_like_none() -> None:
    small = SmallSketches(3, seed=1)
    small.resize(1, used=0)
    small.put(0, np.zeros(3, np.float32), lengthened=1.0)
    assert small.scores(np.ones(3, np.float32), 1).tolist() == [0.0]


def test_models_of_one_direction_are_found_among_two_thousand_others() -> None:
    rng = np.random.default_rng(8)
    direction = rng.standard_normal(3000, dtype=np.float32)
    others = rng.standard_normal((2030, 3000), dtype=np.float32)
    small = SmallSketches(3000, seed=5)
    small.resize(len(others), used=0)
    for row, other in enumerate(others):
        small.put(row, other + direction if row % 100 == 7 else other, lengthened=1.0)
    best = np.argsort(-small.scores(direction, len(others)))[:21]
    assert sorted(best.tolist()) == list(range(7, 2030, 100))
