"""From gradients to steps, for a stack of rows at once: plain SGD, SGD with momentum, AdamW.

* A fully connected layer's gradient is a product of what came in and of what its outputs shall change by. It is handed
  over as these two factors: plain SGD adds their product to the weights, momentum to the velocities, and only AdamW,
  which squares gradients, ever stores one.
* FedProx's term is added to each gradient, before momentum or moments see it, as a PyTorch program would.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from fl_simulator.training.recipe import Recipe

_BLOCK_VALUES: Final = 1 << 16
"""Weights of a block of one large weight on a processor: 256 KiB of float32."""
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
    """Adam with decoupled weight decay: PyTorch's own, which passes over a weight and its moments once.

    It goes by the order of values in memory and not by strides: each tensor of the stack lies in one piece.
    """

    def __init__(self, recipe: Recipe, stack: Stack, *, proximal: float, received: Stack | None) -> None:
        super().__init__(recipe, stack, proximal=proximal, received=received)
        self._first = {name: torch.zeros_like(tensor, requires_grad=False) for name, tensor in stack.items()}
        self._second = {name: torch.zeros_like(tensor, requires_grad=False) for name, tensor in stack.items()}
        self._steps = {name: torch.zeros((), device=tensor.device) for name, tensor in stack.items()}

    @property
    def scale(self) -> float:
        """1."""
        return 1.0

    def begin_step(self) -> None:
        """Nothing to do: PyTorch counts a tensor's steps."""

    def add(self, name: str, gradient: Tensor) -> None:
        kept = (self._stack, self._first, self._second)
        weight, first, second = (each[name][: len(gradient)] for each in kept)
        if self._received is not None:
            gradient = gradient + self._proximal * (weight - self._received[name][: len(gradient)])
        if gradient.stride() != weight.stride():  # it would be read in the order in which weights lie in memory
            gradient = torch.empty_like(weight).copy_(gradient)
        adamw(
            [weight],
            [gradient],
            [first],
            [second],
            [],
            [self._steps[name]],
            fused=True,
            amsgrad=False,
            beta1=_BETA_1,
            beta2=_BETA_2,
            lr=self._recipe.learning_rate,
            weight_decay=self._recipe.weight_decay,
            eps=_EPSILON,
            maximize=False,
        )

    def add_product(self, name: str, delta: Tensor, entering: Tensor) -> None:
        self.add(name, torch.bmm(delta.transpose(1, 2), entering))


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
