"""A stack's first layer under SGD, which changes once in a window of T steps and answers as if it had at each.

With X_s the inputs of step s, (b, in), and D_s -η times the loss's gradient at the layer's outputs, (b, out), the
weights before step t of the window are, m being the momentum,

    W_t = W_0 + Σ_{s<t} a(t-s) D_sᵀ X_s,    a(n) = 1 + m + … + m^(n-1),

if no velocity came into the window: with momentum a training is one window, and plain SGD (m = 0, a = 1) has as many as
it likes. So the layer's outputs need products of inputs with inputs, but not W_t:

    X_t W_tᵀ = X_t W_0ᵀ + Σ_{s<t} a(t-s) (X_t X_sᵀ) D_s.

The weights are read once and written once in a window, by products of T b rows. The first layer alone can do so: its
inputs do not depend on weights, and nobody asks for its gradient at them. The bias is the weight of an input that is
always 1, which adds 1 to X_t X_sᵀ. All of it is algebra: the sequential steps' result, rounded elsewhere.

What it costs are the products of inputs, which is why it does not pay for a layer with few outputs.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from fl_simulator.training.products import product
from fl_simulator.training.recipe import Recipe

_MOST_SAMPLES: Final = 128
_LEAST_STEPS: Final = 3
_LEAST_OUTPUTS: Final = 64
_LEAST_WEIGHTS: Final = 1 << 16


def window_steps(recipe: Recipe, num_steps: int, *, inputs: int, outputs: int) -> int:
    """How many steps a window has, as even as they can be; 0: the layer had better change at each.

    From 80 samples on a product has a processor's full speed, and X Xᵀ costs the more the more there are.

    Args:
        recipe: Batch size and optimiser; AdamW's steps are no sums of products.
        num_steps: Of the training.
        inputs: Of the layer.
        outputs: Of the layer.
    """
    if recipe.optimizer != "sgd" or outputs < _LEAST_OUTPUTS or inputs * outputs < _LEAST_WEIGHTS:
        return 0
    most = min(_MOST_SAMPLES, 64 + outputs // 4) // recipe.batch_size
    if min(most, num_steps) < _LEAST_STEPS or (recipe.momentum and num_steps > most):
        return 0
    windows = -(-num_steps // most)
    return -(-num_steps // windows)


def window_values(samples: int, *, inputs: int, outputs: int) -> int:
    """What a row of a ``PostponedLayer`` keeps beside its weights."""
    return samples * (inputs + 2 * outputs + samples)


class PostponedLayer:
    """The first layers of K rows; the rows of a window are the first of them.

    Args:
        weight: ``(K, out, in)``, changed in place when a window ends.
        bias: ``(K, out)``, likewise.
        momentum: m; unless it is 0, there is one window.
        samples: T b of the longest window.
    """

    def __init__(self, weight: Tensor, bias: Tensor, *, momentum: float, samples: int) -> None:
        self._weight, self._bias, self._momentum = weight, bias, momentum
        rows, outputs, inputs = weight.shape
        self._inputs, self._outputs, self._deltas, self._products = (
            torch.empty(rows, samples, width, dtype=weight.dtype) for width in (inputs, outputs, outputs, samples)
        )

    def begin(self, images: Tensor, batches: Tensor, steps: Sequence[int]) -> None:
        """Begin a window.

        Args:
            images: Shape ``(N, in)``.
            batches: Which of them each row takes at each step, shape ``(k, T, b)``.
            steps: How many of the T each row takes, shape ``(k,)``, at least 1, the most first.
        """
        num_steps, self._batch = batches.shape[1:]
        self._steps, self._done = steps, 0
        if self._momentum:
            step = torch.arange(num_steps).repeat_interleave(self._batch)
            factors = self._sums(step[self._batch :, None] - step[: -self._batch])  # a(t - s)
        samples = num_steps * self._batch
        for row, places in enumerate(batches.flatten(1)):  # one after the other, so that they stay in the cache
            inputs = self._inputs[row, :samples]
            torch.index_select(images, 0, places, out=inputs)
            self._outputs[row, :samples] = product(inputs, self._weight[row], self._bias[row])
            earlier = self._products[row, self._batch : samples, : samples - self._batch]
            torch.add(product(inputs[self._batch :], inputs[: -self._batch]), 1, out=earlier)
            if self._momentum:
                earlier *= factors

    def outputs(self, rows: int) -> Tensor:
        """What the first rows' layers answer at this step, before any nonlinearity, shape ``(rows, b, out)``."""
        low = self._done * self._batch
        here = slice(low, low + self._batch)
        if not low:
            return self._outputs[:rows, here].clone()
        return torch.baddbmm(self._outputs[:rows, here], self._products[:rows, here, :low], self._deltas[:rows, :low])

    def step(self, delta: Tensor) -> None:
        """Take the step: -η times the loss's gradient at these outputs, shape ``(rows, b, out)``."""
        low = self._done * self._batch
        self._deltas[: len(delta), low : low + self._batch] = delta
        self._done += 1

    def end(self) -> None:
        """Change the weights."""
        for row, steps in enumerate(self._steps):
            inputs, deltas = (each[row, : steps * self._batch] for each in (self._inputs, self._deltas))
            if self._momentum:
                deltas = deltas * self._sums(torch.arange(steps, 0, -1).repeat_interleave(self._batch)[:, None])
            self._weight[row] += product(deltas.T, inputs.T)
            self._bias[row] += deltas.sum(0)

    def _sums(self, counts: Tensor) -> Tensor:
        """a(n) of each n; of those below 0, which nobody asks for, anything."""
        sums = (1 - self._momentum ** counts.clamp(min=0).double()) / (1 - self._momentum)
        return sums.to(self._weight.dtype)
