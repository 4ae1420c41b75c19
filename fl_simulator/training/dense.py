"""Many multi-layer perceptrons at once, by backpropagation written out: plain SGD never stores a gradient.

* Models of a chunk are stacked, tensor by tensor, and step together. The chunk is small enough to stay in the cache,
  and a layer's update goes straight into its weights (``baddbmm_``): for batches of ten a gradient as large as the
  model would cost more memory traffic than all of the arithmetic.
* Under SGD a wide first layer changes but once in a window of steps (``window``): it has most of the weights, so they
  are read and written once in ten steps, in products that are large enough to be fast.
* Rows with fewer steps leave the chunk early, and a batch that is smaller than its neighbours' is padded with a
  sample that weighs nothing, so each row takes the very steps that it would take alone.
* Chunks are shared out among threads. Products release the interpreter's lock, so threads do as well as processes
  here, and rows need not travel.
* On a GPU a chunk is as many rows as there are; one stream.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.types import Matrix32
from fl_simulator.models.classifiers import Mlp
from fl_simulator.training.common import Common
from fl_simulator.training.descent import Descent, descent
from fl_simulator.training.products import product
from fl_simulator.training.protocol import Task
from fl_simulator.training.rows import (
    as_tensor,
    check_tasks,
    check_training,
    judge,
    tensors_of,
)
from fl_simulator.training.threaded import ThreadedTrainer
from fl_simulator.training.window import PostponedLayer, window_steps, window_values

_CHUNK_BYTES = 6 << 20
"""Parameters of a chunk on a processor, and what its optimiser keeps of them: two chunks and their batches lie in a
third-level cache of 16 MiB."""
_WINDOWS_BYTES = 12 << 20
"""Likewise, where the first layer changes once in a window: what the window keeps, and the further layers."""
_MOST_ROWS = 128
_DEVICE_CHUNK_BYTES = 8 << 30
_LEAST_IN_PLACE = 1 << 12
"""Parameters; smaller models step faster where their tensors stand together."""
_EVALUATION_BATCH = 2048
_EVALUATED_OUTPUTS = 512
"""Columns of a product over the images of a common test, which is then twice as fast as with ten of one model."""
_WEIGHT, _BIAS = "fc1.weight", "fc1.bias"


class DenseTrainer(ThreadedTrainer):
    """Trains stacks of ``Mlp``; meets ``Trainer``.

    Args:
        sizes: Values of the input, of each hidden layer, and logits.
        common: What every trainer is told; images of any shape are flattened.
        workers: Threads; 0: one for each core. A GPU has one.
    """

    def __init__(self, sizes: Sequence[int], common: Common, *, workers: int = 0) -> None:
        (self._inputs, self._outputs), self._depth = sizes[:2], len(sizes) - 1
        super().__init__(
            lambda: Mlp(*sizes),
            as_tensor(common.images).flatten(1),
            common,
            workers=workers,
            evaluation_batch=_EVALUATION_BATCH,
            evaluated_models=max(1, _EVALUATED_OUTPUTS // self._outputs),
        )

    def train(self, models: Matrix32, tasks: Sequence[Task], *, proximal: float = 0.0) -> None:
        """See ``Trainer.train``."""
        check_training(self._layout, models, tasks)
        rows = torch.from_numpy(models)
        steps = np.array([task.num_steps(self._recipe.batch_size) for task in tasks], dtype=np.int64)
        longest_first = np.argsort(-steps, kind="stable")
        chosen = longest_first[: np.count_nonzero(steps)]
        window = self._window(int(steps.max(initial=0)), proximal)

        @torch.no_grad()
        def train(places: NDArray[np.int64]) -> None:
            self._train_chunk(rows, places, [tasks[place] for place in places], proximal=proximal, window=window)

        chunks = self._chunks(len(chosen), window=window)
        self._workers.share(train, [chosen[at : at + size] for at, size in chunks])

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:
        """See ``Trainer.gradients``."""
        check_tasks(self._layout, models, tasks)
        source = tensors_of(self._layout, as_tensor(models))
        found = np.empty_like(models, order="C")
        target = tensors_of(self._layout, torch.from_numpy(found))

        @torch.no_grad()
        def differentiate(chunk: slice) -> None:
            stack = {name: view[chunk].to(self._device, self._dtype) for name, view in source.items()}
            schedule = self._schedule([replace(task, steps=1) for task in tasks[chunk]], scale=1.0)
            entering = self._entering(schedule, 0)
            deltas, values = self._backpropagate(stack, schedule, 0, self._first_outputs(stack, entering))
            for layer, (delta, value) in enumerate(zip(deltas, [entering, *values], strict=True), 1):
                target[f"fc{layer}.weight"][chunk] = torch.bmm(delta.transpose(1, 2), value).to("cpu", torch.float32)
                target[f"fc{layer}.bias"][chunk] = delta.sum(1).to("cpu", torch.float32)

        self._workers.share(differentiate, [slice(at, at + size) for at, size in self._chunks(len(tasks))])
        return found

    def _chunks(self, num_rows: int, *, window: int = 0) -> list[tuple[int, int]]:
        """Where each chunk begins, and how many rows it has: few enough for the cache, alike for all threads."""
        if not num_rows:
            return []
        kept, chunk_bytes = self._layout.num_parameters * (1 + self._recipe.num_kept), _CHUNK_BYTES
        if window:  # of the first layer a row at a time is at hand
            kept -= (self._inputs + 1) * self._outputs * (1 + self._recipe.num_kept)
            samples = window * self._recipe.batch_size
            kept += window_values(samples, inputs=self._inputs, outputs=self._outputs)
            chunk_bytes = _WINDOWS_BYTES
        row_bytes = kept * self._dtype.itemsize
        if self._device.type == "cpu":
            most = max(1, min(_MOST_ROWS, chunk_bytes // row_bytes))
        else:
            most = max(1, _DEVICE_CHUNK_BYTES // row_bytes)
        count = -(-num_rows // most)
        count = min(num_rows, -(-count // self._workers.count) * self._workers.count)
        edges = [num_rows * part // count for part in range(count + 1)]
        return [(low, high - low) for low, high in pairwise(edges)]

    def _train_chunk(
        self, rows: Tensor, places: NDArray[np.int64], tasks: Sequence[Task], *, proximal: float, window: int
    ) -> None:
        """Train the rows at ``places``, which stand in the order of their steps, the most first."""
        source = tensors_of(self._layout, rows)
        at: Tensor | slice = torch.from_numpy(places)
        is_in_place = (
            self._device.type == "cpu"
            and self._dtype == rows.dtype
            and self._layout.num_parameters >= _LEAST_IN_PLACE
            and bool((np.diff(places) == 1).all())
        )
        if is_in_place:  # as of rows that have equally much to do: nothing is copied
            at = slice(int(places[0]), int(places[-1]) + 1)
        stack = {name: view[at].to(self._device, self._dtype) for name, view in source.items()}
        if window:
            self._descend_by_window(stack, tasks, window=window)
        else:
            self._descend_by_step(stack, tasks, proximal=proximal)
        if not is_in_place:
            for name, view in source.items():
                view[at] = stack[name].to(view.device, view.dtype)

    def _window(self, num_steps: int, proximal: float) -> int:
        """Steps between two changes of the first layer's weights, alike for all rows; 0: they change at each."""
        if proximal or self._device.type != "cpu" or self._dtype == torch.bfloat16:
            return 0
        return window_steps(self._recipe, num_steps, inputs=self._inputs, outputs=self._outputs)

    def _descend_by_step(self, stack: Mapping[str, Tensor], tasks: Sequence[Task], *, proximal: float) -> None:
        """All steps of a chunk, in place."""
        steps = descent(self._recipe, stack, proximal=proximal)
        schedule = self._schedule(tasks, scale=steps.scale)
        for step in range(schedule.order.shape[1]):
            entering = self._entering(schedule, step)
            deltas, values = self._backpropagate(stack, schedule, step, self._first_outputs(stack, entering))
            self._step(steps, deltas, [entering, *values])

    def _descend_by_window(self, stack: Mapping[str, Tensor], tasks: Sequence[Task], *, window: int) -> None:
        """The same, the first layer's weights but once in so many steps."""
        momentum, samples = self._recipe.momentum, window * self._recipe.batch_size
        first = PostponedLayer(stack[_WEIGHT], stack[_BIAS], momentum=momentum, samples=samples)
        # further layers are small, and steps with them faster where they stand together
        others = {name: tensor.clone() for name, tensor in stack.items() if name not in {_WEIGHT, _BIAS}}
        steps = descent(self._recipe, others, proximal=0.0)
        schedule = self._schedule(tasks, scale=steps.scale)
        num_steps = schedule.order.shape[1]
        for begin in range(0, num_steps, window):
            end = min(begin + window, num_steps)
            batches = schedule.order[: int(schedule.active[begin]), begin:end, : int(schedule.width[begin:end].max())]
            first.begin(self._images, batches, schedule.steps_between(begin, end))
            for step in range(begin, end):
                outputs = first.outputs(int(schedule.active[step]))
                deltas, values = self._backpropagate(others, schedule, step, outputs)
                first.step(deltas[0])
                self._step(steps, deltas[1:], values)
            first.end()
        for name, tensor in others.items():
            stack[name].copy_(tensor)

    def _step(self, steps: Descent, deltas: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """With the last layers, by their gradients at their outputs and by what came in."""
        steps.begin_step()
        for layer, (delta, value) in enumerate(zip(deltas, values, strict=True), self._depth - len(deltas) + 1):
            steps.add_product(f"fc{layer}.weight", delta, value)
            steps.add(f"fc{layer}.bias", delta.sum(1))

    def _entering(self, schedule: "_Schedule", step: int) -> Tensor:
        """Images of a step, shape ``(k, b, in)``."""
        batch = schedule.order[: int(schedule.active[step]), step, : int(schedule.width[step])]
        return self._images.index_select(0, batch.flatten()).view(*batch.shape, -1)

    @staticmethod
    def _first_outputs(stack: Mapping[str, Tensor], entering: Tensor) -> Tensor:
        """Of samples ``(k, b, in)`` of the first k rows, before any nonlinearity, shape ``(k, b, out)``."""
        weight, bias = (stack[name][: len(entering)] for name in (_WEIGHT, _BIAS))
        return torch.baddbmm(bias.unsqueeze(1), entering, weight.transpose(1, 2))

    def _backpropagate(
        self, stack: Mapping[str, Tensor], schedule: "_Schedule", step: int, outputs: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """From the first layer's outputs (k, b, out), which are used up, to gradients.

        Returns:
            Each layer's scaled gradient at its outputs, ``(k, b, out)``; what came into layers 2, …, ``(k, b, in)``.
        """
        active, width = outputs.shape[:2]
        weights = [stack[f"fc{layer}.weight"][:active] for layer in range(2, self._depth + 1)]
        values = []
        for layer, weight in enumerate(weights, 2):
            values.append(outputs.relu_())
            bias = stack[f"fc{layer}.bias"][:active].unsqueeze(1)
            outputs = torch.baddbmm(bias, values[-1], weight.transpose(1, 2))
        delta = self._error(outputs, self._labels[schedule.order[:active, step, :width]])  # (k, b, classes)
        delta = (delta * schedule.scale[:active, step, :width].unsqueeze(2)).to(self._dtype)
        deltas = [delta]
        for value, weight in zip(reversed(values), reversed(weights), strict=True):
            delta = torch.ops.aten.threshold_backward(torch.bmm(delta, weight), value, 0)
            deltas.append(delta)
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
        tensors = tensors_of(self._layout, rows.to(self._device, self._dtype))
        for part in places:  # one product for all models, for a model's outputs alone may be too few for a fast one
            outputs = product(self._taken(part), tensors[_WEIGHT].flatten(0, 1), tensors[_BIAS].flatten())
            values = outputs.view(len(part), len(rows), self._outputs).transpose(0, 1)
            for layer in range(2, self._depth + 1):
                further = zip(values.relu_(), tensors[f"fc{layer}.weight"], tensors[f"fc{layer}.bias"], strict=True)
                values = torch.stack([product(*each) for each in further])
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

    def steps_between(self, begin: int, end: int) -> list[int]:
        """How many of these steps each row takes that takes the first of them."""
        rows = np.arange(self.active[begin])
        return [int(count) for count in np.count_nonzero(rows[:, None] < self.active[begin:end], axis=1)]
