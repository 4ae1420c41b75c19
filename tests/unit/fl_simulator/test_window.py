"""Windows of a layer of two weights, which a person can do on paper; and where they are worth their products."""

import pytest
import torch

from fl_simulator.training import Recipe
from fl_simulator.training.products import product
from fl_simulator.training.window import PostponedLayer, window_steps

IMAGES = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]])
ONE_EACH = torch.tensor([[[0], [1], [2]]])
"""A row's three steps, of a sample each."""


def moved_by(postponed: PostponedLayer, deltas: list[float]) -> list[float]:
    """What the layer answers at each step, if these are its changes."""
    answers = []
    for delta in deltas:
        answers.append(float(postponed.outputs(1)))
        postponed.step(torch.full((1, 1, 1), delta))
    return answers


def test_a_layer_answers_as_if_it_had_changed_at_each_step() -> None:
    """Weights (1, 0), then (1, 0) + 1 * (1, 2) = (2, 2) with bias 1, then (2, 2) - 2 * (3, -1) = (-4, 4) with -1."""
    weight, bias = torch.tensor([[[1.0, 0.0]]]), torch.zeros(1, 1)
    postponed = PostponedLayer(weight, bias, momentum=0.0, samples=3)
    postponed.begin(IMAGES, ONE_EACH, [3])
    assert moved_by(postponed, [1, -2, 4]) == [1, 2 * 3 - 2 + 1, -4 * 0.5 - 1]
    assert weight.tolist() == [[[1, 0]]]
    postponed.end()
    assert weight.tolist() == [[[-4 + 4 * 0.5, 4]]]
    assert bias.tolist() == [[1 - 2 + 4]]


def test_momentum_carries_each_change_on() -> None:
    """With m = 1/2 the first change is there once, then 3/2 times, then 7/4 times."""
    weight, bias = torch.tensor([[[1.0, 0.0]]]), torch.zeros(1, 1)
    postponed = PostponedLayer(weight, bias, momentum=0.5, samples=3)
    postponed.begin(IMAGES, ONE_EACH, [3])
    weight_at_third, bias_at_third = 1 + 1.5 * 1 - 2 * 3, 1.5 - 2
    assert moved_by(postponed, [1, -2, 4]) == [1, 2 * 3 - 2 + 1, weight_at_third * 0.5 + bias_at_third]
    postponed.end()
    assert weight.tolist() == [[[1 + 1.75 * 1 - 3 * 3 + 4 * 0.5, 1.75 * 2 - 3 * -1]]]
    assert bias.tolist() == [[1.75 - 3 + 4]]


def test_a_row_that_ends_within_a_window_keeps_what_it_had() -> None:
    weight, bias = torch.tensor([[[1.0, 0.0]]]).repeat(2, 1, 1), torch.zeros(2, 1)
    postponed = PostponedLayer(weight, bias, momentum=0.5, samples=2)
    postponed.begin(IMAGES, torch.tensor([[[0], [1]], [[0], [2]]]), [2, 1])
    assert postponed.outputs(2).flatten().tolist() == [1, 1]
    postponed.step(torch.ones(2, 1, 1))
    assert postponed.outputs(1).flatten().tolist() == [5]
    postponed.step(torch.zeros(1, 1, 1))
    postponed.end()
    assert weight.tolist() == [[[1 + 1.5, 3]], [[1 + 1, 2]]]
    assert bias.tolist() == [[1.5], [1]]


def test_windows_are_even_and_of_sgd_and_of_wide_layers() -> None:
    plain, moving = Recipe(10, 0.1), Recipe(10, 0.1, momentum=0.5)
    wide = {"inputs": 784, "outputs": 128}
    assert [window_steps(plain, steps, **wide) for steps in (2, 3, 9, 10, 54)] == [0, 3, 9, 5, 9]
    assert [window_steps(moving, steps, **wide) for steps in (2, 3, 9, 10)] == [0, 3, 9, 0]  # of one window alone
    assert window_steps(Recipe(10, 0.1, optimizer="adamw"), 54, **wide) == 0
    assert window_steps(Recipe(100, 0.1), 54, **wide) == 0
    assert window_steps(plain, 54, inputs=784, outputs=10) == window_steps(plain, 54, inputs=64, outputs=64) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_product_is_left_times_right_transposed(dtype: torch.dtype) -> None:
    left, right = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=dtype), torch.tensor([[1, 0, -1]], dtype=dtype)
    assert product(left, right).tolist() == [[-2], [-2]]
    assert product(left, right, torch.tensor([0.5], dtype=dtype)).tolist() == [[-1.5], [-1.5]]
    across = product(left.T, left.T)
    assert across.dtype == dtype
    assert across.tolist() == [[17, 22, 27], [22, 29, 36], [27, 36, 45]]
