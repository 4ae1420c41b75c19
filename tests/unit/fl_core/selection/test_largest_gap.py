"""The largest gap: where it cuts, and what it shares with the robust rule."""

from hypothesis import given
from hypothesis import strategies as st

from fl_core.selection import SELECTORS, Selection
from tests.reference.selection import robust_cut
from tests.selections import letters, make_request

LARGEST = SELECTORS.build("largest-gap", {})


def taken(selection: Selection) -> str:
    return letters([each.transaction for each in selection.candidates if each.selected])


def test_cuts_before_the_largest_drop() -> None:
    selection = LARGEST.choose(make_request({"a": 0.95, "b": 0.93, "c": 0.60, "d": 0.55}))
    assert (taken(selection), selection.rule) == ("ab", "largest gap: change point")
    assert [each.probability for each in selection.candidates] == [None] * 4


def test_of_equal_drops_the_first_counts() -> None:
    assert taken(LARGEST.choose(make_request({"a": 1.0, "b": 0.75, "c": 0.5}))) == "a"


def test_wider_gap_behind_a_foreign_cluster_deceives_it_unless_the_filter_is_lowered() -> None:
    """Own, foreign at .7, foreign at .3: the wider gap is the second, and .7 is above the floor."""
    request = make_request({"a": 0.96, "b": 0.95, "c": 0.70, "d": 0.69, "e": 0.30})
    assert taken(LARGEST.choose(request)) == "abcd"
    assert taken(SELECTORS.build("largest-gap", {"gap_filter": 0.5}).choose(request)) == "ab"


def test_drop_below_the_least_that_can_part_clusters_is_none() -> None:
    request = make_request({"a": 0.90, "b": 0.86, "c": 0.85})
    selection = LARGEST.choose(request)
    assert (taken(selection), selection.rule) == ("abc", "largest gap: no change")
    assert taken(SELECTORS.build("largest-gap", {"min_drop": 0.03}).choose(request)) == "a"


def test_gap_far_beyond_what_can_be_taken_is_not_searched() -> None:
    """Place 20 has the larger drop inside the head of 64; place 80 has a larger one still, and would let all in."""
    names = [chr(0x4E00 + i) for i in range(100)]
    values = [0.95] * 20 + [0.80] * 60 + [0.0] * 20
    assert LARGEST.choose(make_request(dict(zip(names, values, strict=True)))).cut == 20


@given(
    values=st.lists(st.floats(-1, 1), min_size=3, max_size=10),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    least=st.sampled_from([0.0, 0.05, 0.5]),
    nt=st.integers(1, 5),
    floor=st.sampled_from([-1.0, 0.0, 0.5]),
    alone=st.sampled_from([-0.5, 0.25, 1.0]),
)
def test_cuts_agree_with_the_naive_twin(
    *, values: list[float], share: float, least: float, nt: int, floor: float, alone: float
) -> None:
    ranked = sorted(values, reverse=True)
    certain = [] if ranked[0] == ranked[-1] else [1.0] * len(ranked)  # every place may be a change
    params = {
        "gap_filter": share,
        "min_drop": least,
        "min_tips": nt,
        "min_update_similarity": floor,
        "min_update_similarity_alone": alone,
    }
    selection = SELECTORS.build("largest-gap", params).choose(
        make_request(dict(zip("abcdefghij", ranked, strict=False)))
    )
    expected = robust_cut(ranked, certain, alpha=0.5, beta=share, least=least, nt=nt, floor=floor, alone=alone)
    assert selection.cut == expected
