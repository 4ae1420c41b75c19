"""The least-squares rule: its fit is the best of all, its penalty keeps noise whole, its cut is the robust rule's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.selection import SELECTORS, Selection
from fl_core.selection.least_squares import least_squares_changes, noise_of, sum_of_squares
from tests.reference.selection import best_changes, fit_cost, least_cost, least_squares_penalty, robust_cut
from tests.selections import letters, make_request

RULE = SELECTORS.build("least-squares", {})


def taken(selection: Selection) -> str:
    return letters([each.transaction for each in selection.candidates if each.selected])


def test_steps_are_found_where_they_are() -> None:
    ranked = np.array([0.9] * 3 + [0.6] * 4 + [0.1] * 2)
    assert list(least_squares_changes(ranked, penalty=0.01)) == [3, 7]


def test_change_that_gains_less_than_it_costs_is_left_out() -> None:
    """Two by two, 1 apart: the mean lies 1/2 from each of four, so the change gains 4 * 1/4 = 1."""
    ranked = np.array([1.0, 1.0, 0.0, 0.0])
    assert list(least_squares_changes(ranked, penalty=0.99)) == [2]
    assert list(least_squares_changes(ranked, penalty=1.01)) == []


def test_free_changes_part_all_values_but_equal_ones() -> None:
    assert list(least_squares_changes(np.array([0.9, 0.9, 0.7, 0.7, 0.7, 0.2]), penalty=0.0)) == [2, 5]


def test_one_value_has_no_change() -> None:
    assert least_squares_changes(np.array([0.3]), penalty=0.0).shape == (0,)


def test_digits_of_similarities_near_one_are_not_lost() -> None:
    ranked = 1.0 - np.array([1.0, 1.1, 1.2, 3.0, 3.1, 3.2]) * 1e-6
    assert list(least_squares_changes(ranked, penalty=1e-13)) == [3]


@settings(deadline=None)
@given(
    values=st.lists(st.integers(-64, 64).map(lambda each: each / 64), min_size=1, max_size=8),
    penalty=st.sampled_from([0.0, 2**-10, 2**-6, 1 / 8, 1.0]),  # exact, so costs are equal or far apart
)
def test_no_partition_costs_less(values: list[float], penalty: float) -> None:
    ranked = sorted(values, reverse=True)
    changes = least_squares_changes(np.array(ranked), penalty=penalty).tolist()
    best = best_changes(ranked, penalty)
    cost = float(fit_cost(ranked, changes)) + len(changes) * penalty
    assert cost == pytest.approx(float(fit_cost(ranked, best[0])) + len(best[0]) * penalty, abs=1e-12)
    if len(best) == 1:
        assert changes == best[0]


@pytest.mark.parametrize("count", [31, 32, 33, 100])
@pytest.mark.parametrize("penalty", [0.001, 0.1])
def test_no_partition_of_a_long_ranking_costs_less(count: int, penalty: float) -> None:
    ranked = np.sort(np.random.default_rng(count).uniform(-1, 1, count))[::-1]
    changes = least_squares_changes(ranked, penalty=penalty).tolist()
    cost = float(fit_cost(ranked, changes)) + len(changes) * penalty
    assert cost == pytest.approx(least_cost(ranked, penalty), abs=1e-12)


@settings(deadline=None)
@given(
    values=st.lists(st.integers(-64, 64).map(lambda each: each / 64), min_size=3, max_size=8),
    penalty=st.sampled_from([0.0, 0.1, 0.5, 4.0]),
    max_penalty=st.sampled_from([0.05, 0.1, 1.0]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    least=st.sampled_from([0.0, 0.05, 0.5]),
    nt=st.integers(1, 4),
    floor=st.sampled_from([-1.0, 0.0, 0.5]),
    alone=st.sampled_from([-0.5, 0.25, 1.0]),
)
def test_cuts_agree_with_the_naive_twins(
    *,
    values: list[float],
    penalty: float,
    max_penalty: float,
    share: float,
    least: float,
    nt: int,
    floor: float,
    alone: float,
) -> None:
    ranked = sorted(values, reverse=True)
    cost = least_squares_penalty(ranked, penalty, max_penalty)
    # Partitions of equal cost, or of a cost that rounding could make equal: any of their cuts will do.
    cuts = {
        robust_cut(
            ranked,
            [float(i in changes) for i in range(len(ranked))],
            alpha=0.5,
            beta=share,
            least=least,
            nt=nt,
            floor=floor,
            alone=alone,
        )
        for near in (cost, max(cost - 1e-12, 0.0), cost + 1e-12)
        for best in best_changes(ranked, near)
        for changes in [[i for i in best if ranked[i - 1] != ranked[i]]]
    }
    params = {
        "penalty": penalty,
        "max_penalty": max_penalty,
        "gap_filter": share,
        "min_drop": least,
        "min_tips": nt,
        "min_update_similarity": floor,
        "min_update_similarity_alone": alone,
    }
    selection = SELECTORS.build("least-squares", params).choose(
        make_request(dict(zip("abcdefgh", ranked, strict=False)))
    )
    assert selection.cut in cuts


def test_takes_the_own_cluster_and_nobody_else() -> None:
    similarities = {"a": 0.97, "b": 0.31, "c": 0.96, "d": 0.30, "e": 0.98, "f": 0.29, "g": 0.28}
    selection = RULE.choose(make_request(similarities))
    assert taken(selection) == "eac"
    assert (selection.source, selection.cut, selection.rule) == ("parents", 3, "least squares: change point")
    assert [each.probability for each in selection.candidates] == [None] * 7


@pytest.mark.parametrize("sizes", [(1, 9), (2, 20), (8, 2), (3, 3, 3), (10, 10, 10), (30, 30, 30)])
def test_clusters_of_any_size_are_parted(sizes: tuple[int, ...]) -> None:
    """Levels .9, .7, .5, a fortieth of a gap of noise: the first cluster is taken whole and alone."""
    rng = np.random.default_rng(3)
    noisy = [0.9 - 0.2 * level + rng.normal(0, 0.005, size) for level, size in enumerate(sizes)]
    names = [chr(0x4E00 + i) for i in range(sum(sizes))]
    selection = RULE.choose(make_request(dict(zip(names, np.concatenate(noisy), strict=True))))
    assert selection.cut == sizes[0]


def test_noise_within_one_large_cluster_does_not_cut_it() -> None:
    noise = np.random.default_rng(5).normal(0.92, 0.004, 250)
    names = [chr(0x4E00 + i) for i in range(400)]
    request = make_request(dict(zip(names, [*noise, *np.full(150, 0.1)], strict=True)))
    assert RULE.choose(request).cut == 30


def test_noise_is_read_from_the_median_spacing_whatever_the_gaps() -> None:
    """Uniform values 1 apart over n have a standard deviation of n / sqrt(12); the factor makes medians of random
    spacings right, which are ln 2 of their mean, so equal spacings read 1 / ln 2 of it.
    """
    even = np.arange(100.0, 0.0, -1.0)
    expected = 100 / np.sqrt(12) / np.log(2)
    assert noise_of(even) == pytest.approx(expected)
    with_gap = np.concatenate([even[:50] + 1e6, even[50:]])
    assert noise_of(with_gap) == pytest.approx(expected)
    drawn = np.sort(np.random.default_rng(1).uniform(0, 1, 100_000))[::-1]
    assert noise_of(drawn) == pytest.approx(1 / np.sqrt(12), rel=0.02)  # the median's own spread is 0.5 %


def test_sum_of_squares_is_about_the_mean() -> None:
    assert sum_of_squares(np.array([3.0, 1.0])) == 2.0


def test_one_cluster_is_cut_by_a_low_penalty_only_where_no_least_drop_keeps_it_whole() -> None:
    noise = np.random.default_rng(2).normal(0.9, 0.01, 30)
    request = make_request(dict(zip([chr(0x4E00 + i) for i in range(30)], noise, strict=True)))
    assert RULE.choose(request).cut == 30
    assert SELECTORS.build("least-squares", {"min_drop": 0.0}).choose(request).cut < 30
    strict = SELECTORS.build("least-squares", {"min_drop": 0.0, "penalty": 1000.0, "max_penalty": 1.0})
    assert strict.choose(request).cut == 30


@pytest.mark.parametrize(
    ("similarities", "expected", "rule"),
    [
        ({"a": 0.45, "b": 0.40, "c": 0.36, "d": 0.20}, "abc", "lower floor"),
        ({"a": 0.45, "b": 0.43, "c": 0.10, "d": 0.08}, "ab", "lower floor"),
        ({"a": 0.52, "b": 0.48, "c": 0.45, "d": 0.41}, "a", "similarity floor"),
        ({"a": 0.30, "b": 0.28, "c": 0.25, "d": 0.20}, "", "resembles nobody"),
    ],
    ids=["those above it", "those before a change", "not who has one alike", "nobody below it"],
)
def test_lower_floor_is_for_a_client_that_would_be_left_alone(
    similarities: dict[str, float], expected: str, rule: str
) -> None:
    selector = SELECTORS.build("least-squares", {"min_update_similarity_alone": 0.35})
    selection = selector.choose(make_request(similarities))
    assert (taken(selection), selection.rule) == (expected, f"least squares: {rule}")


def test_min_tips_of_those_above_the_lower_floor_are_taken_whatever_changes() -> None:
    selector = SELECTORS.build("least-squares", {"min_update_similarity_alone": 0.35, "min_tips": 4})
    selection = selector.choose(make_request({"a": 0.48, "b": 0.47, "c": 0.36, "d": 0.355, "e": 0.351, "f": 0.1}))
    assert (taken(selection), selection.rule) == ("abcd", "least squares: lower floor")
