"""Who gets which samples, on labels that a person can count."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_simulator.errors import PartitionError
from fl_simulator.partition import Iid, IidParams, Superclass, SuperclassParams
from fl_simulator.population import Share

MNIST_LIKE = np.repeat(np.arange(10), 600)


def counts(labels: NDArray[np.int64], share: Share) -> list[int]:
    """How many samples of each of ten labels a client has."""
    return np.bincount(labels[np.concatenate([share.train, share.test])], minlength=10).tolist()


def by_superclass(labels: NDArray[np.int64] = MNIST_LIKE, *, seed: int = 0, **params: object) -> list[Share]:
    rule = Superclass(SuperclassParams(**params))  # type: ignore[arg-type]
    return rule.shares(labels, train_fraction=0.8, rng=np.random.default_rng(seed))


def test_the_papers_three_superclasses_have_thirty_clients_each_with_their_labels_only() -> None:
    shares = by_superclass()
    assert [share.cluster for share in shares] == [0] * 30 + [1] * 30 + [2] * 30
    for share in shares:
        labels = {0: {0, 1, 2}, 1: {3, 4, 5}, 2: {6, 7, 8, 9}}[share.cluster]
        assert {label for label, n in enumerate(counts(MNIST_LIKE, share)) if n} == labels


def test_all_clients_have_what_the_scarcest_superclass_allows() -> None:
    # 1,800 samples of three labels for 30 clients: 60 each, 48 of them to train on.
    assert {(len(share.train), len(share.test)) for share in by_superclass()} == {(48, 12)}


def test_in_type_one_a_client_has_equally_many_of_each_of_its_labels() -> None:
    shares = by_superclass(kind="I")
    assert counts(MNIST_LIKE, shares[0]) == [20, 20, 20, 0, 0, 0, 0, 0, 0, 0]
    assert counts(MNIST_LIKE, shares[89]) == [0, 0, 0, 0, 0, 0, 15, 15, 15, 15]


def test_in_type_two_clients_have_the_same_labels_in_other_numbers() -> None:
    shares = by_superclass(kind="II", samples=60)
    rows = np.array([counts(MNIST_LIKE, share)[:3] for share in shares[:30]])
    assert (rows.sum(axis=1) == 60).all()
    assert rows.std(axis=0).min() > 5
    assert rows.sum(axis=0).tolist() == [600, 600, 600], "all of three labels are given out"


def test_a_superclass_without_enough_samples_is_refused_with_what_there_is() -> None:
    with pytest.raises(PartitionError, match="60 samples each, not 61"):
        by_superclass(samples=61)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"kind": "III"}, "I or II"),
        ({"superclasses": "0,1;1,2", "clients": "1,1"}, "two superclasses"),
        ({"superclasses": "0,1;2", "clients": "3"}, "for each superclass"),
        ({"superclasses": "a"}, "whole numbers"),
    ],
)
def test_parameters_that_cannot_be_are_refused(params: dict[str, str], why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        SuperclassParams(**params)  # type: ignore[arg-type]


def test_iid_clients_are_one_cluster_of_equal_parts() -> None:
    shares = Iid(IidParams(clients=4)).shares(MNIST_LIKE, train_fraction=0.8, rng=np.random.default_rng(0))
    assert [(len(each.train), len(each.test), each.cluster) for each in shares] == [(1200, 300, 0)] * 4


def test_more_than_there_is_cannot_be_shared_out() -> None:
    with pytest.raises(PartitionError, match="4 clients cannot have 2000 of 6000"):
        Iid(IidParams(clients=4, samples=2000)).shares(MNIST_LIKE, train_fraction=0.8, rng=np.random.default_rng(0))
