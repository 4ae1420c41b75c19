"""The model, the data of a partition, training and testing."""

from collections import OrderedDict

import torch
from torch import nn

from fl_simulator.data.rotated import rotated_digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        return self.layers(x.flatten(1))


def get_weights(net):
    return [value.cpu().numpy() for value in net.state_dict().values()]


def set_weights(net, parameters):
    pairs = zip(net.state_dict().keys(), parameters)
    net.load_state_dict(OrderedDict({name: torch.tensor(value) for name, value in pairs}), strict=True)


def load_data(partition_id, num_partitions):
    """Digits: those of odd partitions lie on their side."""
    mine = rotated_digits(num_clients=num_partitions, rotations=(0, 90), train_per_client=80, test_per_client=60)
    data = mine[partition_id]
    train = list(zip(torch.tensor(data.train_x).split(16), torch.tensor(data.train_y).split(16)))
    return train, (torch.tensor(data.test_x), torch.tensor(data.test_y))


def train(net, batches, epochs, lr):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    for _ in range(epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
    return loss.item()


def test(net, images, labels):
    net.eval()
    with torch.no_grad():
        outputs = net(images)
    loss = nn.functional.cross_entropy(outputs, labels).item()
    return loss, (outputs.argmax(1) == labels).float().mean().item()
