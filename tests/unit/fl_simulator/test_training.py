"""Steps of stochastic gradient descent that a person can do on paper, and stacks against one model at a time."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl_core.types import Matrix32
from fl_simulator.models.classifiers import Mlp
from fl_simulator.seeds import Seeds
from fl_simulator.training.base import Common
from fl_simulator.training.dense import DenseTrainer
from fl_simulator.training.optimizers import stacked_optimizer
from fl_simulator.training.protocol import Task
from fl_simulator.training.recipe import Recipe
from tests.reference.sequential_trainer import SequentialTrainer
from tests.reference.virtual_teacher import virtual_teacher


def regression(
    images: NDArray[np.float32], labels: list[int], *, batch_size: int = 1, learning_rate: float = 1.0, **more: Any
) -> DenseTrainer:
    """Logistic regression of two classes; a row is (bias 0, bias 1, weights of class 0, weights of class 1)."""
    recipe = Recipe(batch_size, learning_rate, **more)
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


def test_momentum_keeps_a_share_of_the_last_step() -> None:
    """The second step has m = 1/2 of the first, and the gradient at logits 3 and -3."""
    trainer = regression(np.array([[1, 2]], np.float32), [0], momentum=0.5)
    models = np.zeros((1, 6), np.float32)
    trainer.train(models, [Task(np.array([0]), (0,), 2)])
    step = 0.5 + 0.25 + 1 / (1 + math.exp(6))
    np.testing.assert_allclose(models, [[step, -step, step, 2 * step, -step, -2 * step]], rtol=0, atol=4e-7)


def test_the_first_step_of_adamw_is_the_learning_rate_long_in_each_direction_after_decay() -> None:
    """m̂ / √v̂ is the gradient's sign; from 1 a weight decays to 1 - 0.1 * 0.5."""
    trainer = regression(
        np.array([[1, 2]], np.float32), [0], learning_rate=0.1, optimizer="adamw", weight_decay=0.5, momentum=0.0
    )
    models = np.ones((1, 6), np.float32)
    trainer.train(models, [Task(np.array([0]), (0,), 1)])
    np.testing.assert_allclose(models, [[1.05, 0.85, 1.05, 1.05, 0.85, 0.85]], rtol=0, atol=1e-6)


def test_adamw_takes_a_gradient_for_the_weights_it_is_of_however_either_lies_in_memory() -> None:
    """A first step of 1 against each sign: the filters of a convolution lie channels last, its gradient may not."""
    signs = torch.tensor([[[[[1.0, -1.0], [1.0, 1.0]], [[-1.0, -1.0], [1.0, -1.0]]]]])
    weights = torch.zeros(1, 2, 2, 2).contiguous(memory_format=torch.channels_last).unsqueeze(0)
    recipe = Recipe(1, 1.0, optimizer="adamw", weight_decay=0.0)
    stacked_optimizer(recipe, {"conv1.weight": weights}).add("conv1.weight", signs)
    torch.testing.assert_close(weights, -signs)


def test_a_batch_whose_loss_is_above_the_bound_moves_nothing() -> None:
    """From nought the loss is ln 2 = 0.69: above a bound of 0.6, not above 0.8. Beside it stands a row that is right."""
    images = np.array([[1, 2]], np.float32)
    for bound, step in ((0.6, 0.0), (0.8, 0.5)):
        models = np.zeros((2, 6), np.float32)
        models[1, 0] = 1.0  # a logit of 1 for the label: a loss of ln(1 + 1 / e) = 0.31
        regression(images, [0], loss_bound=bound).train(models, [Task(np.array([0]), (row,), 1) for row in (0, 1)])
        assert models[0, 0] == step
        assert models[1, 0] > 1.0


def test_a_virtual_teacher_lets_a_model_be_that_sure_and_no_surer() -> None:
    """Log-odds of ln 9 are p = 0.9: there its gradient is nought."""
    trainer = regression(np.array([[1]], np.float32), [0], loss="virtual-teacher", beta=0.9)
    models = np.array([[0, 0, math.log(9), 0]], np.float32)
    assert np.abs(trainer.gradients(models, [Task(np.array([0]), (0,), 1)])).max() < 1e-7


def test_so_many_steps_go_through_as_many_epochs_as_it_takes() -> None:
    """Three equal samples in batches of two: five steps are two, one, two, one, two samples; none is by itself."""
    images = np.array([[1, 2]] * 3, np.float32)
    trainer = regression(images, [0] * 3, batch_size=2)
    five, epochs = np.zeros((1, 6), np.float32), np.zeros((1, 6), np.float32)
    trainer.train(five, [Task(np.arange(3), (0,), 1, steps=5)])
    trainer.train(epochs, [Task(np.arange(3), (0,), 2)])
    trainer.train(epochs, [Task(np.arange(3), (1,), 1, steps=1)])
    np.testing.assert_allclose(five, epochs, rtol=1e-6)


def test_a_task_passes_each_sample_once_an_epoch_and_stops_where_it_is_told() -> None:
    task = Task(np.arange(7), (0,), 2)
    batches = list(task.batches(3, Seeds(0)))
    assert [len(batch) for batch in batches] == [3, 3, 1, 3, 3, 1]
    assert sorted(np.concatenate(batches[:3])) == sorted(np.concatenate(batches[3:])) == list(range(7))
    assert np.concatenate(batches[:3]).tolist() == task.order(0, Seeds(0)).tolist()
    assert (task.num_steps(3), task.num_passed(3)) == (6, 14)
    some = replace(task, steps=4)
    assert [batch.tolist() for batch in some.batches(3, Seeds(0))] == [batch.tolist() for batch in batches[:4]]
    assert (some.num_steps(3), some.num_passed(3)) == (4, 10)
    none = replace(task, epochs=0)
    assert (list(none.batches(3, Seeds(0))), none.num_passed(3)) == ([], 0)


def test_an_optimisers_state_ends_with_the_call() -> None:
    """So the first step of each call is a plain one."""
    images, labels = np.array([[1, 2], [3, -1]], np.float32), [0, 1]
    tasks = [Task(np.arange(2), (0,), 1, steps=1)]
    plain, with_momentum = np.zeros((1, 6), np.float32), np.zeros((1, 6), np.float32)
    for _ in range(3):
        regression(images, labels).train(plain, tasks)
    trainer = regression(images, labels, momentum=0.9)
    for _ in range(3):
        trainer.train(with_momentum, tasks)
    assert with_momentum.tolist() == plain.tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-3, 3), min_size=3, max_size=5),
    st.integers(0, 2),
    st.sampled_from([0.3, 0.9, 0.95, 1.0]),
)
def test_the_virtual_teachers_gradient_is_the_slope_of_its_naive_twin(
    logits: list[float], label: int, beta: float
) -> None:
    """A model of biases alone (its image is black), whose logits they are."""
    classes, small = len(logits), 1e-5
    common = Common(
        np.zeros((1, 1), np.float32), np.array([label]), Recipe(1, 1.0, loss="virtual-teacher", beta=beta), Seeds(0)
    )
    trainer = DenseTrainer((1, classes), common, workers=1)
    row = np.array([[*logits, *[0] * classes]], np.float32)
    found = trainer.gradients(row, [Task(np.array([0]), (0,), 1)])
    at = [float(logit) for logit in row[0, :classes]]
    slopes = []
    for each in range(classes):
        above, below = ([*at[:each], at[each] + by, *at[each + 1 :]] for by in (small, -small))
        rise = virtual_teacher([above], [label], beta=beta) - virtual_teacher([below], [label], beta=beta)
        slopes.append(rise / (2 * small))
    np.testing.assert_allclose(found[0, :classes], slopes, rtol=0, atol=1e-6)
    assert not found[0, classes:].any()


clients = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 3), st.sampled_from([0, 0, 1, 5])), min_size=1, max_size=5
)
recipes = (
    st.builds(
        Recipe,
        batch_size=st.integers(1, 4),
        learning_rate=st.just(0.1),
        momentum=st.sampled_from([0.0, 0.5, 0.9]),
        loss=st.sampled_from(["cross-entropy", "virtual-teacher"]),
        beta=st.sampled_from([0.6, 0.95, 1.0]),
    )
    | st.builds(
        Recipe,
        batch_size=st.integers(1, 4),
        learning_rate=st.just(0.1),
        optimizer=st.just("adamw"),
        weight_decay=st.sampled_from([0.0, 0.01]),
        loss=st.sampled_from(["cross-entropy", "virtual-teacher"]),
    )
    | st.builds(
        Recipe,
        batch_size=st.integers(1, 4),
        learning_rate=st.just(0.1),
        optimizer=st.sampled_from(["sgd", "adamw"]),
        loss_bound=st.sampled_from([0.5, 1.0]),
    )
)
layers_of = st.sampled_from([(3, 2), (4, 5, 3), (2, 4, 3, 2)])


@settings(max_examples=60, deadline=None)
@given(clients, recipes, layers_of, st.sampled_from([0.0, 0.5]), st.sampled_from(["its own", "another's"]))
def test_a_stack_trains_each_model_as_autograd_trains_it_alone(
    asked: list[tuple[int, int, int]], recipe: Recipe, layers: tuple[int, ...], proximal: float, anchors: str
) -> None:
    """In float64: a moment of AdamW that is rounding alone would be a step as long as any."""
    rng = np.random.default_rng(11)
    images = rng.standard_normal((9, layers[0])).astype(np.float32)
    labels = rng.integers(0, layers[-1], 9)
    tasks = [
        Task(rng.permutation(9)[:size], (client,), epochs, steps) for client, (size, epochs, steps) in enumerate(asked)
    ]
    common = Common(images, labels, recipe, Seeds(4), dtype=torch.float64)
    stacked, twin = DenseTrainer(layers, common, workers=1), SequentialTrainer(lambda: Mlp(*layers), common)
    models: Matrix32 = np.stack([stacked.initial(np.random.default_rng(client)) for client in range(len(tasks))])
    alone = models.copy()
    np.testing.assert_allclose(stacked.gradients(models, tasks), twin.gradients(models, tasks), rtol=0, atol=1e-6)
    assert models.tobytes() == alone.tobytes()
    towards = models[::-1].copy() if anchors == "another's" else None
    stacked.train(models, tasks, proximal=proximal, towards=towards)
    twin.train(alone, tasks, proximal=proximal, towards=towards)
    np.testing.assert_allclose(models, alone, rtol=0, atol=1e-6)  # a row's own rounding to float32
