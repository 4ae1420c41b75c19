"""A LightningModule and Lightning's own loop: ``dag-acfl try lightning_client.py --sites 4``."""

import logging

import lightning
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader

from fl_client.training import LoopTrainer, Trainer
from fl_simulator.data.rotated import rotated_digits


class Digits(lightning.LightningModule):  # as it was
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def test_step(self, batch: list[Tensor]) -> None:
        self.log("accuracy", (self.layers(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> optim.Optimizer:
        return optim.SGD(self.parameters(), lr=0.2)


def trainer(site: int = 0) -> Trainer:
    data = rotated_digits(rotations=(0, 90), train_per_client=40)[site]  # yours
    train, test = [*zip(data.train_x, data.train_y, strict=True)], [*zip(data.test_x, data.test_y, strict=True)]
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # it greets at each training

    def fit(model: Digits, epochs: int) -> None:
        lightning.Trainer(max_epochs=epochs, **quiet).fit(model, DataLoader(train, batch_size=10, shuffle=True))

    def measure(model: Digits) -> dict[str, float]:
        return lightning.Trainer(**quiet).test(model, DataLoader(test, batch_size=50), verbose=False)[0]

    return LoopTrainer(Digits(), fit, measure, num_examples=len(train), seed=site)
