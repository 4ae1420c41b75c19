"""Clustering on drawings that a person can check, and against trying everything."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_simulator.strategies.clustered.clustering import (
    bipartition,
    coordinates,
    cosines,
    decomposed_cosines,
    distances,
    in_order_of_occurrence,
    k_means,
    products,
)
from tests.reference.clustering import every_bipartition, greatest_across, least_sum_of_squares

SQUARE = np.array([[3, 4], [0, 5], [-4, 3], [0, 0]], np.float32)


def test_products_and_cosines_of_four_arrows() -> None:
    assert products(SQUARE, SQUARE[:2]).tolist() == [[25, 20], [20, 25], [0, 15], [0, 0]]
    # An arrow of no length has no direction and is like nothing.
    assert cosines(SQUARE, SQUARE[:2]) == pytest.approx(np.array([[1, 0.8], [0.8, 1], [0, 0.6], [0, 0]]))


def test_distances_keep_what_nearly_equal_models_differ_by() -> None:
    models = np.array([[10_000, 0], [10_000, 0.001]], np.float32)
    assert distances(models, models)[0] == pytest.approx([0, 0.001])


def test_long_rows_are_summed_over_all_their_blocks() -> None:
    rows = np.ones((2, 200_000), np.float32)
    assert products(rows, rows).tolist() == [[200_000] * 2] * 2
    assert distances(rows, 0 * rows)[0, 0] == pytest.approx(np.sqrt(200_000))


@given(arrays(np.float32, (5, 3), elements=st.integers(-8, 8).map(float)))
def test_coordinates_keep_every_distance(rows: np.ndarray) -> None:
    points = coordinates(rows)
    found = np.linalg.norm(points[:, None] - points, axis=2)
    # Square roots of eigenvalues that are zero but for rounding: 1e-16 becomes 1e-8.
    assert found == pytest.approx(distances(rows, rows), abs=1e-5)


@given(arrays(np.float32, (6, 9), elements=st.integers(-8, 8).map(float)))
def test_decomposed_cosines_are_those_to_the_singular_vectors(rows: np.ndarray) -> None:
    vectors = np.linalg.svd(rows.astype(float))[2][:2]
    values = np.linalg.svd(rows.astype(float), compute_uv=False)
    # Equal singular values share a plane in which any two vectors will do, and zero ones have no direction here.
    assume(values[0] - values[1] > 1e-3)
    assume(values[1] - values[2] > 1e-3)
    expected = np.abs(cosines(rows, vectors.astype(np.float32)))
    assert np.abs(decomposed_cosines(rows, 2)) == pytest.approx(expected, abs=1e-5)


def test_decomposed_cosines_put_arrows_of_one_direction_on_one_point() -> None:
    edc = decomposed_cosines(np.array([[4, 0], [2, 0], [0, 3], [0, 0]], np.float32), 2)
    assert np.abs(edc) == pytest.approx(np.array([[1, 0], [1, 0], [0, 1], [0, 0]]))


def test_k_means_finds_three_heaps_and_numbers_them_as_they_come() -> None:
    points = np.array([[9.0], [0.0], [1.0], [5.0], [10.0]])
    assert k_means(points, 3, np.random.default_rng(0)).tolist() == [0, 1, 1, 2, 0]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_k_means_makes_no_more_clusters_than_points_differ(count: int) -> None:
    points = np.array([[2.0], [2.0], [7.0]])
    assert k_means(points, count, np.random.default_rng(0)).tolist() == ([0, 0, 0] if count == 1 else [0, 0, 1])


@given(arrays(float, (6, 2), elements=st.integers(-4, 4).map(float)), st.integers(0, 9))
def test_k_means_is_a_local_optimum_and_never_better_than_the_best(points: np.ndarray, seed: int) -> None:
    labels = k_means(points, 2, np.random.default_rng(seed))
    centres = np.stack([points[labels == each].mean(axis=0) for each in range(labels.max() + 1)])
    squares = np.square(points[:, None] - centres).sum(axis=2)
    cost = squares[np.arange(6), labels].sum()
    assert cost == pytest.approx(squares.min(axis=1).sum())  # nobody is nearer to another centre
    assert cost >= least_sum_of_squares(points, 2) - 1e-9


def test_bipartition_cuts_where_the_chain_is_weakest() -> None:
    similarities = np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]])
    assert bipartition(similarities).tolist() == [0, 0, 1]


def test_bipartition_is_exact_where_complete_linkage_is_not() -> None:
    # A chain 0-1-2-3 of which neighbours are alike, and 4 apart from all: complete linkage cuts the chain.
    similarities = np.full((5, 5), -0.9)
    for low, similarity in enumerate([0.9, 0.5, 0.9]):
        similarities[low, low + 1] = similarities[low + 1, low] = similarity
    similarities[4, :4] = similarities[:4, 4] = -0.5
    assert bipartition(similarities).tolist() == [0, 0, 0, 0, 1]


@given(arrays(float, (6, 6), elements=st.integers(-5, 5).map(lambda each: each / 5)))
def test_no_other_two_parts_are_less_alike(values: np.ndarray) -> None:
    similarities = np.maximum(values, values.T)
    parts = bipartition(similarities)
    assert parts[0] == 0
    assert set(parts.tolist()) == {0, 1}
    best = min(greatest_across(similarities, each) for each in every_bipartition(6))
    assert greatest_across(similarities, parts) == best


def test_clusters_are_numbered_in_the_order_in_which_they_occur() -> None:
    assert in_order_of_occurrence(np.array([7, 3, 7, -1])).tolist() == [0, 1, 0, 2]
