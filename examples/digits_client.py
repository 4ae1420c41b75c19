"""A federated client in one file: your model, your data, and a function ``trainer`` that joins them.

    dag-acfl try digits_client.py --sites 4

Both ``dag-acfl try`` and ``dag-acfl client run`` import this file and call ``trainer()``; the first says which site it
is, to the second you say it: ``--set site=3``. Each ``--set key=value`` becomes a keyword argument (numbers and
true/false are converted). What is returned is trained: a ``TorchTrainer``, or your own class with the methods of
``fl_client.training.Trainer``. All sites must have the same model.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fl_client.training import TorchTrainer, Trainer
from fl_simulator.data.rotated import rotated_digits


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc2(torch.relu(self.fc1(images.flatten(1))))
        return logits


def trainer(
    site: int = 0, batch_size: int = 10, learning_rate: float = 0.2, loss: str = "cross-entropy", beta: float = 0.95
) -> Trainer:
    """Odd sites see digits on their side; site 40 is site 0 again. Replace the next four lines by your own data."""
    mine = rotated_digits(
        num_clients=40, rotations=(0, 90), train_per_client=40, test_per_client=150, common_test=True
    )[site % 40]
    train = TensorDataset(torch.from_numpy(mine.train_x), torch.from_numpy(mine.train_y))
    test = TensorDataset(torch.from_numpy(mine.test_x), torch.from_numpy(mine.test_y))
    batches = DataLoader(train, batch_size=batch_size, shuffle=True)
    tests = DataLoader(test, batch_size=256)
    return TorchTrainer(Model(), batches, test_data=tests, learning_rate=learning_rate, loss=loss, beta=beta, seed=site)
