"""Which trainer fits which model; needs torch, so ``build_trainer`` loads it when it is called."""

from collections.abc import Callable
from typing import Final

import torch
from torch import nn

from fl_simulator.errors import ScenarioError
from fl_simulator.models.catalogue import ConvolutionalModel, DenseModel
from fl_simulator.models.classifiers import Cnn, Mlp
from fl_simulator.training.common import Common
from fl_simulator.training.convolutional import ConvolutionalTrainer
from fl_simulator.training.dense import DenseTrainer
from fl_simulator.training.protocol import Trainer
from fl_simulator.training.sequential import SequentialTrainer

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def device_named(name: str) -> str:
    """``cpu`` or ``cuda``.

    Raises:
        ScenarioError: A GPU is asked for and torch finds none.
    """
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ScenarioError("device: 'cuda' was asked for, but torch finds no GPU here; say 'cpu' or 'auto'")
    return ("cuda" if has_gpu else "cpu") if name == "auto" else name


def sequential(model: DenseModel | ConvolutionalModel, classes: int, common: Common) -> Trainer:
    """An ordinary PyTorch loop.

    Raises:
        ScenarioError: The images do not fit the model.
    """
    return SequentialTrainer(_factory(model, classes, common), common)


def batched(model: DenseModel | ConvolutionalModel, classes: int, common: Common, *, workers: int) -> Trainer:
    """The fast trainer of this model.

    Raises:
        ScenarioError: The images do not fit the model.
    """
    if isinstance(model, ConvolutionalModel):
        _check_images(model, common)
        return ConvolutionalTrainer(model, classes, common, workers=workers)
    return DenseTrainer(_sizes(model, classes, common), common, workers=workers)


def _factory(model: DenseModel | ConvolutionalModel, classes: int, common: Common) -> Callable[[], nn.Module]:
    if isinstance(model, ConvolutionalModel):
        _check_images(model, common)
        return lambda: Cnn(model, classes)
    sizes = _sizes(model, classes, common)
    return lambda: Mlp(*sizes)


def _sizes(model: DenseModel, classes: int, common: Common) -> tuple[int, ...]:
    return int(common.images[0].size), *model.hidden, classes


def _check_images(model: ConvolutionalModel, common: Common) -> None:
    found = common.images.shape[1:]
    if found != model.image:
        raise ScenarioError(f"model: {model.name!r} is for images of shape {model.image}; the data set's are {found}")
