"""One client after the other, by autograd: what the simulator's trainers must equal."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from fl_client.training.trainer import PlainSgd
from fl_client.training.virtual_teacher import virtual_teacher
from fl_simulator.training.base import Common, PopulationTrainer
from fl_simulator.training.parameter_vectors import as_tensor, judge, unflatten
from fl_simulator.training.protocol import Rows, Task
from fl_simulator.training.recipe import Recipe
from fl_simulator.training.threads import one_torch_thread

_EVALUATION_BATCH = 512


class SequentialTrainer(PopulationTrainer):
    """Trains a ``torch.nn.Module`` as any PyTorch program does; meets ``Trainer``.

    Args:
        factory: Makes the module; its parameters are a row, its buffers are not.
        common: What every trainer is told.
    """

    def __init__(self, factory: Callable[[], nn.Module], common: Common) -> None:
        super().__init__(factory, as_tensor(common.images), common, workers=1, evaluation_batch=_EVALUATION_BATCH)
        with torch.random.fork_rng(devices=[]):
            self._module = factory().to(self._device, self._dtype)

    def _train(self, rows: Tensor, tasks: Sequence[Task], proximal: float, anchors: Tensor | None) -> None:
        with one_torch_thread():
            for number, (row, task) in enumerate(zip(rows, tasks, strict=True)):
                self._train_one(row, task, proximal, None if anchors is None else anchors[number].clone())

    def _differentiate(self, rows: Tensor, tasks: Sequence[Task], gradients: Tensor) -> None:
        with one_torch_thread():
            for row, task, gradient in zip(rows, tasks, gradients, strict=True):
                self._load(row)
                self._module.zero_grad()
                self._loss(next(task.batches(self._recipe.batch_size, self._seeds))).backward()  # type: ignore[no-untyped-call] # torch leaves it so
                for name, view in unflatten(self._layout, gradient).items():
                    found = self._module.get_parameter(name).grad
                    assert found is not None
                    view.copy_(found)

    def _judged(self, rows: Tensor, places: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        (row,) = rows
        self._load(row)
        self._module.eval()
        for part in places:
            yield judge(self._module(self._taken(part)), self._labels[part])

    def _train_one(self, row: Tensor, task: Task, proximal: float, anchor: Tensor | None) -> None:
        self._load(row)
        self._module.train()
        named = dict(self._module.named_parameters())
        parameters = list(named.values())
        received = [] if anchor is None else [unflatten(self._layout, anchor)[name] for name in named]
        optimizer = _optimizer(self._recipe, parameters)
        for batch in task.batches(self._recipe.batch_size, self._seeds):
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
            loss = nn.functional.cross_entropy(logits, labels)
            return torch.clamp(loss, max=self._recipe.loss_bound) if self._recipe.loss_bound else loss
        return virtual_teacher(logits, labels, beta=self._recipe.beta)

    @torch.no_grad()
    def _load(self, row: Tensor) -> None:
        views = unflatten(self._layout, row)
        for name, parameter in self._module.named_parameters():
            parameter.copy_(views[name])


def _optimizer(recipe: Recipe, parameters: list[nn.Parameter]) -> PlainSgd | torch.optim.Optimizer:
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay)
    if recipe.momentum:
        return torch.optim.SGD(parameters, recipe.learning_rate, momentum=recipe.momentum)
    return PlainSgd(parameters, recipe.learning_rate)
