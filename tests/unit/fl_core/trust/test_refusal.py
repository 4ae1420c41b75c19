"""When an average is worse than a client's own model, by more than chance on so many samples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.trust.refusal import compare

SHARE = st.floats(0, 1)


def judged(own: float, average: float, samples: float | None = None, *, metric: str = "accuracy") -> bool:
    more = {} if samples is None else {"num_examples": samples}
    comparison = compare({metric: own, **more}, {metric: average, **more}, margin=0.05)
    assert comparison is not None
    return comparison.is_refused


@pytest.mark.parametrize(
    ("own", "average", "samples", "refused"),
    [
        # 25 samples at 0.8 and 0.55: shares (21/27, 14.75/27), error √(0.421/25) = 0.130
        (0.8, 0.55, 25, False),
        (0.8, 0.50, 25, True),
        (0.8, 0.74, 10_000, True),
        (0.8, 0.76, 10_000, False),  # beyond chance, and inside the margin
        (1.0, 0.0, 1, False),  # one sample proves nothing
        (1.0, 0.0, 4, True),
        (0.8, 0.55, None, False),  # not told: as of 25
    ],
)
def test_worse_is_by_more_than_the_margin_and_than_two_standard_errors(
    own: float, average: float, samples: float | None, *, refused: bool
) -> None:
    assert judged(own, average, samples) is refused


def test_losses_are_compared_where_there_is_no_accuracy() -> None:
    assert judged(0.5, 2.0, 100, metric="loss")
    assert not judged(0.5, 0.6, 100, metric="loss")
    assert not judged(2.0, 0.5, 100, metric="loss")
    assert compare({"mae": 1.0}, {"mae": 9.0}, margin=0.05) is None


@given(SHARE, SHARE, st.integers(1, 10_000))
def test_of_two_models_at_most_one_is_refused_beside_the_other(own: float, average: float, samples: int) -> None:
    assert not (judged(own, average, samples) and judged(average, own, samples))
    assert not judged(own, own, samples)
