"""What each client of the demo runs, as a user would: ``dag-acfl client run demo_client.py --set site=3``.

The digits of a site are turned by one of four angles. Every label is everywhere, so what tells the clusters apart is
the first layer, and models are compared by all of them.
"""

from typing import Final

import torch

from fl_client.training import TorchTrainer
from fl_simulator.data.rotated import ClientData, rotated_digits
from fl_simulator.models.catalogue import MODELS
from fl_simulator.models.classifiers import classifier

ANGLES: Final = (0, 90, 180, 270)
"""One for each cluster; site i has number ``i % 4``."""
EPOCHS: Final = 3
"""E and E′."""
BATCH_SIZE: Final = 10
LEARNING_RATE: Final = 0.2
TRAIN_PER_SITE: Final = 25
"""Few, so that a site alone stays below what its cluster of four can reach, however long it trains."""


def sites(count: int, seed: int) -> list[ClientData]:
    """Each site's data."""
    return rotated_digits(num_clients=count, rotations=ANGLES, train_per_client=TRAIN_PER_SITE, seed=seed)


def trainer(site: int = 0, count: int = 16, seed: int = 0) -> TorchTrainer:
    """One of ``count`` sites; ``seed`` decides who has which digits."""
    data = sites(count, seed)[site]
    torch.set_num_threads(1)  # with so small a model two threads mostly wait for each other
    torch.manual_seed(seed)  # the first model is site 0's
    return TorchTrainer(
        classifier(MODELS["digits-mlp"], data.train_x.shape[1:]),
        (data.train_x, data.train_y),
        test_data=(data.test_x, data.test_y),
        learning_rate=LEARNING_RATE,
        batch_size=BATCH_SIZE,
        seed=seed * count + site,
    )
