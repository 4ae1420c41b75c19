"""Which trainer fits which model; needs torch, so ``build_trainer`` loads it when it is called."""

import math
from typing import Final

import torch

from fl_simulator.errors import ScenarioError
from fl_simulator.models.catalogue import Architecture
from fl_simulator.training.base import Common
from fl_simulator.training.convolutional import ConvolutionalTrainer
from fl_simulator.training.dense import DenseTrainer
from fl_simulator.training.protocol import Trainer

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def device_named(name: str) -> str:
    """``cpu`` or ``cuda``."""
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ScenarioError("device: 'cuda' was asked for, but torch finds no GPU here; say 'cpu' or 'auto'")
    return ("cuda" if has_gpu else "cpu") if name == "auto" else name


def trainer_of(model: Architecture, classes: int, common: Common, *, workers: int) -> Trainer:
    """The trainer of this model."""
    image = common.images.shape[1:]
    if model.convolutions and image != model.image:
        raise ScenarioError(f"model: {model.name!r} is for images of shape {model.image}; the data set's are {image}")
    if model.convolutions:
        return ConvolutionalTrainer(model, classes, common, workers=workers)
    return DenseTrainer((math.prod(image), *model.hidden, classes), common, workers=workers)
