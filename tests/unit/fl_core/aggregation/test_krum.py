"""Krum and Multi-Krum: who is taken, by hand and by the twin; what happens with few models; where they break."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.aggregation import ArraySource
from fl_core.aggregation.krum import Krum, KrumParams
from fl_core.aggregation.multi_krum import MultiKrum, MultiKrumParams, krum_scores, lowest, tolerated
from fl_core.types import Vector32
from tests.reference.robust_aggregation import chosen, multi_krum

VALUES = st.floats(-1e6, 1e6, width=32)


def krum(*rows: list[float] | Vector32, byzantine: int, weights: list[float] | None = None) -> Vector32:
    sources = [ArraySource(np.asarray(row, dtype=np.float32)) for row in rows]
    return Krum(KrumParams(byzantine)).aggregate(sources, weights or [1.0] * len(rows))


def mean_of_best(*rows: list[float] | Vector32, byzantine: int, keep: int = 0) -> Vector32:
    sources = [ArraySource(np.asarray(row, dtype=np.float32)) for row in rows]
    return MultiKrum(MultiKrumParams(byzantine, keep)).aggregate(sources, [1.0] * len(rows))


def test_scores_by_hand() -> None:
    # 0, 1, 3, 6 and 100 on a line; n - f - 2 = 2 nearest: 1+9, 1+4, 4+9, 9+25, 94^2+97^2
    places = np.array([0.0, 1, 3, 6, 100])
    scores = krum_scores((places[:, None] - places) ** 2, byzantine=1)
    assert scores == [10, 5, 13, 34, 94**2 + 97**2]
    assert lowest(scores, 2) == [0, 1]
    assert krum([0], [1], [3], [6], [100], byzantine=1).tolist() == [1]
    assert mean_of_best([0], [1], [3], [6], [100], byzantine=1).tolist() == [0.5]
    assert mean_of_best([0], [1], [3], [6], [100], byzantine=1, keep=3).tolist() == pytest.approx([4 / 3])


def test_krum_returns_somebodys_model_byte_for_byte() -> None:
    model = [-0.0, 1e-40, 3.0]
    assert krum(model, model, model, [9, 9, 9], [8, 0, 1], byzantine=1).tobytes() == np.float32(model).tobytes()


def test_of_equal_scores_the_earlier_source_wins() -> None:
    assert lowest([3.0, 1.0, 1.0, 1.0], 2) == [1, 2]
    assert krum([5], [0], [5], [0], byzantine=0).tolist() == [5]
    assert krum([0], [5], [0], [5], byzantine=0).tolist() == [0]


def test_one_model_is_itself_and_of_two_the_first_or_their_mean() -> None:
    assert krum([7], byzantine=3).tolist() == [7]
    assert mean_of_best([7], byzantine=3, keep=5).tolist() == [7]
    assert krum([7], [9], byzantine=3).tolist() == [7]
    assert mean_of_best([7], [9], byzantine=3).tolist() == [7]
    assert mean_of_best([7], [9], byzantine=3, keep=2).tolist() == [8]


def test_fewer_than_2f_plus_3_models_lower_f() -> None:
    assert [tolerated(count, 3) for count in range(1, 11)] == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert tolerated(4, 0) == 0
    assert krum([100], [1], [2], byzantine=1).tolist() == [1]  # the first of the nearest two
    assert krum([100], [1], [2.5], [2], byzantine=1).tolist() == [2]


def test_never_more_are_kept_than_are_honest() -> None:
    assert mean_of_best([0], [0], [0], [0], [100], byzantine=1, keep=5).tolist() == [0]


def test_a_model_without_examples_is_left_out_and_claims_move_nothing() -> None:
    rows = ([100.0], [1.0], [2.0], [100.0])
    assert krum(*rows, byzantine=0, weights=[1, 1, 1, 0]).tolist() == [1]
    assert krum([0], [1], [3], [6], [100], byzantine=1, weights=[1, 1, 1, 1, 1e9]).tolist() == [1]


@given(
    st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=9),
    st.integers(0, 4),
    st.integers(0, 9),
)
def test_bytes_are_the_naive_twins(rows: list[list[float]], byzantine: int, keep: int) -> None:
    models = [np.array(row, dtype=np.float32) for row in rows]
    with np.errstate(under="ignore"):
        expected = multi_krum(models, byzantine, keep)
        assert mean_of_best(*models, byzantine=byzantine, keep=keep).tobytes() == expected.tobytes()
        (taken,) = chosen(models, byzantine, 1)
        assert krum(*models, byzantine=byzantine).tobytes() == models[taken].tobytes()


@pytest.mark.parametrize("lie", [1e38, -1e30, 50.0, "opposite"])
@pytest.mark.parametrize(("count", "liars"), [(5, 1), (9, 3), (13, 5)])
def test_f_of_2f_plus_3_liars_who_agree_are_not_taken(count: int, liars: int, lie: float | str) -> None:
    rng = np.random.default_rng(count)
    models = 1 + 0.1 * rng.standard_normal((count, 200), dtype=np.float32)
    models[:liars] = -models[-1] if lie == "opposite" else lie
    taken = krum(*models, byzantine=liars)
    assert any((taken == model).all() for model in models[liars:])
    mean = mean_of_best(*models, byzantine=liars)
    assert np.abs(mean - 1).max() < 0.5


def test_a_majority_that_agrees_is_taken() -> None:
    models = 1 + 0.1 * np.random.default_rng(9).standard_normal((5, 200), dtype=np.float32)
    models[:3] = 50
    assert (krum(*models, byzantine=1) == 50).all()


def test_models_too_far_apart_for_float32_count_as_infinitely_far() -> None:
    assert krum([1e30], [1], [2], [1e38], [4], byzantine=1).tolist() == [2]
    assert krum([1e38], [-1e38], [1e30], [-1e30], [0], byzantine=1).tolist() == pytest.approx([1e38])
