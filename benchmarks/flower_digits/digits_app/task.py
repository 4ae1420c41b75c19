"""The model and the data of a partition."""

from functools import cache

import numpy as np
import torch
from torch import nn

from fl_simulator.data.digits import load_digits

TRAIN, TEST = 80, 40
"""Samples of each client, drawn from two thirds of the digits and from the rest."""


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@cache
def load_data(partition: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images and labels to train on, and to test on."""
    images, labels = load_digits()
    if partition % 2:
        labels = 9 - labels
    rng = np.random.default_rng(partition)
    of_test = np.arange(len(labels)) % 3 == 0
    train = rng.choice(np.flatnonzero(~of_test), TRAIN, replace=False)
    test = rng.choice(np.flatnonzero(of_test), TEST, replace=False)
    x, y = torch.tensor(images).flatten(1), torch.tensor(labels)
    return x[train], y[train], x[test], y[test]
