"""The model, the data of a partition, training and testing."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fl_simulator.data.rotated import rotated_digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.bn1 = nn.BatchNorm1d(32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.bn1(self.fc1(x.flatten(1)))))


def load_data(partition_id, num_partitions):
    """Digits: those of odd partitions lie on their side."""
    mine = rotated_digits(num_clients=num_partitions, rotations=(0, 90), train_per_client=80, test_per_client=60)
    data = mine[partition_id]
    train = TensorDataset(torch.tensor(data.train_x), torch.tensor(data.train_y))
    test = TensorDataset(torch.tensor(data.test_x), torch.tensor(data.test_y))
    return DataLoader(train, batch_size=16, shuffle=True), DataLoader(test, batch_size=64)


def train(net, loader, epochs, lr):
    """Train; returns the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / epochs / len(loader)


def test(net, loader):
    """Mean loss and accuracy."""
    net.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            outputs = net(images)
            loss += nn.functional.cross_entropy(outputs, labels, reduction="sum").item()
            correct += (outputs.argmax(1) == labels).sum().item()
    return loss / len(loader.dataset), correct / len(loader.dataset)
