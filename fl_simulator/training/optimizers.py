"""From gradients to steps, for a stack of rows at once: plain SGD, SGD with momentum, AdamW.

* A fully connected layer's gradient is a product of what came in and of what its outputs shall change by. It is handed
  over as these two factors: plain SGD adds their product to the weights, momentum to the velocities, and only AdamW,
  which squares gradients, ever stores one.
* AdamW has five values at hand for each weight. So it goes over the weights in blocks that stay in a core's
  second-level cache from the product to the last of its reads; momentum, with two, is faster by whole products.
* FedProx's term is added to each gradient, before momentum or moments see it, as a PyTorch program would.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from fl_simulator.training.recipe import Recipe

_BLOCK_VALUES: Final = 1 << 16
"""Weights of a block on a processor: 256 KiB of float32, of which AdamW has five at hand."""
_BETA_1: Final = 0.9
_BETA_2: Final = 0.999
_EPSILON: Final = 1e-8

Stack = Mapping[str, Tensor]
"""Tensors of K rows by name, each ``(K, *shape)``."""


class StackedOptimizer(ABC):
    """What becomes of gradients; its state begins with it, and it steps with all rows or with the first of them."""

    def __init__(self, recipe: Recipe, stack: Stack, *, proximal: float, received: Stack | None) -> None:
        self._recipe, self._stack, self._proximal, self._received = recipe, stack, proximal, received

    @property
    def scale(self) -> float:
        """What gradients are multiplied by before they are handed over: -η, where they are added to the weights."""
        return -self._recipe.learning_rate

    @abstractmethod
    def begin_step(self) -> None:
        """The next gradients are of a new step."""

    @abstractmethod
    def add(self, name: str, gradient: Tensor) -> None:
        """Step with the scaled gradient of a tensor, shape ``(k, *shape)``: that of the first k rows."""

    @abstractmethod
    def add_product(self, name: str, delta: Tensor, entering: Tensor) -> None:
        """Step with a weight's scaled gradient, deltaᵀ entering.

        Args:
            name: Of a weight ``(K, out, in)``.
            delta: Of b samples, shape ``(k, b, out)``.
            entering: Shape ``(k, b, in)``.
        """


class PlainDescent(StackedOptimizer):
    """w ← w - η g (DAG-ACFL, Alg. 1, line 24): nothing is kept, and no gradient is stored."""

    def begin_step(self) -> None:
        """Nothing to do."""

    def add(self, name: str, gradient: Tensor) -> None:
        self._pulled(name, len(gradient)).add_(gradient)

    def add_product(self, name: str, delta: Tensor, entering: Tensor) -> None:
        weight = self._pulled(name, len(delta))
        rows, outputs, inputs = weight.shape
        blocks = max(1, outputs * inputs // _BLOCK_VALUES)
        if rows > 1 or outputs % blocks:
            weight.baddbmm_(delta.transpose(1, 2), entering)
            return
        # of one large weight a block of outputs at a time: twice as fast as its whole product
        deltas = delta[0].view(-1, blocks, outputs // blocks).permute(1, 2, 0)  # (blocks, out / blocks, b)
        weight[0].view(blocks, outputs // blocks, inputs).baddbmm_(deltas, entering.expand(blocks, -1, -1))

    def _pulled(self, name: str, rows: int) -> Tensor:
        """The first rows' weights, w - η µ (w - w0): what is left of the step is the gradient at w."""
        weight = self._stack[name][:rows]
        if self._received is not None:
            weight.lerp_(self._received[name][:rows], self._recipe.learning_rate * self._proximal)
        return weight


class MomentumSgd(StackedOptimizer):
    """v ← m v + g, w ← w - η v, as ``torch.optim.SGD`` has it; what is kept is -η v."""

    def __init__(self, recipe: Recipe, stack: Stack, *, proximal: float, received: Stack | None) -> None:
        super().__init__(recipe, stack, proximal=proximal, received=received)
        self._velocity = {name: torch.empty_like(tensor, requires_grad=False) for name, tensor in stack.items()}
        self._kept, self._begun = 0.0, False

    def begin_step(self) -> None:
        """Of the velocity m is kept, and nothing before the first step."""
        self._kept = self._recipe.momentum if self._begun else 0.0
        self._begun = True

    def add(self, name: str, gradient: Tensor) -> None:
        velocity = self._velocity[name][: len(gradient)]
        if self._kept:
            velocity.mul_(self._kept).add_(gradient)
        else:
            velocity.copy_(gradient)
        self._move(name, velocity)

    def add_product(self, name: str, delta: Tensor, entering: Tensor) -> None:
        velocity = self._velocity[name][: len(delta)]
        velocity.baddbmm_(delta.transpose(1, 2), entering, beta=self._kept)
        self._move(name, velocity)

    def _move(self, name: str, velocity: Tensor) -> None:
        weight = self._stack[name][: len(velocity)]
        if self._received is not None:
            velocity.add_(weight - self._received[name][: len(velocity)], alpha=self.scale * self._proximal)
        weight.add_(velocity)


class AdamWDescent(StackedOptimizer):
    """Adam with decoupled weight decay, as ``torch.optim.AdamW`` has it."""

    def __init__(self, recipe: Recipe, stack: Stack, *, proximal: float, received: Stack | None) -> None:
        super().__init__(recipe, stack, proximal=proximal, received=received)
        self._first = {name: torch.zeros_like(tensor, requires_grad=False) for name, tensor in stack.items()}
        self._second = {name: torch.zeros_like(tensor, requires_grad=False) for name, tensor in stack.items()}
        self._steps = 0

    @property
    def scale(self) -> float:
        """1."""
        return 1.0

    def begin_step(self) -> None:
        """Count it: the first moments are too small, and corrected for that."""
        self._steps += 1

    def add(self, name: str, gradient: Tensor) -> None:
        self._move(name, gradient, slice(len(gradient)), slice(None))

    def add_product(self, name: str, delta: Tensor, entering: Tensor) -> None:
        for rows, outputs in self._blocks(self._stack[name][: len(delta)]):
            self._move(name, torch.bmm(delta[rows, :, outputs].transpose(1, 2), entering[rows]), rows, outputs)

    def _move(self, name: str, gradient: Tensor, rows: slice, part: slice) -> None:
        """The gradient's memory is used up."""
        weight, first, second = (each[name][rows, part] for each in (self._stack, self._first, self._second))
        rate = self._recipe.learning_rate
        if self._received is not None:
            gradient = gradient + self._proximal * (weight - self._received[name][rows, part])
        first.lerp_(gradient, 1 - _BETA_1)
        second.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
        root = torch.sqrt(second, out=gradient)
        root.div_(math.sqrt(1 - _BETA_2**self._steps)).add_(_EPSILON)
        weight.mul_(1 - rate * self._recipe.weight_decay)
        weight.addcdiv_(first, root, value=-rate / (1 - _BETA_1**self._steps))

    def _blocks(self, weight: Tensor) -> Iterator[tuple[slice, slice]]:
        """Rows and outputs of each block of a weight ``(k, out, in)``."""
        rows, outputs, inputs = weight.shape
        if weight.device.type != "cpu":
            yield slice(rows), slice(outputs)
        elif outputs * inputs <= _BLOCK_VALUES:
            several = _BLOCK_VALUES // (outputs * inputs)
            for low in range(0, rows, several):
                yield slice(low, min(low + several, rows)), slice(outputs)
        else:
            parts = -(-outputs * inputs // _BLOCK_VALUES)
            several = -(-outputs // parts)
            for row in range(rows):
                for low in range(0, outputs, several):
                    yield slice(row, row + 1), slice(low, low + several)


def stacked_optimizer(
    recipe: Recipe, stack: Stack, *, proximal: float = 0.0, received: Stack | None = None
) -> StackedOptimizer:
    """The recipe's optimiser for these rows, with nothing behind it.

    Args:
        recipe: How it steps.
        stack: Stepped in place.
        proximal: µ.
        received: w0 of the proximal term, a tensor for each of the stack; None: there is no such term.
    """
    if recipe.optimizer == "adamw":
        return AdamWDescent(recipe, stack, proximal=proximal, received=received)
    return (MomentumSgd if recipe.momentum else PlainDescent)(recipe, stack, proximal=proximal, received=received)
