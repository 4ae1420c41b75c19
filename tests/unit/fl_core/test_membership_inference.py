"""Membership attacks' scores and how they are judged, by numbers that fit in a head."""

import math

import numpy as np
import pytest

from fl_core.errors import ShapeMismatchError
from fl_core.trust.membership_inference import auc, confidence, found_at, judged, likelihood_ratio


def test_auc_counts_pairs_and_half_of_ties() -> None:
    assert auc(np.array([2.0, 3.0]), np.array([1.0, 2.0])) == 3.5 / 4
    assert auc(np.array([1.0]), np.array([1.0, 1.0])) == 0.5
    assert auc(np.array([0.0]), np.array([1.0])) == 0.0


def test_found_are_those_above_all_but_one_percent() -> None:
    others = np.arange(1.0, 201.0)  # two of 200 may be above the threshold, 198
    assert found_at(np.array([198.0, 198.5, 199.5, 300.0]), others) == 3 / 4
    assert found_at(np.array([4.0, 5.0]), np.array([1.0, 4.0])) == 1 / 2  # of two, none


def test_confidence_is_the_logit_of_the_labels_probability() -> None:
    assert confidence(np.array([math.log(2), math.log(4)])) == pytest.approx([0.0, -math.log(3)])
    assert np.isfinite(confidence(np.array([0.0, 1e4]))).all()


def test_the_likelihood_ratio_sees_what_only_the_authors_models_are_surer_of() -> None:
    """Others are as sure of both hard examples as of both easy ones; the author is sure of one each."""
    half, tenth = math.log(2), math.log(10)
    others = np.array([[half, half, tenth, tenth]])
    own = np.array([0.1, half, half, tenth])
    scores = likelihood_ratio([own, own], [others, others])
    assert scores[1] == scores[3] < min(scores[0], scores[2])
    assert confidence(own)[2] == confidence(own)[1]  # which the threshold cannot tell apart


def test_intervals_hold_the_figure_and_guessing_is_seen_as_such() -> None:
    rng = np.random.default_rng(1)
    same = judged(rng.standard_normal(300), rng.standard_normal(300))
    assert same.auc.low < 0.5 < same.auc.high
    apart = judged(rng.standard_normal(300) + 1, rng.standard_normal(300))
    assert apart.auc.low > 0.5
    assert apart.auc.low <= apart.auc.value <= apart.auc.high
    assert apart.auc.value == pytest.approx(0.76, abs=0.04)  # the normal distribution function at 1 / √2


def test_nothing_to_judge_by_is_refused() -> None:
    with pytest.raises(ShapeMismatchError):
        judged(np.array([]), np.array([1.0]))
