"""Algorithm 2."""

from hypothesis import given
from hypothesis import strategies as st

from fl_core.selection import SELECTORS
from tests.reference.selection import top_k
from tests.selections import letters, make_request


def test_takes_the_k_most_similar_models_and_the_own_update() -> None:
    request = make_request(
        dict.fromkeys("abcd", 0.0), models={"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.7}, own_averaged="x"
    )
    selection = SELECTORS.build("top-k", {"k": 2}).choose(request)
    assert letters(selection.parents) == "bdx"
    assert [each.probability for each in selection.candidates] == [None] * 4


@given(st.lists(st.sampled_from([-0.5, 0.0, 0.25, 0.5, 0.75]), max_size=10), st.integers(1, 12), st.integers(1, 12))
def test_agrees_with_the_naive_twin(values: list[float], k: int, room: int) -> None:
    named = dict(zip("abcdefghij", values, strict=False))
    request = make_request(named, max_selected=room)
    selection = SELECTORS.build("top-k", {"k": k}).choose(request)
    chosen = [each.transaction for each in selection.candidates if each.selected]
    assert set(letters(chosen)) == top_k(list(named), list(named.values()), k, room)
