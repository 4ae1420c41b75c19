"""All clients' data in one array, and the generators that a seed gives."""

import numpy as np
import pytest

from fl_simulator.engine.population import Population, Share, exchanged, gather, standardised
from fl_simulator.errors import PartitionError
from fl_simulator.seeds import Seeds

IMAGES = np.array([[[0, 255], [51, 102]], [[255, 0], [0, 0]], [[0, 0], [0, 255]]], dtype=np.uint8)
LABELS = np.array([7, 1, 3])


def rows(*numbers: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(numbers, dtype=np.int64)


def test_every_client_finds_its_samples_in_its_rows() -> None:
    made = gather(IMAGES, LABELS, [Share(rows(2), rows(0)), Share(rows(1), rows(), cluster=1)], num_classes=10)
    assert made.labels[made.train[0]].tolist() == [3]
    assert made.labels[made.test[0]].tolist() == [7]
    assert made.labels[made.train[1]].tolist() == [1]
    assert (made.num_clients, made.num_clusters, made.num_examples.tolist()) == (2, 2, [1, 1])


def test_labels_are_counted_for_each_client_whether_to_train_or_to_test_on() -> None:
    made = gather(IMAGES, LABELS, [Share(rows(2, 0), rows(1)), Share(rows(1), rows(), cluster=1)], num_classes=8)
    assert made.label_counts.tolist() == [[0, 1, 0, 1, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0, 0, 0]]


def test_bytes_become_values_from_nought_to_one() -> None:
    made = gather(IMAGES, LABELS, [Share(rows(0), rows())], num_classes=10)
    assert made.images[0].tolist() == pytest.approx(np.array([[0.0, 1.0], [0.2, 0.4]]))


def test_a_quarter_turn_is_counter_clockwise() -> None:
    made = gather(IMAGES, LABELS, [Share(rows(1), rows(), quarter_turns=1)], num_classes=10)
    assert made.images[0].tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_a_client_is_not_tested_on_what_it_trains_on_and_has_something_to_train_on() -> None:
    with pytest.raises(PartitionError, match="client 0 would be tested"):
        gather(IMAGES, LABELS, [Share(rows(0, 1), rows(1))], num_classes=10)
    with pytest.raises(PartitionError, match="client 0 has no sample"):
        gather(IMAGES, LABELS, [Share(rows(), rows(1))], num_classes=10)


def test_a_common_test_is_kept_once_and_is_everybodys() -> None:
    made = gather(
        IMAGES[:2], LABELS[:2], [Share(rows(1), rows()), Share(rows(0), rows())], num_classes=8,
        common_test=(IMAGES[2:], LABELS[2:]),
    )  # fmt: skip
    assert made.test_is_common
    assert [made.labels[each].tolist() for each in made.test] == [[3], [3]]
    assert [made.labels[each].tolist() for each in made.train] == [[1], [7]]
    assert len(made.images) == 3
    assert made.label_counts.sum(axis=0).tolist() == [0, 1, 0, 0, 0, 0, 0, 1], "the common test is nobody's"


def test_a_common_test_leaves_nobody_one_of_its_own_and_fits_no_turned_images() -> None:
    common = (IMAGES[2:], LABELS[2:])
    with pytest.raises(PartitionError, match="client 0 has test samples of its own"):
        gather(IMAGES, LABELS, [Share(rows(0), rows(1))], num_classes=8, common_test=common)
    with pytest.raises(PartitionError, match="client 0 has its images turned"):
        gather(IMAGES, LABELS, [Share(rows(0), rows(), quarter_turns=1)], num_classes=8, common_test=common)


def test_generators_are_told_apart_by_name_and_number_and_do_not_depend_on_their_order() -> None:
    seeds = Seeds(5)
    first = seeds.generator("participants", 3).random()
    seeds.generator("initial model").random(100)
    assert seeds.generator("participants", 3).random() == first
    assert len({first, seeds.generator("participants", 4).random(), seeds.generator("initial model").random()}) == 3
    assert Seeds(6).generator("participants", 3).random() != first


def test_each_channel_is_standardised_by_its_training_samples() -> None:
    images = np.array([[[[1.0]], [[5.0]]], [[[3.0]], [[5.0]]], [[[9.0]], [[6.0]]]], np.float32)  # (3, 2, 1, 1)
    shares = [Share(np.array([0, 1]), np.array([2]))]
    people = standardised(gather(images, np.zeros(3, np.int64), shares, num_classes=1))
    assert people.images[:, 0].ravel().tolist() == [-1, 1, 7]  # mean 2, deviation 1
    assert people.images[:, 1].ravel().tolist() == [0, 0, 1]  # all of one colour: mean 5


# -- clients that move to another cluster -------------------------------------------------------------------


def six_in_three_clusters() -> Population:
    images = np.arange(24, dtype=np.float32).reshape(12, 2, 1) / 24
    shares = [Share(np.array([2 * each]), np.array([2 * each + 1]), cluster=each // 2) for each in range(6)]
    return gather(images, np.zeros(12, np.int64), shares, num_classes=1)


def test_whoever_moves_has_the_data_of_a_client_of_the_next_cluster() -> None:
    own = six_in_three_clusters()
    moved = exchanged(own, 0.5, rng=np.random.default_rng(0))
    movers = [client for client in range(6) if moved.train[client].tolist() != own.train[client].tolist()]
    assert [own.clusters[client] for client in movers] == [0, 1, 2]
    assert [moved.clusters[client] for client in movers] == [1, 2, 0]
    for client, source in zip(movers, [*movers[1:], movers[0]], strict=True):
        assert moved.train[client].tolist() == own.train[source].tolist()
        assert moved.test[client].tolist() == own.test[source].tolist()


def test_one_of_each_cluster_moves_at_least() -> None:
    own = six_in_three_clusters()
    moved = exchanged(own, 0.01, rng=np.random.default_rng(1))
    assert int((moved.clusters != own.clusters).sum()) == 3


def test_nobody_can_move_where_there_is_one_cluster() -> None:
    shares = [Share(np.array([0]), np.array([1]))]
    alone = gather(np.zeros((2, 2, 1), np.float32), np.zeros(2, np.int64), shares, num_classes=1)
    with pytest.raises(PartitionError, match="two or more"):
        exchanged(alone, 0.5, rng=np.random.default_rng(0))
