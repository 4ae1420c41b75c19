"""What every registered partitioner promises, on labels like MNIST's: ten, nearly equally frequent."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl_core.errors import ParameterError, UnknownNameError
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError

LABELS = np.random.default_rng(0).integers(0, 10, 3000)
names = st.sampled_from(sorted(PARTITIONERS))
fractions = st.sampled_from([0.5, 0.8, 1.0])


def shares_of(name: str, labels: NDArray[np.int64] = LABELS, *, fraction: float = 0.8, seed: int = 0) -> list[Share]:
    return PARTITIONERS.build(name, {}, labels, train_fraction=fraction, rng=np.random.default_rng(seed))


@settings(max_examples=20, deadline=None)
@given(names, fractions, st.integers(0, 9))
def test_no_sample_is_given_twice(name: str, fraction: float, seed: int) -> None:
    given_out = np.concatenate(
        [np.concatenate([s.train, s.test]) for s in shares_of(name, fraction=fraction, seed=seed)]
    )
    assert len(given_out) == len(set(given_out.tolist()))
    assert 0 <= given_out.min() <= given_out.max() < len(LABELS)


@settings(max_examples=20, deadline=None)
@given(names, fractions)
def test_each_client_trains_on_its_fraction_and_on_one_sample_at_least(name: str, fraction: float) -> None:
    for share in shares_of(name, fraction=fraction):
        size = len(share.train) + len(share.test)
        assert len(share.train) == max(round(size * fraction), 1)


@pytest.mark.parametrize("name", PARTITIONERS)
def test_the_same_seed_gives_the_same_shares_and_another_gives_others(name: str) -> None:
    first, again, other = shares_of(name), shares_of(name), shares_of(name, seed=1)
    assert all(np.array_equal(a.train, b.train) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a.train, b.train) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", PARTITIONERS)
def test_clusters_are_numbered_from_nought_without_a_gap(name: str) -> None:
    clusters = {share.cluster for share in shares_of(name)}
    assert clusters == set(range(len(clusters)))


@pytest.mark.parametrize("name", PARTITIONERS)
def test_every_parameter_can_be_said(name: str) -> None:
    unsaid = PARTITIONERS.read_params(name, {})
    assert PARTITIONERS.read_params(name, asdict(unsaid)) == unsaid


@pytest.mark.parametrize("name", PARTITIONERS)
def test_a_data_set_without_samples_is_refused(name: str) -> None:
    with pytest.raises(PartitionError):
        shares_of(name, LABELS[:0])


@pytest.mark.parametrize("name", PARTITIONERS)
def test_it_refuses_what_it_does_not_know(name: str) -> None:
    with pytest.raises(ParameterError, match="colour"):
        PARTITIONERS.read_params(name, {"colour": 1})


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="superclass"):
        PARTITIONERS.read_params("by-moon-phase", {})
