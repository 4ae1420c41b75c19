"""Three clusters of two clients each on ten labels, of each a hundred samples: what differs, and how much."""

from typing import Any

import numpy as np
import pytest

from fl_core.errors import ParameterError
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.engine.population import Share, gather
from fl_simulator.errors import PartitionError

LABELS = np.repeat(np.arange(10), 100)
IMAGES = np.arange(4000, dtype=np.float32).reshape(1000, 2, 2)


def shares(kind: str, strength: float, *, labels: np.ndarray = LABELS, seed: int = 0, **params: Any) -> list[Share]:
    given = {"kind": kind, "strength": strength, "clients": "2,2,2", **params}
    return PARTITIONERS.build("shifts", given, labels, train_fraction=0.8, rng=np.random.default_rng(seed))


def counts(share: Share) -> list[int]:
    return np.bincount(LABELS[np.concatenate([share.train, share.test])], minlength=10).tolist()


def test_full_strength_of_labels_is_superclasses() -> None:
    first, _, second, _, third, _ = (counts(share) for share in shares("labels", 1.0, samples=120))
    assert first == [30, 30, 30, 30, 0, 0, 0, 0, 0, 0]
    assert second == [0, 0, 0, 0, 40, 40, 40, 0, 0, 0]
    assert third == [0, 0, 0, 0, 0, 0, 0, 40, 40, 40]


def test_half_strength_is_half_of_everything() -> None:
    """60 of all ten labels, 6 each, and 60 of the own four: 15 more of each."""
    assert counts(shares("labels", 0.5, samples=120)[0]) == [21, 21, 21, 21, 6, 6, 6, 6, 6, 6]


def test_strength_nought_is_the_same_labels_for_all() -> None:
    for share in shares("labels", 0.0):
        assert max(abs(count - 1000 / 60) for count in counts(share)) < 1


@pytest.mark.parametrize(("strength", "turned"), [(0.0, 0), (0.25, 25), (1.0, 100)])
def test_that_part_of_a_clusters_images_is_turned(strength: float, turned: int) -> None:
    for share in shares("inputs", strength, samples=100):
        turns = np.asarray(share.quarter_turns)
        assert int((turns == share.cluster).sum()) == (100 if share.cluster == 0 else turned)
        assert set(turns.tolist()) <= {0, share.cluster}


def test_turned_images_reach_the_client_turned() -> None:
    share = shares("inputs", 1.0, samples=100)[2]
    people = gather(IMAGES, LABELS, [share], num_classes=10)
    first = IMAGES[share.train[0]]  # [[a, b], [c, d]], counter-clockwise [[b, d], [a, c]]
    assert people.images[0].tolist() == [[first[0, 1], first[1, 1]], [first[0, 0], first[1, 0]]]


def test_that_part_of_the_labels_means_another_in_each_cluster() -> None:
    """Half of ten labels: the second cluster calls 0 1, 1 2, …, 4 0; the third 0 2; 5 to 9 are the same for all."""
    for share in shares("concept", 0.5, samples=100):
        true = LABELS[np.concatenate([share.train, share.test])]
        expected = np.where(true < 5, (true + share.cluster) % 5, true)
        people = gather(IMAGES, LABELS, [share], num_classes=10)
        assert people.labels.tolist() == expected.tolist()


def test_mixed_clients_have_different_amounts_and_the_asked_mean() -> None:
    sizes = [len(share.train) + len(share.test) for share in shares("mixed", 1.0, samples=60)]
    assert np.mean(sizes) == pytest.approx(60, abs=2)
    assert max(sizes) > 2 * min(sizes)


@pytest.mark.parametrize(
    ("kind", "params", "named"),
    [
        ("colour", {}, "kind"),
        ("inputs", {"clients": "1,1,1,1,1"}, "four clusters"),
        ("labels", {"clients": "2,0"}, "at least one client"),
        ("labels", {"clients": "two"}, "whole numbers"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, params: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        shares(kind, 1.0, **params)


def test_more_samples_than_there_are_is_refused() -> None:
    with pytest.raises(PartitionError, match="166 samples each, not 200"):
        shares("inputs", 1.0, samples=200)


def test_more_clusters_than_labels_are_refused() -> None:
    with pytest.raises(PartitionError, match="3 clusters need as many labels, and there are 2"):
        shares("concept", 1.0, labels=LABELS[:200])
