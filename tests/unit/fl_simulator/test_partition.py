"""Who gets which samples, on labels that a person can count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.data.partition.shares import proportional
from fl_simulator.data.partition.truncated_zipf import zipf_values
from fl_simulator.engine.population import Share, gather
from fl_simulator.errors import PartitionError

MNIST_LIKE = np.repeat(np.arange(10), 600)


def counts(labels: NDArray[np.int64], share: Share) -> list[int]:
    """How many samples of each of ten labels a client has."""
    return np.bincount(labels[np.concatenate([share.train, share.test])], minlength=10).tolist()


def shared(name: str, labels: NDArray[np.int64] = MNIST_LIKE, *, seed: int = 0, **params: float | str) -> list[Share]:
    """The shares of a registered rule."""
    return PARTITIONERS.build(name, params, labels, train_fraction=0.8, rng=np.random.default_rng(seed))


def table(shares: list[Share], labels: NDArray[np.int64] = MNIST_LIKE) -> NDArray[np.int64]:
    """Samples of each label, one row a client."""
    return np.array([counts(labels, share) for share in shares])


def by_superclass(labels: NDArray[np.int64] = MNIST_LIKE, *, seed: int = 0, **params: float | str) -> list[Share]:
    return shared("superclass", labels, seed=seed, **params)


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


@pytest.mark.parametrize("seed", range(5))
def test_in_type_ii_every_client_has_all_its_superclass_s_labels_though_everything_is_given_out(seed: int) -> None:
    rng = np.random.default_rng(7)
    labels = rng.permutation(np.repeat(np.arange(10), [690, 787, 699, 714, 682, 631, 687, 729, 682, 695]))
    counts = {0: range(3), 1: range(3, 6), 2: range(6, 10)}
    shares = by_superclass(labels, kind="II", seed=seed)
    for share in shares:
        mine = set(labels[np.concatenate([share.train, share.test])].tolist())
        assert mine == set(counts[share.cluster])
    assert {len(share.train) + len(share.test) for share in shares} == {(714 + 682 + 631) // 30}


def test_superclasses_may_be_given_out_whole_each_in_equal_parts() -> None:
    labels = np.repeat(np.arange(10), 90)
    shares = by_superclass(labels, equal=False)
    sizes = [{len(share.train) + len(share.test) for share in shares if share.cluster == each} for each in range(3)]
    assert sizes == [{9}, {9}, {12}]


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
        PARTITIONERS.read_params("superclass", params)


def test_iid_clients_are_one_cluster_of_equal_parts() -> None:
    shares = shared("iid", clients=4)
    assert [(len(each.train), len(each.test), each.cluster) for each in shares] == [(1200, 300, 0)] * 4


def test_more_than_there_is_cannot_be_shared_out() -> None:
    with pytest.raises(PartitionError, match="4 clients cannot have 2000 of 6000"):
        shared("iid", clients=4, samples=2000)


def test_whole_parts_end_where_the_exact_parts_end_rounded() -> None:
    # Exact parts 3.33, 3.33, 13.33 end at 3.33, 6.67 and 20.
    assert proportional(20, np.array([1.0, 1.0, 4.0])).tolist() == [3, 4, 13]


@given(st.integers(0, 10**6), st.lists(st.floats(0, 1), min_size=1).filter(lambda weights: sum(weights) > 0.01))
def test_whole_parts_sum_to_the_whole_and_are_within_one_of_the_exact(total: int, weights: list[float]) -> None:
    parts = proportional(total, np.array(weights))
    assert parts.sum() == total
    assert np.abs(parts - total * np.array(weights) / sum(weights)).max() < 1 + 1e-6  # sums in another order


def test_with_a_large_concentration_clients_get_the_same_of_a_label_and_with_a_small_one_somebody_gets_most() -> None:
    even = table(shared("dirichlet", clients=4, concentration=1e6))
    assert even.sum(axis=0).tolist() == [600] * 10, "all samples are given out"
    assert np.abs(even - 150).max() <= 2  # one standard deviation is 0.13 samples, and rounding moves one
    uneven = table(shared("dirichlet", clients=4, concentration=0.01, min_samples=1))
    assert uneven.sum(axis=0).tolist() == [600] * 10
    assert uneven.max(axis=0).min() > 300


def test_two_clients_parts_of_a_label_are_uniform_at_concentration_one() -> None:
    parts = np.concatenate(
        [table(shared("dirichlet", clients=2, concentration=1.0, seed=seed))[0] / 600 for seed in range(200)]
    )
    # 2,000 values: one standard error of the mean, 1/2, is 0.0065, and of the variance, 1/12, 0.0017.
    assert parts.mean() == pytest.approx(1 / 2, abs=0.03)
    assert parts.var() == pytest.approx(1 / 12, abs=0.008)


def test_a_draw_in_which_a_client_has_too_little_is_made_again_but_not_for_ever() -> None:
    wanted: dict[str, float | str] = {"clients": 10, "concentration": 0.1, "min_samples": 200}
    assert table(shared("dirichlet", **wanted)).sum(axis=1).min() >= 200  # type: ignore[arg-type]
    with pytest.raises(PartitionError, match="each of 1 draws a client had fewer than 200 samples"):
        shared("dirichlet", draws=1, **wanted)  # type: ignore[arg-type]


def test_more_than_each_client_can_have_at_least_is_refused_before_any_draw() -> None:
    with pytest.raises(PartitionError, match="10 clients cannot have 601 of 6000"):
        shared("dirichlet", clients=10, min_samples=601, draws=10**9)


def test_of_two_shards_a_client_has_two_labels_at_most() -> None:
    # 20 shards of 300: two of each label.
    rows = table(shared("shards", clients=10, shards=2))
    assert rows.sum(axis=0).tolist() == [600] * 10
    assert rows.sum(axis=1).tolist() == [600] * 10
    assert set(np.unique(rows)) <= {0, 300, 600}
    assert len({tuple(row) for row in rows.tolist()}) > 5


def test_shards_are_cut_without_regard_to_where_a_label_ends() -> None:
    labels = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1])  # by label: 000 001 111 111
    rows = table(shared("shards", labels, clients=2, shards=2), labels)[:, :2]
    assert sorted(rows.tolist()) in ([[0, 6], [5, 1]], [[2, 4], [3, 3]])


def test_balanced_shards_are_of_one_label_each_and_of_every_label_there_are_as_many() -> None:
    labels = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1])  # five and seven: two shards of two of each
    rows = table(shared("shards", labels, clients=4, shards=1, balanced=True), labels)[:, :2]
    assert sorted(rows.tolist()) == [[0, 2], [0, 2], [2, 0], [2, 0]]
    with pytest.raises(PartitionError, match="3 shards cannot be equally many of each of 2 labels"):
        shared("shards", labels, clients=3, shards=1, balanced=True)


def test_d_cliques_hundred_clients_have_one_label_each_and_ten_have_the_same() -> None:
    rows = table(shared("shards", clients=100, shards=1, balanced=True))
    assert (rows > 0).sum(axis=1).tolist() == [1] * 100
    assert (rows > 0).sum(axis=0).tolist() == [10] * 10
    assert rows.max(axis=1).tolist() == [60] * 100


def test_larger_shards_than_there_are_samples_for_are_refused_with_what_there_is() -> None:
    assert table(shared("shards", clients=10, shards=2, shard_samples=7)).sum(axis=1).tolist() == [14] * 10
    with pytest.raises(PartitionError, match="6000 samples in 20 shards give 300 for each shard, not 301"):
        shared("shards", clients=10, shards=2, shard_samples=301)
    with pytest.raises(PartitionError, match="600 samples of the scarcest label in 2 shards give 300"):
        shared("shards", clients=10, shards=2, shard_samples=301, balanced=True)


def test_each_cluster_has_its_rotation_and_everybody_the_same_labels() -> None:
    shares = shared("rotations", quarter_turns="0,2,1", clients="3,2,1")
    assert [(share.cluster, share.quarter_turns) for share in shares] == [(0, 0)] * 3 + [(1, 2)] * 2 + [(2, 1)]
    rows = table(shares)
    assert rows.sum(axis=1).tolist() == [1000] * 6
    assert np.abs(rows - 100).max() < 40  # more than four standard deviations


def test_a_rotated_client_sees_its_images_turned_and_the_others_do_not() -> None:
    images = np.tile(np.array([[255, 0], [0, 0]], dtype=np.uint8), (8, 1, 1))  # bright at the top left
    labels = np.zeros(8, dtype=np.int64)
    made = gather(images, labels, shared("rotations", labels, clients="1,1,1,1"), num_classes=1)
    corners = [made.images[rows[0]].ravel().tolist().index(1.0) for rows in made.train]
    assert corners == [0, 2, 3, 1], "top left, bottom left, bottom right, top right"


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"quarter_turns": "0,4", "clients": "1,1"}, "from 0 to 3"),
        ({"quarter_turns": "1,1", "clients": "1,1"}, "at most once"),
        ({"clients": "4,4"}, "for each of quarter_turns"),
        ({"clients": "4,4,4,0"}, "at least 1"),
        ({"quarter_turns": "90°"}, "whole numbers"),
    ],
)
def test_rotations_that_cannot_be_are_refused(params: dict[str, str], why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        PARTITIONERS.read_params("rotations", params)


def test_zipf_values_are_as_frequent_as_their_power_says() -> None:
    rng = np.random.default_rng(0)
    # 1, 2 and 3 with exponent 1: as 1 to 1/2 to 1/3, that is 6/11, 3/11 and 2/11; one standard error is 0.005.
    values = zipf_values(10_000, exponent=1.0, largest=3, rng=rng)
    frequencies = np.bincount(values.astype(int))[1:] / 10_000
    assert frequencies.tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.02)
    assert zipf_values(4, exponent=1.26, largest=1, rng=rng).tolist() == [1, 1, 1, 1]


def test_of_equal_zipf_values_every_client_gets_the_same() -> None:
    assert (table(shared("truncated-zipf", clients=50, largest=1)) == 12).all()
    assert (table(shared("truncated-zipf", clients=50, min_per_label=12)) == 12).all(), "nothing is left to divide"


def test_decdiffs_fifty_clients_have_every_label_about_as_unevenly_as_the_paper_says() -> None:
    # 800 samples of each label, as EMNIST Letters has; the paper works with Gini indices from 0.7 to 0.85.
    labels = np.repeat(np.arange(10), 800)
    rows = table(shared("truncated-zipf", labels), labels)
    assert rows.shape == (50, 10)
    assert rows.min() >= 1
    assert rows.sum(axis=0).tolist() == [800] * 10
    gini = [np.abs(column[:, None] - column).sum() / (2 * 50 * 800) for column in rows.T]
    assert 0.7 < np.mean(gini) < 0.85


def test_fewer_samples_of_each_label_may_be_given_out() -> None:
    assert table(shared("truncated-zipf", per_label=200)).sum(axis=0).tolist() == [200] * 10
    assert table(shared("truncated-zipf", per_label=9000)).sum(axis=0).tolist() == [600] * 10


def test_a_label_too_scarce_for_everybody_is_refused_with_what_there_is() -> None:
    with pytest.raises(PartitionError, match="50 clients cannot have 13 each of the 600 samples"):
        shared("truncated-zipf", min_per_label=13)
    with pytest.raises(PartitionError, match="50 clients cannot have 1 each of the 49 samples"):
        shared("truncated-zipf", per_label=49)
