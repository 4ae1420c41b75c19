"""What every registered selector promises, whatever its rule."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError, UnknownNameError
from fl_core.parameters import rules_of
from fl_core.selection import SELECTORS, SelectionRequest, TipSelector
from tests.selections import GENESIS, letters, make_request, tx

VARIANTS = [(name, {}) for name in SELECTORS] + [("beast", {"rule": "literal", "min_tips": 2})]
TWO_CLUSTERS = {"a": 0.2, "b": 0.97, "c": 0.1, "d": 0.95, "e": 0.96, "f": 0.15}


@pytest.fixture(params=VARIANTS, ids=lambda each: "-".join([each[0], *map(str, each[1].values())]))
def selector(request: pytest.FixtureRequest) -> TipSelector:
    name, params = request.param
    return SELECTORS.build(name, params)


def test_selector_is_called_what_the_registry_calls_it(selector: TipSelector) -> None:
    assert selector.name in SELECTORS
    assert isinstance(selector, TipSelector)


def test_every_parameter_has_a_meaning_in_words(selector: TipSelector) -> None:
    rules = rules_of(type(selector.params))
    assert rules
    assert all(len(rule.doc) > 10 for rule in rules.values())


def test_no_candidate_means_that_a_client_keeps_its_own_model(selector: TipSelector) -> None:
    established = selector.choose(make_request({}, own_newest="x"))
    assert (established.source, letters(established.parents)) == ("own", "x")
    joiner = selector.choose(make_request({}))
    assert (joiner.source, joiner.parents, joiner.cut) == ("own", (GENESIS,), 0)


def test_the_own_update_alone_is_the_only_parent(selector: TipSelector) -> None:
    selection = selector.choose(make_request({}, own_averaged="x"))
    assert (selection.source, letters(selection.parents)) == ("own", "x")


def test_the_own_update_is_always_a_parent_and_never_ranked(selector: TipSelector) -> None:
    selection = selector.choose(make_request(TWO_CLUSTERS, own_averaged="x"))
    assert tx("x") in selection.parents
    assert tx("x") not in {each.transaction for each in selection.candidates}


def test_no_more_parents_than_allowed_with_the_own_update_counted(selector: TipSelector) -> None:
    alike = dict.fromkeys("abcdefgh", 0.9)
    assert len(selector.choose(make_request(alike, max_selected=3)).parents) <= 3
    with_own = selector.choose(make_request(alike, own_averaged="x", max_selected=3))
    assert len(with_own.parents) <= 3
    assert tx("x") in with_own.parents


def test_room_for_the_own_update_only_means_that_the_client_goes_on_alone(selector: TipSelector) -> None:
    selection = selector.choose(make_request(TWO_CLUSTERS, own_averaged="x", max_selected=1))
    assert (selection.source, letters(selection.parents)) == ("own", "x")


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_equal_candidates_rank_by_transaction_id(selector: TipSelector, count: int) -> None:
    alike = dict.fromkeys("jihgfedcba"[-count:], 0.9)
    selection = selector.choose(make_request(alike))
    assert letters([each.transaction for each in selection.candidates]) == "abcdefghij"[:count]


def test_answer_does_not_depend_on_what_came_before(selector: TipSelector) -> None:
    first = selector.choose(make_request(TWO_CLUSTERS))
    selector.choose(make_request({"a": 0.3, "b": 0.2, "c": 0.1}))
    assert selector.choose(make_request(TWO_CLUSTERS)) == first


@settings(max_examples=15, deadline=None)
@given(
    values=st.lists(st.floats(-1, 1), max_size=12),
    room=st.integers(1, 12),
    has_own=st.booleans(),
    variant=st.sampled_from(VARIANTS),
)
def test_any_question_gets_a_sound_answer(
    values: list[float], room: int, *, has_own: bool, variant: tuple[str, dict[str, str]]
) -> None:
    request = make_request(
        dict(zip("abcdefghijkl", values, strict=False)), own_averaged="x" if has_own else None, max_selected=room
    )
    selection = SELECTORS.build(*variant).choose(request)
    _assert_sound(request, selection.parents)
    taken = [each.transaction for each in selection.candidates if each.selected]
    assert len(selection.candidates) == len(values)
    assert [each.selected for each in selection.candidates] == sorted(
        (each.selected for each in selection.candidates), reverse=True
    )
    assert selection.cut == len(taken)
    assert (selection.source == "own") == (not taken)
    expected = set(taken) | ({tx("x")} if has_own else set() if taken else {GENESIS})
    assert set(selection.parents) == expected


def _assert_sound(request: SelectionRequest, parents: tuple[str, ...]) -> None:
    assert parents
    assert len(parents) <= request.max_selected
    assert all(left < right for left, right in pairwise(parents))


@settings(max_examples=10, deadline=None)
@given(order=st.permutations("abcdef"), variant=st.sampled_from(VARIANTS))
def test_who_has_which_id_does_not_matter(order: list[str], variant: tuple[str, dict[str, str]]) -> None:
    """Renaming the candidates renames the answer: ids decide nothing but ties."""
    renamed = dict(zip(order, TWO_CLUSTERS.values(), strict=True))
    back = dict(zip(order, TWO_CLUSTERS, strict=True))
    selector = SELECTORS.build(*variant)
    plain = letters(selector.choose(make_request(TWO_CLUSTERS)).parents)
    answer = letters(selector.choose(make_request(renamed)).parents)
    assert sorted(back[name] for name in answer) == sorted(plain)


def test_unknown_selector_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        SELECTORS.build("kohonen", {})
    assert caught.value.known == tuple(sorted(SELECTORS))
    assert "top-k" in str(caught.value)


@pytest.mark.parametrize("name", SELECTORS)
def test_unknown_parameter_names_the_known_ones(name: str) -> None:
    with pytest.raises(ParameterError, match="no parameter 'sigma'; known: "):
        SELECTORS.build(name, {"sigma": 1})


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("top-k", {"k": 0}),
        ("top-k", {"k": True}),
        ("top-k", {"k": 2.0}),
        ("top-k", {"k": "2"}),
        ("largest-gap", {"gap_filter": 1.5}),
        ("largest-gap", {"min_drop": -0.1}),
        ("least-squares", {"penalty": -1}),
        ("least-squares", {"max_penalty": 1.01}),
        ("least-squares", {"min_tips": 0}),
        ("beast", {"alpha": 0}),
        ("beast", {"alpha": 1.0}),
        ("beast", {"alpha": float("nan")}),
        ("beast", {"alpha": "0.5"}),
        ("beast", {"alpha": True}),
        ("beast", {"alpha": 10**400}),
        ("beast", {"min_tips": 0}),
        ("beast", {"gap_filter": 1.1}),
        ("beast", {"gap_filter": float("inf")}),
        ("beast", {"min_update_similarity": -1.5}),
        ("beast", {"rule": "best"}),
        ("beast", {"samples": 799}),
        ("beast", {"seed": 0}),
        ("beast", {"cpu_type": "auto"}),
        ("beast", {"trend_order_min": 1}),
        ("beast", {"changepoints_min": 5}),
    ],
)
def test_parameter_out_of_range_or_of_wrong_type_is_refused(name: str, params: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        SELECTORS.build(name, params)  # type: ignore[arg-type]


def test_integer_is_taken_for_a_float() -> None:
    selector = SELECTORS.build("beast", {"gap_filter": 0, "min_update_similarity": -1})
    assert (selector.params.gap_filter, selector.params.min_update_similarity) == (0.0, -1.0)
    assert type(selector.params.gap_filter) is float


def test_request_refuses_what_only_a_mistake_would_send() -> None:
    good = make_request({"a": 0.5, "b": 0.4}, own_averaged="x")
    with pytest.raises(ValueError, match="ascending"):
        _with(good, candidates=good.candidates[::-1])
    with pytest.raises(ValueError, match="finite"):
        _with(good, similarities=np.array([0.5, np.nan]))
    with pytest.raises(ValueError, match="own newest"):
        _with(good, own_averaged=tx("a"))
    with pytest.raises(ValueError, match="max_selected"):
        _with(good, max_selected=0)


def _with(request: SelectionRequest, **changes: object) -> SelectionRequest:
    import dataclasses

    return dataclasses.replace(request, **changes)  # type: ignore[arg-type]
