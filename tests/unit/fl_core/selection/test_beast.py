"""The adaptive choice: where it cuts, when it keeps the own model, what the literal rule does instead."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.selection import SELECTORS, Selection
from fl_core.selection.beast import Beast, BeastParams
from fl_core.selection.filters import MIN_HEAD
from tests.reference.selection import literal_index, robust_cut
from tests.selections import FixedDetector, letters, make_request, tx

ROBUST = SELECTORS.build("beast", {})
LITERAL = SELECTORS.build("beast", {"rule": "literal"})


def taken(selection: Selection) -> str:
    return letters([each.transaction for each in selection.candidates if each.selected])


def test_takes_the_own_cluster_and_nobody_else() -> None:
    similarities = {"a": 0.97, "b": 0.31, "c": 0.96, "d": 0.30, "e": 0.98, "f": 0.29, "g": 0.28}
    selection = ROBUST.choose(make_request(similarities))
    assert taken(selection) == "eac"
    assert (selection.source, selection.cut, selection.rule) == ("parents", 3, "robust: change point")
    assert selection.candidates[3].probability > 0.9


def test_one_tip_that_resembles_the_client_is_taken() -> None:
    selection = ROBUST.choose(make_request({"a": 0.8}))
    assert (taken(selection), selection.rule) == ("a", "robust: no change")


def test_of_two_tips_the_one_below_the_floor_is_left() -> None:
    selection = ROBUST.choose(make_request({"a": 0.4, "b": 0.8}))
    assert (taken(selection), selection.rule) == ("b", "robust: similarity floor")


def test_equal_similarities_are_all_taken_up_to_the_limit() -> None:
    selection = ROBUST.choose(make_request(dict.fromkeys("abcdefgh", 0.9), max_selected=5))
    assert (taken(selection), selection.rule) == ("abcde", "robust: no change")


def test_client_that_resembles_nobody_keeps_its_own_model() -> None:
    strangers = {"a": 0.45, "b": 0.2, "c": 0.19}
    established = ROBUST.choose(make_request(strangers, own_newest="x"))
    assert (established.source, letters(established.parents)) == ("own", "x")
    assert established.rule == "robust: resembles nobody"
    joiner = ROBUST.choose(make_request(strangers))
    assert (joiner.source, letters(joiner.parents)) == ("own", "^")


def test_floor_of_minus_one_never_keeps_the_own_model() -> None:
    selector = SELECTORS.build("beast", {"min_update_similarity": -1.0})
    assert taken(selector.choose(make_request({"a": -0.9}))) == "a"


def test_robust_rule_ranks_by_updates_and_the_literal_rule_by_models() -> None:
    updates = {"a": 0.9, "b": 0.1, "c": 0.1}
    models = {"a": 0.7, "b": 0.8, "c": 0.75}
    request = make_request(updates, models=models)
    assert taken(ROBUST.choose(request)) == "a"
    assert taken(LITERAL.choose(request))[0] == "b"


def test_min_tips_widens_an_early_cut_but_not_below_the_floor() -> None:
    detector = FixedDetector(0, 0.9, 0, 0)
    request = make_request({"a": 0.99, "b": 0.8, "c": 0.7, "d": 0.3})
    for min_tips, expected in ((1, "a"), (2, "ab"), (3, "abc"), (4, "abc")):
        assert taken(Beast(BeastParams(min_tips=min_tips), detector).choose(request)) == expected


def test_gap_filter_ignores_a_small_step_before_a_large_one() -> None:
    detector = FixedDetector(0, 0.9, 0, 0.9)
    request = make_request({"a": 0.99, "b": 0.95, "c": 0.94, "d": 0.6})
    assert taken(Beast(BeastParams(gap_filter=0.3), detector).choose(request)) == "abc"
    assert taken(Beast(BeastParams(gap_filter=0.0, min_drop=0.0), detector).choose(request)) == "a"


def test_noise_within_one_large_cluster_does_not_cut_it() -> None:
    """The head of 64 holds one cluster only, and BEAST sees the tails of its noise as segments."""
    noise = np.random.default_rng(5).normal(0.92, 0.004, 250)
    names = [chr(0x4E00 + i) for i in range(400)]
    request = make_request(dict(zip(names, [*noise, *np.full(150, 0.1)], strict=True)))
    assert ROBUST.choose(request).cut == 30
    unguarded = SELECTORS.build("beast", {"min_drop": 0.0})
    assert unguarded.choose(request).cut < 30


def test_probability_must_exceed_alpha() -> None:
    request = make_request({"a": 0.99, "b": 0.98, "c": 0.6})
    detector = FixedDetector(0, 0, 0.5)
    assert taken(Beast(BeastParams(alpha=0.5), detector).choose(request)) == "abc"
    assert taken(Beast(BeastParams(alpha=0.49), detector).choose(request)) == "ab"


def test_literal_rule_takes_the_first_i_tips_and_at_least_nt() -> None:
    request = make_request({"a": 0.9, "b": 0.8, "c": 0.2, "d": 0.1})
    change = FixedDetector(0, 0, 0.9, 0)
    nothing = FixedDetector(0, 0, 0, 0)
    for detector, min_tips, expected in ((change, 1, "ab"), (change, 3, "abc"), (nothing, 2, "ab")):
        params = BeastParams(rule="literal", min_tips=min_tips)
        assert taken(Beast(params, detector).choose(request)) == expected


def test_literal_rule_takes_a_stranger_rather_than_keeping_the_own_model() -> None:
    assert taken(LITERAL.choose(make_request({"a": -0.5}, own_newest="x"))) == "a"


def test_the_own_update_is_added_to_the_cut_and_stays_out_of_the_sequence() -> None:
    detector = FixedDetector(0, 0, 0.9)
    request = make_request({"a": 0.9, "b": 0.8, "c": 0.1}, own_averaged="x")
    selection = Beast(BeastParams(), detector).choose(request)
    assert letters(selection.parents) == "abx"
    assert [list(each) for each in detector.asked] == [[0.9, 0.8, 0.1]]


@pytest.mark.parametrize("rule", ["robust", "literal"])
def test_detector_is_not_asked_about_fewer_than_three_or_about_equal_values(rule: str) -> None:
    detector = FixedDetector(0, 0, 0)
    selector = Beast(BeastParams(rule=rule), detector)
    for similarities in ({}, {"a": 0.9}, {"a": 0.9, "b": 0.1}, dict.fromkeys("abc", 0.9)):
        selection = selector.choose(make_request(similarities))
        assert all(each.probability is None for each in selection.candidates)
    assert detector.asked == []


def test_robust_rule_does_not_ask_where_no_drop_could_part_clusters() -> None:
    detector = FixedDetector(0, 0, 0.9, 0.9)
    request = make_request({"a": 0.90, "b": 0.86, "c": 0.82, "d": 0.78})
    selection = Beast(BeastParams(min_drop=0.05), detector).choose(request)
    assert letters(selection.parents) == "abcd"
    assert detector.asked == []
    Beast(BeastParams(rule="literal"), detector).choose(request)
    Beast(BeastParams(min_drop=0.03), detector).choose(request)
    assert len(detector.asked) == 2


def test_only_the_head_of_a_long_ranking_is_examined() -> None:
    names = [chr(0x4E00 + i) for i in range(300)]
    values = np.linspace(0.99, 0.6, 300)
    detector = FixedDetector(*[0.0] * 300)
    request = make_request(dict(zip(names, values, strict=True)), max_selected=50)
    params = BeastParams(min_drop=0.0)
    selection = Beast(params, detector).choose(request)
    assert [len(each) for each in detector.asked] == [100]
    assert [each.probability is None for each in selection.candidates] == [False] * 100 + [True] * 200
    assert (selection.cut, len(selection.parents)) == (50, 50)
    Beast(params, detector).choose(make_request(dict(zip(names, values, strict=True)), max_selected=2))
    assert len(detector.asked[-1]) == MIN_HEAD


def test_cut_beyond_the_examined_head_takes_what_there_is_room_for() -> None:
    names = [chr(0x4E00 + i) for i in range(200)]
    request = make_request(dict.fromkeys(names, 0.9), max_selected=120, own_averaged="x")
    assert len(ROBUST.choose(request).parents) == 120
    assert tx("x") in ROBUST.choose(request).parents


@given(
    values=st.lists(st.floats(-1, 1), min_size=3, max_size=10),
    confidence=st.lists(st.floats(0, 1), min_size=10, max_size=10),
    alpha=st.sampled_from([0.2, 0.5, 0.9]),
    beta=st.sampled_from([0.0, 0.3, 1.0]),
    least=st.sampled_from([0.0, 0.05, 0.5]),
    nt=st.integers(1, 5),
    floor=st.sampled_from([-1.0, 0.0, 0.5]),
    alone=st.sampled_from([-0.5, 0.25, 1.0]),
)
def test_cuts_agree_with_the_naive_twins(
    *,
    values: list[float],
    confidence: list[float],
    alpha: float,
    beta: float,
    least: float,
    nt: int,
    floor: float,
    alone: float,
) -> None:
    ranked = sorted(values, reverse=True)
    confidence = [0.0, *confidence[1 : len(ranked)]]
    if ranked[0] == ranked[-1]:
        confidence = []  # nobody is asked about equal values
    request = make_request(dict(zip("abcdefghij", ranked, strict=False)))
    detector = FixedDetector(*confidence)
    robust = BeastParams(
        alpha=alpha,
        gap_filter=beta,
        min_drop=least,
        min_tips=nt,
        min_update_similarity=floor,
        min_update_similarity_alone=alone,
    )
    expected = robust_cut(ranked, confidence, alpha=alpha, beta=beta, least=least, nt=nt, floor=floor, alone=alone)
    assert Beast(robust, detector).choose(request).cut == expected
    literal = BeastParams(rule="literal", alpha=alpha, min_tips=nt)
    expected = min(literal_index(confidence, alpha, nt), len(ranked))
    assert Beast(literal, detector).choose(request).cut == expected
