"""Trains a ``torch.nn.Module`` by a loop of the user's own: her functions, Lightning, Hugging Face, what she has."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fl_client.training.errors import TrainerFailedError
from fl_client.training.module import ModuleTrainer, Share
from fl_client.training.protocol import Arrays, Hints, TrainingResult

Train: TypeAlias = Callable[[Any, int], Mapping[str, Any] | None]
"""Trains the module in place for so many epochs, and gives its figures by name, if it has any."""

Test: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""The module's figures on the local test data, by name."""


class LoopTrainer(ModuleTrainer):
    """A module, and the functions that train and test it; meets ``Trainer``.

    Args:
        model: The module that both functions are given, always the same one; ``initial_arrays`` are its values now.
        train: Called as ``train(model, epochs)``: trains it in place.
        test: Called as ``test(model)`` with the module in evaluation mode, without gradients; ``accuracy`` and
            ``loss`` mean to others what they say. None: ``evaluate`` measures nothing.
        num_examples: Training samples of one epoch: the model's weight in a ledger that weighs by examples.
        seed: Of what ``train`` draws from torch's own generators.
        share: Which tensors travel; None: all but frozen ones. The others are trained with them and stay here.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Train,
        test: Test | None = None,
        *,
        num_examples: int,
        seed: int = 0,
        share: Share | None = None,
    ) -> None:
        super().__init__(model, seed=seed, share=share)
        self._loop, self._test, self._num_examples = train, test, num_examples

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        """Train from ``arrays`` by the user's loop.

        Raises:
            ModelLayoutError, ParameterError: As ``TorchTrainer``.
            TrainerFailedError: The loop returned something else than figures by name.
        """
        with self._training(arrays, epochs, hints or {}):
            figures: object = self._loop(self._model, epochs)
        return TrainingResult(self._arrays(), self._num_examples, _by_name("train", figures))

    def evaluate(self, arrays: Arrays) -> dict[str, Any]:
        """What the user's test measures of ``arrays``.

        Raises:
            ModelLayoutError: The arrays are not those of the module; the message names the tensor.
            TrainerFailedError: It returned something else than figures by name.
        """
        model = self.model_with(arrays)
        if self._test is None:
            return {}
        with torch.no_grad():
            return _by_name("test", self._test(model))


def _by_name(what: str, figures: object) -> dict[str, Any]:
    if figures is None:
        figures = {}
    if not isinstance(figures, Mapping):
        raise TrainerFailedError(
            f"the loop's {what}() returned {type(figures).__name__}, not figures by name, such as {{'loss': 0.5}}"
        )
    return {name: value.detach() if isinstance(value, Tensor) else value for name, value in figures.items()}
