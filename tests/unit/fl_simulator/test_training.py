"""Steps of stochastic gradient descent that a person can do on paper, and stacks against one model at a time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl_core.types import Matrix32
from fl_simulator.models import Mlp
from fl_simulator.seeds import Seeds
from fl_simulator.training import Recipe, Task
from fl_simulator.training.common import Common
from fl_simulator.training.dense import DenseTrainer
from fl_simulator.training.sequential import SequentialTrainer


def regression(
    images: NDArray[np.float32], labels: list[int], *, batch_size: int = 1, learning_rate: float = 1.0
) -> DenseTrainer:
    """Logistic regression of two classes; a row is (bias 0, bias 1, weights of class 0, weights of class 1)."""
    recipe = Recipe(batch_size, learning_rate)
    return DenseTrainer((images.shape[1], 2), Common(images, np.array(labels), recipe, Seeds(0)), workers=1)


def test_one_step_from_zero_moves_half_a_sample_towards_its_class() -> None:
    """Both classes have p = 1/2, so the logits' gradients are -1/2 for the label and 1/2 for the other."""
    trainer = regression(np.array([[1, 2]], np.float32), [0])
    models = np.zeros((1, 6), np.float32)
    trainer.train(models, [Task(np.array([0]), (0,), 1)])
    assert models.tolist() == [[0.5, -0.5, 0.5, 1, -0.5, -1]]


def test_the_proximal_term_pulls_back_to_the_row_as_it_came_in() -> None:
    """With η = µ = 1 the second step is w - g - (w - 0) = -g; at w the logits are 3 and -3, so p(1) is 1 / (1 + e^6)."""
    trainer = regression(np.array([[1, 2]], np.float32), [0])
    models = np.zeros((1, 6), np.float32)
    trainer.train(models, [Task(np.array([0]), (0,), 2)], proximal=1.0)
    p = 1 / (1 + math.exp(6))
    np.testing.assert_allclose(models, [[p, -p, p, 2 * p, -p, -2 * p]], rtol=0, atol=2e-7)  # 1 - p in float32


def test_the_last_batch_may_be_smaller_and_counts_as_a_step() -> None:
    """Three equal samples in batches of two are two steps on one of them."""
    images = np.array([[1, 2]] * 3, np.float32)
    twos, ones = np.zeros((1, 6), np.float32), np.zeros((1, 6), np.float32)
    regression(images, [0] * 3, batch_size=2).train(twos, [Task(np.arange(3), (0,), 1)])
    regression(images, [0] * 3, batch_size=1).train(ones, [Task(np.arange(2), (0,), 1)])
    np.testing.assert_allclose(twos, ones, rtol=1e-6)
    assert twos[0, 0] > 0.5


def test_evaluation_counts_what_is_right() -> None:
    """The model says 0 where the value is positive, with log-odds 2; -ln p is ln(1 + e^-2) or ln(1 + e^2)."""
    trainer = regression(np.array([[1], [1], [-1], [1]], np.float32), [0, 1, 1, 0])
    model = np.array([[0, 0, 1, -1]], np.float32)
    found = trainer.evaluate(model, [0, 0], [np.array([0, 1, 2]), np.array([3])])
    assert found.correct.tolist() == [2, 1]
    right, wrong = math.log1p(math.exp(-2)), math.log1p(math.exp(2))
    np.testing.assert_allclose(found.loss_sum, [2 * right + wrong, right], rtol=1e-6)
    assert found.accuracy.tolist() == [pytest.approx(2 / 3), 1]


clients = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    clients,
    st.integers(1, 4),
    st.sampled_from([(3, 2), (4, 5, 3), (2, 4, 3, 2)]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 0.5]),
)
def test_a_stack_trains_each_model_as_autograd_trains_it_alone(
    sizes_and_epochs: list[tuple[int, int]], batch_size: int, layers: tuple[int, ...], proximal: float, momentum: float
) -> None:
    rng = np.random.default_rng(11)
    images = rng.standard_normal((9, layers[0])).astype(np.float32)
    labels = rng.integers(0, layers[-1], 9)
    tasks = [
        Task(rng.permutation(9)[:size], (client,), epochs) for client, (size, epochs) in enumerate(sizes_and_epochs)
    ]
    common = Common(images, labels, Recipe(batch_size, 0.1, momentum=momentum), Seeds(4))
    stacked, twin = DenseTrainer(layers, common, workers=1), SequentialTrainer(lambda: Mlp(*layers), common)
    models: Matrix32 = np.stack([stacked.initial(np.random.default_rng(client)) for client in range(len(tasks))])
    alone = models.copy()
    stacked.train(models, tasks, proximal=proximal)
    twin.train(alone, tasks, proximal=proximal)
    np.testing.assert_allclose(models, alone, rtol=0, atol=1e-5)  # float32 sums in another order, at most 27 steps
