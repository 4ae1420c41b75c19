"""Convolutional models, a client at a time in each thread: nine tenths of a step's memory traffic saved.

* Most of such a model is ``fc1`` (13 MB of MNIST's). The fully connected layers are trained by backpropagation written
  out, and plain SGD's updates go straight into the row: no gradient of that size is ever stored, nothing is copied.
* Convolutions are left to autograd, with channels last; an image of one channel is multiplied out (im2col), for
  which torch has no such format. ReLU comes after pooling, where there is a quarter to do and the same result.
* Stacking clients, which pays for dense models, does not here: a step of one client fills a core's vector units.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fl_simulator.models.catalogue import Architecture
from fl_simulator.models.classifiers import Cnn
from fl_simulator.training.base import Common, PopulationTrainer
from fl_simulator.training.optimizers import stacked_optimizer
from fl_simulator.training.parameter_vectors import as_tensor, judge, unflatten
from fl_simulator.training.protocol import Rows, Task

_EVALUATION_BATCH = 64


class ConvolutionalTrainer(PopulationTrainer):
    """Trains a ``Cnn``; meets ``Trainer``.

    On a GPU convolutions round as TF32, which torch allows by default, and may sum in another order each time.
    """

    def __init__(self, model: Architecture, classes: int, common: Common, *, workers: int = 0) -> None:
        self._model, self._depth = model, len(model.hidden) + 1
        pictures = as_tensor(common.images)
        super().__init__(
            lambda: Cnn(model, classes),
            pictures.unsqueeze(1) if pictures.dim() == 3 else pictures,
            common,
            workers=workers,
            evaluation_batch=_EVALUATION_BATCH,
        )
        self._by_autograd = [each.name for each in self._layout.tensors if each.name.startswith("conv")]

    def _train(self, rows: Tensor, tasks: Sequence[Task], proximal: float, anchors: Tensor | None) -> None:
        work = [task.num_passed(self._recipe.batch_size) for task in tasks]
        most_work_first = sorted(range(len(tasks)), key=lambda k: -work[k])

        @torch.no_grad()
        def train(place: int) -> None:
            self._train_one(rows[place], tasks[place], proximal, None if anchors is None else anchors[place])

        self._workers.share(train, [place for place in most_work_first if work[place]])

    def _differentiate(self, rows: Tensor, tasks: Sequence[Task], gradients: Tensor) -> None:
        @torch.no_grad()
        def differentiate(place: int) -> None:
            tensors = self._differentiable(rows[place])
            batch = next(tasks[place].batches(self._recipe.batch_size, self._seeds))
            deltas, values, others = self._backpropagate(tensors, batch, 1 / len(batch))
            target = unflatten(self._layout, gradients[place])
            for layer, (delta, entering) in enumerate(zip(deltas, values, strict=True), 1):
                target[f"fc{layer}.weight"].copy_(delta.T @ entering)
                target[f"fc{layer}.bias"].copy_(delta.sum(0))
            for name, gradient in others.items():
                target[name].copy_(gradient)

        self._workers.share(differentiate, range(len(tasks)))

    def _on_device(self, row: Tensor) -> dict[str, Tensor]:
        """The row's tensors: views of it on a processor in float32, otherwise copies; convolutions channels last."""
        tensors = unflatten(self._layout, row.to(self._device, self._dtype))
        for name in self._by_autograd:
            wanted = torch.channels_last if tensors[name].dim() == 4 else torch.contiguous_format
            tensors[name] = tensors[name].clone(memory_format=wanted)
        return tensors

    def _differentiable(self, row: Tensor) -> dict[str, Tensor]:
        tensors = self._on_device(row)
        for name in self._by_autograd:
            tensors[name].requires_grad_()
        return tensors

    def _train_one(self, row: Tensor, task: Task, proximal: float, anchor: Tensor | None) -> None:
        received = None
        if anchor is not None:
            received = {name: each.unsqueeze(0) for name, each in self._on_device(anchor.clone()).items()}
        tensors = self._differentiable(row)
        stack = {name: tensor.detach().unsqueeze(0) for name, tensor in tensors.items()}
        steps = stacked_optimizer(self._recipe, stack, proximal=proximal, received=received)
        for batch in task.batches(self._recipe.batch_size, self._seeds):
            deltas, values, others = self._backpropagate(tensors, batch, steps.scale / len(batch))
            steps.begin_step()
            for name, gradient in others.items():
                steps.add(name, gradient.unsqueeze(0))
            for layer, (delta, entering) in enumerate(zip(deltas, values, strict=True), 1):
                steps.add_product(f"fc{layer}.weight", delta.unsqueeze(0), entering.unsqueeze(0))
                steps.add(f"fc{layer}.bias", delta.sum(0, keepdim=True))
        for name, view in unflatten(self._layout, row).items():
            if view.data_ptr() != tensors[name].data_ptr():
                view.copy_(tensors[name])

    def _backpropagate(
        self, tensors: Mapping[str, Tensor], batch: Rows, scale: float
    ) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
        """The gradient times ``scale``, which is summed over the batch.

        Returns:
            At each fully connected layer's outputs (b, out); what came into it (b, in); of what autograd has.
        """
        places = torch.from_numpy(batch).to(self._device)
        with torch.enable_grad():
            features = self._features(tensors, self._images[places])
        values = [features.detach()]
        for layer in range(1, self._depth + 1):
            outputs = torch.addmm(tensors[f"fc{layer}.bias"], values[-1], tensors[f"fc{layer}.weight"].T)
            values.append(outputs if layer == self._depth else outputs.relu_())
        weights = torch.full((len(batch),), scale, dtype=self._softmax_dtype, device=self._device)
        deltas = [self._error(values.pop(), self._labels[places], weights)]  # (b, classes)
        for layer in range(self._depth, 1, -1):
            deltas.append(deltas[-1] @ tensors[f"fc{layer}.weight"])
            deltas[-1] *= values[layer - 1] > 0
        learned = [tensors[name] for name in self._by_autograd]
        changes = torch.autograd.grad(features, learned, deltas[-1] @ tensors["fc1.weight"])
        return deltas[::-1], values, dict(zip(self._by_autograd, changes, strict=True))

    def _features(self, tensors: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """What the convolutions make of images (b, channels, side, side), shape ``(b, features)``."""
        values = images
        for number, layer in enumerate(self._model.convolutions, 1):
            name = f"conv{number}"
            values = _convolution(values, tensors[f"{name}.weight"], tensors[f"{name}.bias"], layer.padding)
            if layer.groups:
                scale, shift = tensors[f"{name}_norm.weight"], tensors[f"{name}_norm.bias"]
                values = functional.group_norm(values, layer.groups, scale, shift)
            if layer.pool:
                values = functional.max_pool2d(values, layer.pool, stride=2)
            values = functional.relu_(values)
        return values.flatten(1)

    def _judged(self, rows: Tensor, places: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        (row,) = rows
        tensors = self._on_device(row)
        for part in places:
            values = self._features(tensors, self._taken(part))
            for layer in range(1, self._depth + 1):
                values = torch.addmm(tensors[f"fc{layer}.bias"], values, tensors[f"fc{layer}.weight"].T)
                if layer < self._depth:
                    values.relu_()
            yield judge(values, self._labels[part])


def _convolution(images: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """A convolution; the result lies channels last."""
    filters, channels, side, _ = weight.shape
    if channels > 1:
        return functional.conv2d(images.contiguous(memory_format=torch.channels_last), weight, bias, padding=padding)
    columns = functional.pad(images, (padding,) * 4).unfold(2, side, 1).unfold(3, side, 1)
    number, _, height, width, _, _ = columns.shape
    lines = columns.reshape(number * height * width, side * side)
    product = torch.addmm(bias, lines, weight.reshape(filters, side * side).T)
    return product.view(number, height, width, filters).permute(0, 3, 1, 2)
