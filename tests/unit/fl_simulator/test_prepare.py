"""From a scenario to clients, their common test, and their graph."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fl_core.registry import Registry
from fl_core.types import JsonScalar
from fl_simulator.config.scenario import Scenario, read_scenario
from fl_simulator.data import catalogue
from fl_simulator.data.digits import load_digits
from fl_simulator.data.errors import DataError
from fl_simulator.data.image_data import ImageData
from fl_simulator.metrics.allocation import gini_index, label_gini
from fl_simulator.run.prepare import build_population, build_run_graph, build_world, changes_of
from tests.simulations import make_world, two_camps

COMMON: Mapping[str, JsonScalar] = {"test": "common"}


def scenario(**sections: Mapping[str, JsonScalar]) -> Scenario:
    return read_scenario(sections)


def on_graph(**topology: JsonScalar) -> Scenario:
    return read_scenario(
        {"strategy": {"name": "decavg"}, "topology": {"name": "ring", **topology}, "partition": {"clients": 7}}
    )


def test_with_a_common_test_clients_train_on_all_they_have_and_everybody_is_tested_on_the_rest() -> None:
    _, labels = load_digits()
    people = build_population(scenario(data=COMMON, partition={"clients": 9}))
    test = people.test[0]
    assert all(np.array_equal(each, test) for each in people.test)
    assert len(test) == len(labels) - round(0.8 * len(labels))
    assert people.num_examples.tolist() == [round(0.8 * len(labels)) // 9] * 9
    kept = {people.images[row].tobytes() for rows in people.train for row in rows}
    assert len(test) - sum(people.images[row].tobytes() in kept for row in test) > 0.99 * len(test)


def test_a_model_knows_a_class_that_only_the_common_test_has() -> None:
    people = build_population(scenario(data=COMMON, partition={"clients": 2}, run={"train_fraction": 0.003}))
    assert len(np.unique(people.labels[np.concatenate(people.train)])) < 10
    assert people.num_classes == 10


def test_a_common_test_is_the_same_however_samples_are_shared_out() -> None:
    few, many = (build_population(scenario(data=COMMON, partition={"clients": clients})) for clients in (3, 20))
    assert np.array_equal(few.images[few.test[0]], many.images[many.test[0]])


@pytest.mark.parametrize("data", [{}, COMMON])
def test_so_many_test_samples_at_most(data: Mapping[str, JsonScalar]) -> None:
    for most in (5, 10_000):
        people = build_population(scenario(data=data, run={"test_samples": most}))
        everything = build_population(scenario(data=data))
        assert [len(rows) for rows in people.test] == [min(most, len(rows)) for rows in everything.test]
        assert people.num_examples.tolist() == everything.num_examples.tolist()


def test_whoever_has_the_same_model_does_equally_well_in_a_common_test() -> None:
    world = build_world(scenario(data=COMMON, partition={"clients": 4}))
    try:
        models = np.stack([world.initial_model(), world.initial_model(1)])
        found = world.evaluate(models, [1, 0, 1], [0, 2, 3])
        alone = world.trainer.evaluate(models, [0, 1], world.population.test[:2])
        assert found.correct.tolist() == alone.correct[[1, 0, 1]].tolist()
        assert found.loss.tolist() == alone.loss[[1, 0, 1]].tolist()
        assert found.count.tolist() == [len(world.population.test[0])] * 3
    finally:
        world.close()


def test_a_scenario_without_a_topology_has_no_graph() -> None:
    plain = scenario()
    assert build_run_graph(plain, build_population(plain)) is None


def test_the_graph_has_a_node_for_each_client_and_is_the_seeds() -> None:
    ring = on_graph(lightest=1.0, heaviest=3.0)
    people = build_population(ring)
    graph, again = build_run_graph(ring, people), build_run_graph(ring, people)
    assert graph is not None
    assert again is not None
    assert (graph.num_nodes, graph.num_edges) == (7, 7)
    assert np.array_equal(graph.weights, again.weights)
    assert 1 <= graph.weights.min() < graph.weights.max() <= 3


def test_the_gini_index_by_hand() -> None:
    assert gini_index(np.array([5, 5, 5])) == 0
    assert gini_index(np.array([0, 0, 12, 0])) == pytest.approx(0.75), "one of four has all: 1 - 1/4"
    # Differences of 1, 2 and 1, each twice, of n = 3 and a sum of 6: 8 / (2 · 3 · 6)
    assert gini_index(np.array([3, 1, 2])) == pytest.approx(8 / 36)
    assert gini_index(np.array([0, 0])) == 0


def test_the_gini_index_is_the_mean_difference_of_two() -> None:
    for seed in range(20):
        amounts = np.random.default_rng(seed).integers(0, 50, 1 + seed)
        difference = np.abs(amounts[:, None] - amounts[None, :]).sum()
        assert gini_index(amounts) == pytest.approx(difference / (2 * len(amounts) * max(amounts.sum(), 1)))


def test_labels_count_alike_and_those_that_nobody_has_not_at_all() -> None:
    counts = np.array([[4, 1, 0], [0, 1, 0]])
    assert label_gini(counts) == pytest.approx((0.5 + 0) / 2)


def test_standardised_pixels_have_mean_0_and_deviation_1_over_training_samples() -> None:
    plain, people = (build_population(scenario(data={"pixels": pixels})) for pixels in ("unit", "standardised"))
    train = np.concatenate(people.train)
    assert people.images[train].mean() == pytest.approx(0, abs=1e-5)
    assert people.images[train].std() == pytest.approx(1, abs=1e-5)
    before = plain.images[np.concatenate(plain.train)]
    test = plain.test[0]
    np.testing.assert_allclose(people.images[test], (plain.images[test] - before.mean()) / before.std(), atol=1e-5)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: 1 / 0, r"failed: .*ZeroDivisionError"),
        (lambda: (np.zeros((2, 3, 3)), np.zeros(2)), "is a tuple; its function returns ImageData"),
        (lambda: of(images=np.zeros((0, 3, 3), np.uint8), labels=np.zeros(0, np.int64)), "has no training samples"),
        (
            lambda: of(labels=np.zeros(3, np.int64)),
            r"images of shape \(2, 3, 3\) do not go with labels of shape \(3,\)",
        ),
        (lambda: of(images=np.zeros((2, 3, 3))), "images are of one size, uint8 or float32, not float64"),
        (lambda: of(images=np.full((2, 3, 3), 255, np.float32)), r"float32 images lie in \[0, 1\]"),
        (lambda: of(labels=np.array([0, -1])), "labels are whole numbers from 0"),
        (lambda: of(labels=np.array([0.0, 1.0])), "labels are whole numbers from 0"),
    ],
)
def test_a_data_set_of_ones_own_that_is_none_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[], object], words: str
) -> None:
    monkeypatch.setattr(catalogue, "LOADERS", Registry("data set", {"mine": made}))
    with pytest.raises(DataError, match=f"data set 'mine' {words}|data set 'mine': {words}"):
        build_population(scenario(data={"name": "mine"}))


def of(
    *,
    images: NDArray[Any] = np.zeros((2, 3, 3), np.uint8),  # noqa: B008 -- nobody writes to them
    labels: NDArray[Any] = np.array([0, 1]),  # noqa: B008
) -> ImageData:
    """A data set without a test part."""
    return ImageData(images, labels, images[:0], labels[:0])


def test_a_tenth_of_thirty_joins_late_and_a_fifth_of_each_cluster_moves() -> None:
    world = make_world(two_camps(clients=30, samples=4))
    changes = changes_of(scenario(run={"joining": 0.1, "join_round": 5, "moving": 0.2, "move_round": 7}), world)
    assert len(changes.late) == 3
    assert [changes.absent(number) for number in (3, 4)] == [changes.late, frozenset()]
    assert changes.moved is not None
    assert int((changes.moved.clusters != world.population.clusters).sum()) == 2 * 3
    assert [changes.are_away(number) for number in (5, 6, 99)] == [False, True, True]


def test_somebody_is_there_from_the_first_round_on() -> None:
    world = make_world(two_camps(clients=2))
    assert len(changes_of(scenario(run={"joining": 0.99, "join_round": 5}), world).late) == 1
