"""One client after the other, by autograd: what the batched trainers must equal, and the way for any other module."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from fl_client.training.trainer import PlainSgd
from fl_client.training.virtual_teacher import virtual_teacher
from fl_core.models import ModelLayout
from fl_core.types import Matrix32, Vector32
from fl_simulator.training.common import Common
from fl_simulator.training.parameter_vectors import (
    Counts,
    as_tensor,
    by_model,
    check_evaluation,
    check_tasks,
    check_training,
    init_parameters,
    judge,
    layout_of,
    unflatten,
)
from fl_simulator.training.protocol import Evaluation, Rows, Task
from fl_simulator.training.recipe import Recipe
from fl_simulator.training.threads import one_torch_thread

_EVALUATION_BATCH = 512


class SequentialTrainer:
    """Trains a ``torch.nn.Module`` as any PyTorch program does; meets ``Trainer``.

    Args:
        model_factory: Makes the module; its parameters are a row, its buffers are not.
        common: What every trainer is told.
    """

    def __init__(self, model_factory: Callable[[], nn.Module], common: Common) -> None:
        self._factory, self._common, self._recipe = model_factory, common, common.recipe
        self._device = torch.device(common.device)
        with torch.random.fork_rng(devices=[]):
            self._module = model_factory().to(self._device, common.dtype)
        self._layout = layout_of(self._module)
        self._images = as_tensor(common.images).to(self._device, common.dtype)
        self._labels = as_tensor(common.labels).to(self._device)

    @property
    def layout(self) -> ModelLayout:
        """The module's parameters, in canonical order."""
        return self._layout

    def initial(self, rng: np.random.Generator, *, gain: float = 1.0) -> Vector32:
        """A new model, shape ``(P,)``; ``rng`` decides it, and ``gain`` multiplies its weights."""
        return init_parameters(self._factory, self._layout, rng, init=self._common.init, gain=gain)

    def train(self, models: Matrix32, tasks: Sequence[Task], *, proximal: float = 0.0) -> None:
        """Train row k of ``models`` in place by ``tasks[k]``; see ``Trainer``.

        Raises:
            ShapeMismatchError: The rows cannot be trained in place, or a task has no samples.
        """
        check_training(self._layout, models, tasks)
        with one_torch_thread():
            for row, task in zip(torch.from_numpy(models), tasks, strict=True):
                self._train_one(row, task, proximal)

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:
        """The loss's gradient at each row over its task's first batch, shape ``(K, P)``; see ``Trainer``.

        Raises:
            ShapeMismatchError: Models of another layout, or a task has no samples.
        """
        check_tasks(self._layout, models, tasks)
        found = np.empty_like(models, order="C")
        with one_torch_thread():
            for row, task, gradient in zip(as_tensor(models), tasks, torch.from_numpy(found), strict=True):
                self._load(row)
                self._module.zero_grad()
                self._loss(next(replace(task, steps=1).batches(self._recipe.batch_size, self._common.seeds))).backward()  # type: ignore[no-untyped-call] # torch leaves it so
                for name, view in unflatten(self._layout, gradient).items():
                    found_here = self._module.get_parameter(name).grad
                    assert found_here is not None
                    view.copy_(found_here)
        return found

    def evaluate(self, models: Matrix32, rows: Sequence[int] | Rows, samples: Sequence[Rows]) -> Evaluation:
        """Model ``rows[k]`` on the samples ``samples[k]``; see ``Trainer``.

        Raises:
            ShapeMismatchError: Models of another layout, or not as many rows as samples.
        """
        check_evaluation(self._layout, models, rows, samples)
        counts = Counts(samples)
        stored = as_tensor(models)
        with one_torch_thread(), torch.no_grad():
            self._module.eval()
            for model, pairs in by_model(rows):
                self._load(stored[model])
                parts = [self._judge(batch) for batch in torch.split(as_tensor(counts.of(pairs)), _EVALUATION_BATCH)]
                correct, loss = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
                counts.record(pairs, correct, loss)
        return counts.evaluation()

    def close(self) -> None:
        """Nothing to let go."""

    def _train_one(self, row: Tensor, task: Task, proximal: float) -> None:
        self._load(row)
        self._module.train()
        parameters = list(self._module.parameters())
        received = [parameter.detach().clone() for parameter in parameters] if proximal else []
        optimizer = _optimizer(self._recipe, parameters)
        for batch in task.batches(self._recipe.batch_size, self._common.seeds):
            optimizer.zero_grad()
            self._loss(batch).backward()  # type: ignore[no-untyped-call] # torch leaves it so
            if proximal:
                for parameter, old in zip(parameters, received, strict=True):
                    assert parameter.grad is not None
                    parameter.grad.add_(parameter.detach() - old, alpha=proximal)
            optimizer.step()
        trained = dict(self._module.named_parameters())
        with torch.no_grad():
            for name, view in unflatten(self._layout, row).items():
                view.copy_(trained[name])

    def _loss(self, batch: Rows) -> Tensor:
        """Mean loss over the batch, a scalar."""
        places = torch.from_numpy(batch).to(self._device)
        logits, labels = self._module(self._images[places]), self._labels[places]
        if self._recipe.loss == "cross-entropy":
            return nn.functional.cross_entropy(logits, labels)
        return virtual_teacher(logits, labels, beta=self._recipe.beta)

    @torch.no_grad()
    def _load(self, row: Tensor) -> None:
        views = unflatten(self._layout, row)
        for name, parameter in self._module.named_parameters():
            parameter.copy_(views[name])

    def _judge(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        places = batch.to(self._device)
        return judge(self._module(self._images[places]), self._labels[places])


def _optimizer(recipe: Recipe, parameters: list[nn.Parameter]) -> PlainSgd | torch.optim.Optimizer:
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay)
    if recipe.momentum:
        return torch.optim.SGD(parameters, recipe.learning_rate, momentum=recipe.momentum)
    return PlainSgd(parameters, recipe.learning_rate)
