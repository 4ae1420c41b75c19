"""The only door to Rbeast: the index it reports, and what never reaches it."""

import numpy as np
import pytest

from fl_core.selection.change_points import BeastPriors, change_point_probabilities

PRIORS = BeastPriors()


def steps(*levels: tuple[float, int], noise: float = 0.0, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.full(count, level) for level, count in levels])
    return np.sort(values + noise * rng.standard_normal(len(values)))[::-1]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 2), (3, 9), (9, 2), (30, 60)])
def test_index_counts_the_elements_before_the_change(before: int, after: int) -> None:
    probabilities = change_point_probabilities(steps((0.9, before), (0.4, after)), PRIORS)
    assert int(np.argmax(probabilities)) == before
    assert probabilities[before] > 0.5
    assert probabilities[0] == 0


def test_first_of_several_changes_is_found_in_noise() -> None:
    probabilities = change_point_probabilities(steps((0.9, 10), (0.6, 10), (0.3, 10), noise=0.005), PRIORS)
    assert {10, 20} <= set(np.flatnonzero(probabilities > 0.5))


def test_difference_of_one_in_a_hundred_thousand_is_seen() -> None:
    """BEAST computes in float32; standardising in float64 first is what makes this work."""
    probabilities = change_point_probabilities(steps((1 - 1e-5, 8), (1 - 3e-5, 8)), PRIORS)
    assert int(np.argmax(probabilities)) == 8


def test_same_sequence_gives_the_same_bits() -> None:
    sequence = steps((0.9, 5), (0.5, 7), noise=0.05)
    first = change_point_probabilities(sequence, PRIORS)
    change_point_probabilities(steps((0.2, 3), (0.1, 4)), PRIORS)
    assert change_point_probabilities(sequence, PRIORS).tobytes() == first.tobytes()


@pytest.mark.parametrize("sequence", [[], [0.5], [0.9, 0.1], [0.5] * 10, [0.3, 0.3 + 1e-17, 0.3], [1e-320, 0.0, 0.0]])
def test_too_short_or_constant_is_answered_without_a_call(
    sequence: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("Rbeast was called")

    monkeypatch.setattr("Rbeast.beast", never)
    assert (change_point_probabilities(np.array(sequence), PRIORS) == 0).all()


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    change_point_probabilities(steps((0.9, 5), (0.1, 5)), PRIORS)
    assert capfd.readouterr() == ("", "")


def test_arguments_are_plain_python_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rbeast misreads NumPy scalars without a word."""
    seen: dict[str, object] = {}

    class Stop(Exception):  # noqa: N818
        pass

    def spy(_: object, **keywords: object) -> None:
        seen.update(keywords)
        raise Stop

    monkeypatch.setattr("Rbeast.beast", spy)
    with pytest.raises(Stop):
        change_point_probabilities(steps((0.9, 5), (0.1, 5)), PRIORS)
    for value in seen.values():
        assert type(value) in (int, str, bool, list)
        assert not isinstance(value, list) or all(type(each) is int for each in value)


@pytest.mark.parametrize("sequence", [[0.1, np.nan, 0.2], [0.1, np.inf, 0.2], [[0.1, 0.2], [0.3, 0.4]]])
def test_what_is_not_a_finite_sequence_is_refused(sequence: list[float]) -> None:
    with pytest.raises(ValueError, match="one-dimensional and finite"):
        change_point_probabilities(np.array(sequence), PRIORS)
