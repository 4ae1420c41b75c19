"""Many multi-layer perceptrons at once, by backpropagation written out: plain SGD never stores a gradient.

* Models of a chunk are stacked, tensor by tensor, and step together. The chunk is small enough to stay in the cache,
  and a layer's update goes straight into its weights (``baddbmm_``): for batches of ten a gradient as large as the
  model would cost more memory traffic than all of the arithmetic.
* Rows with fewer steps leave the chunk early, and a batch that is smaller than its neighbours' is padded with a
  sample that weighs nothing, so each row takes the very steps that it would take alone.
* Chunks are shared out among threads. Products release the interpreter's lock, so threads do as well as processes
  here, and rows need not travel.
* On a GPU a chunk is as many rows as there are; one stream.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fl_simulator.models.classifiers import Mlp
from fl_simulator.training.base import Common, PopulationTrainer
from fl_simulator.training.optimizers import stacked_optimizer
from fl_simulator.training.parameter_vectors import as_tensor, judge, unflatten
from fl_simulator.training.protocol import Task

_CHUNK_BYTES = 3 << 20
"""Parameters of a chunk on a processor, and what its optimiser keeps of them: chunks of all cores and their batches lie
in the third-level cache, of which a virtual machine has less than it is told. Fewer models and more steps cost more
calls."""
_MOST_ROWS = 128
_DEVICE_CHUNK_BYTES = 8 << 30
_LEAST_IN_PLACE = 1 << 12
"""Parameters; smaller models step faster where their tensors stand together."""
_EVALUATION_BATCH = 2048
_EVALUATED_OUTPUTS = 512
"""Columns of a product over the images of a common test, which is then twice as fast as with ten of one model."""


class DenseTrainer(PopulationTrainer):
    """Trains stacks of ``Mlp``; meets ``Trainer``."""

    def __init__(self, sizes: Sequence[int], common: Common, *, workers: int = 0) -> None:
        self._outputs, self._depth = sizes[1], len(sizes) - 1
        super().__init__(
            lambda: Mlp(*sizes),
            as_tensor(common.images).flatten(1),
            common,
            workers=workers,
            evaluation_batch=_EVALUATION_BATCH,
            evaluated_models=max(1, _EVALUATED_OUTPUTS // self._outputs),
        )

    def _train(self, rows: Tensor, tasks: Sequence[Task], proximal: float, anchors: Tensor | None) -> None:
        steps = np.array([task.num_steps(self._recipe.batch_size) for task in tasks], dtype=np.int64)
        longest_first = np.argsort(-steps, kind="stable")
        chosen = longest_first[: np.count_nonzero(steps)]

        @torch.no_grad()
        def train(places: NDArray[np.int64]) -> None:
            self._train_chunk(rows, anchors, places, [tasks[place] for place in places], proximal=proximal)

        chunks = self._chunks(len(chosen))
        self._workers.share(train, [chosen[at : at + size] for at, size in chunks])

    def _differentiate(self, rows: Tensor, tasks: Sequence[Task], gradients: Tensor) -> None:
        source, target = unflatten(self._layout, rows), unflatten(self._layout, gradients)

        @torch.no_grad()
        def differentiate(chunk: slice) -> None:
            stack = {name: view[chunk].to(self._device, self._dtype) for name, view in source.items()}
            schedule = self._schedule(tasks[chunk], scale=1.0)
            for layer, (delta, value) in enumerate(zip(*self._backpropagate(stack, schedule, 0), strict=True), 1):
                target[f"fc{layer}.weight"][chunk] = torch.bmm(delta.transpose(1, 2), value).to("cpu", torch.float32)
                target[f"fc{layer}.bias"][chunk] = delta.sum(1).to("cpu", torch.float32)

        self._workers.share(differentiate, [slice(at, at + size) for at, size in self._chunks(len(tasks))])

    def _chunks(self, num_rows: int) -> list[tuple[int, int]]:
        """Where each chunk begins, and how many rows it has: few enough for the cache, alike for all threads."""
        if not num_rows:
            return []
        row_bytes = self._layout.num_parameters * (1 + self._recipe.num_kept) * self._dtype.itemsize
        if self._device.type == "cpu":
            most = max(1, min(_MOST_ROWS, _CHUNK_BYTES // row_bytes))
        else:
            most = max(1, _DEVICE_CHUNK_BYTES // row_bytes)
        count = -(-num_rows // most)
        count = min(num_rows, -(-count // self._workers.count) * self._workers.count)
        edges = [num_rows * part // count for part in range(count + 1)]
        return [(low, high - low) for low, high in pairwise(edges)]

    def _train_chunk(
        self,
        rows: Tensor,
        anchors: Tensor | None,
        places: NDArray[np.int64],
        tasks: Sequence[Task],
        *,
        proximal: float,
    ) -> None:
        """Train the rows at ``places``, which stand in the order of their steps, the most first."""
        source = unflatten(self._layout, rows)
        at: Tensor | slice = torch.from_numpy(places)
        is_in_place = (
            self._device.type == "cpu"
            and self._dtype == rows.dtype
            and self._layout.num_parameters >= _LEAST_IN_PLACE
            and self._recipe.optimizer == "sgd"  # PyTorch's AdamW wants each tensor of the stack in one piece
            and bool((np.diff(places) == 1).all())
        )
        if is_in_place:  # as of rows that have equally much to do: nothing is copied
            at = slice(int(places[0]), int(places[-1]) + 1)
        stack = {name: view[at].to(self._device, self._dtype) for name, view in source.items()}
        steps = stacked_optimizer(self._recipe, stack, proximal=proximal, received=self._received(anchors, at))
        schedule = self._schedule(tasks, scale=steps.scale)
        for step in range(schedule.order.shape[1]):
            deltas, values = self._backpropagate(stack, schedule, step)
            steps.begin_step()
            for layer, (delta, value) in enumerate(zip(deltas, values, strict=True), 1):
                steps.add_product(f"fc{layer}.weight", delta, value)
                steps.add(f"fc{layer}.bias", delta.sum(1))
        if not is_in_place:
            for name, view in source.items():
                view[at] = stack[name].to(view.device, view.dtype)

    def _received(self, anchors: Tensor | None, at: Tensor | slice) -> dict[str, Tensor] | None:
        """A copy of what the proximal term pulls these rows towards."""
        if anchors is None:
            return None
        views = unflatten(self._layout, anchors)
        return {name: view[at].to(self._device, self._dtype, copy=True) for name, view in views.items()}

    def _backpropagate(
        self, stack: Mapping[str, Tensor], schedule: "_Schedule", step: int
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One step's gradients of the rows that still train, of the stacked models.

        Returns:
            Of each layer, the scaled gradient at its outputs, ``(k, b, out)``, and what came in, ``(k, b, in)``.
        """
        active, width = int(schedule.active[step]), int(schedule.width[step])
        batch = schedule.order[:active, step, :width]
        outputs = self._images.index_select(0, batch.flatten()).view(active, width, -1)
        values = []
        for layer in range(1, self._depth + 1):
            values.append(outputs.relu_() if layer > 1 else outputs)
            weight, bias = stack[f"fc{layer}.weight"][:active], stack[f"fc{layer}.bias"][:active]
            outputs = torch.baddbmm(bias.unsqueeze(1), values[-1], weight.transpose(1, 2))
        deltas = [self._error(outputs, self._labels[batch], schedule.scale[:active, step, :width])]  # (k, b, classes)
        for layer in range(self._depth, 1, -1):
            entering = torch.bmm(deltas[-1], stack[f"fc{layer}.weight"][:active])
            deltas.append(torch.ops.aten.threshold_backward(entering, values[layer - 1], 0))
        return deltas[::-1], values

    def _schedule(self, tasks: Sequence[Task], *, scale: float) -> "_Schedule":
        """What rows do at each step; they stand in the order of their steps, the most first."""
        size = self._recipe.batch_size
        steps = [task.num_steps(size) for task in tasks]
        order = np.empty((len(tasks), steps[0], size), dtype=np.int64)
        counts = np.zeros((len(tasks), steps[0]), dtype=np.int64)
        for row, task in enumerate(tasks):
            order[row] = task.samples[0]
            per_epoch = task.steps_per_epoch(size)
            for epoch, first in enumerate(range(0, steps[row], per_epoch)):
                part = order[row, first : min(first + per_epoch, steps[row])].reshape(-1)
                here = task.order(epoch, self._seeds)[: len(part)]
                part[: len(here)] = here
            counts[row, : steps[row]] = size
            counts[row, per_epoch - 1 : steps[row] : per_epoch] = len(task.samples) - (per_epoch - 1) * size
        weighs = np.arange(size) < counts[:, :, None]  # (K, steps, batch)
        factor = np.where(weighs, scale / np.maximum(counts, 1)[:, :, None], 0.0)
        return _Schedule(
            order=torch.from_numpy(order).to(self._device),
            scale=torch.from_numpy(factor).to(self._device, self._softmax_dtype),
            active=np.count_nonzero(counts, axis=0),
            width=counts.max(axis=0),
        )

    def _judged(self, rows: Tensor, places: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        tensors = unflatten(self._layout, rows.to(self._device, self._dtype))
        for part in places:  # one product for all models, for a model's outputs alone may be too few for a fast one
            outputs = functional.linear(
                self._taken(part), tensors["fc1.weight"].flatten(0, 1), tensors["fc1.bias"].flatten()
            )
            values = outputs.view(len(part), len(rows), self._outputs).transpose(0, 1)
            for layer in range(2, self._depth + 1):
                further = zip(values.relu_(), tensors[f"fc{layer}.weight"], tensors[f"fc{layer}.bias"], strict=True)
                values = torch.stack([functional.linear(*each) for each in further])
            yield judge(values, self._labels[part])


@dataclass(frozen=True, slots=True, eq=False)
class _Schedule:
    """What a chunk of K rows does at each of S steps.

    Attributes:
        order: Samples, shape ``(K, S, batch_size)``; any of the row's own where there is none.
        scale: What a sample's gradient is multiplied by, the optimiser's factor / (samples of the batch), shape
            ``(K, S, batch_size)``; 0 where there is no sample.
        active: Rows that still train, shape ``(S,)``; they are the first.
        width: Samples of the largest batch, shape ``(S,)``.
    """

    order: Tensor
    scale: Tensor
    active: NDArray[np.int64]
    width: NDArray[np.int64]
