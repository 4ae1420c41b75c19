"""Federated LoRA in one file: the base is frozen and never travels, the adapters are all that does.

Run: ``dag-acfl ledger init --name lora --client lora_client.py``, serve, ``dag-acfl client run lora_client.py``; then
``dag-acfl client export lora_client.py --client lora_client.py`` writes base and adapters into one file.
"""

import torch
from torch import nn

from fl_client.training import TorchTrainer, Trainer
from fl_simulator.data.rotated import rotated_digits


class Lora(nn.Module):
    """A layer that is frozen, and beside it a product of two thin matrices that is trained."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.base(inputs) + inputs @ self.lora_a.T @ self.lora_b.T


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)  # the base must be the same everywhere: load your pre-trained one instead
        self.fc1, self.fc2 = Lora(nn.Linear(64, 32)), Lora(nn.Linear(32, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(images.flatten(1))))


def trainer(site: int = 0) -> Trainer:
    data = rotated_digits(train_per_client=25)[site]
    test = data.test_x, data.test_y
    return TorchTrainer(Model(), (data.train_x, data.train_y), test_data=test, learning_rate=0.2, seed=site)
