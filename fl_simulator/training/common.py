"""What every trainer on this machine is told, whichever model it trains and however."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fl_simulator.seeds import Seeds
from fl_simulator.training.recipe import Initialisation, Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """Whose images, how to train on them, and where.

    Attributes:
        images: The population's, shape ``(N, height, width)`` or ``(N, channels, height, width)``, float32.
        labels: Theirs, shape ``(N,)``, int64.
        recipe: Batches, steps and loss.
        seeds: Decide the order of batches.
        device: Where torch computes.
        dtype: Of weights and activations while it computes; rows are float32 in any case. bfloat16 takes half the
            memory and rounds every weight to 8 bits, so that small updates are lost.
        init: How a new model's weights are drawn.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    recipe: Recipe
    seeds: Seeds
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    init: Initialisation = "pytorch"
