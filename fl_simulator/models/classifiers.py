"""The classifiers of the demo and of DAG-ACFL's experiments (Sec. IV-A).

=======================  ============================================================  ==========
model                    layers                                                        parameters
=======================  ============================================================  ==========
``digits_mlp``           64-32-10                                                           2,410
``LogisticRegression``   784-10                                                             7,850
``mnist_mlp``            784-128-10                                                       101,770
``MnistCnn``             2 x (conv 5x5, 32 filters, ReLU, pool 2), 2048-10              3,260,266
``CifarCnn``             2 x (conv 5x5, 32 and 64 filters, ReLU, pool 2), 512-10        2,156,490
=======================  ============================================================  ==========

The paper does not say how its convolutions are padded; here they keep the image's size ('same').
All models take images ``(n, height, width)`` or ``(n, channels, height, width)``, float32, and give logits
``(n, 10)``.
"""

from torch import Tensor, nn
from torch.nn import functional


class Mlp(nn.Module):
    """A multi-layer perceptron on the flattened image, ReLU between its layers (``fc1`` … ``fcN``)."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self._depth = len(sizes) - 1
        for layer in range(self._depth):
            self.add_module(f"fc{layer + 1}", nn.Linear(sizes[layer], sizes[layer + 1]))

    def forward(self, images: Tensor) -> Tensor:
        values = images.flatten(1)
        for layer in range(1, self._depth):
            values = functional.relu(self.get_submodule(f"fc{layer}")(values))
        logits: Tensor = self.get_submodule(f"fc{self._depth}")(values)
        return logits


class LogisticRegression(Mlp):
    """One linear layer, ``fc1``: the paper's LR."""

    def __init__(self, inputs: int = 28 * 28, classes: int = 10) -> None:
        super().__init__(inputs, classes)


def digits_mlp() -> Mlp:
    """The demo's model: 64-32-10; its last layer is ``fc2``."""
    return Mlp(8 * 8, 32, 10)


def mnist_mlp() -> Mlp:
    """The paper's MLP: one hidden layer of 128 neurons."""
    return Mlp(28 * 28, 128, 10)


class _Cnn(nn.Module):
    """Two convolutions with ReLU and pooling, two fully connected layers."""

    def __init__(self, *, channels: int, side: int, filters: tuple[int, int], hidden: int) -> None:
        super().__init__()
        self._channels, self._side = channels, side
        self.conv1 = nn.Conv2d(channels, filters[0], 5, padding=2)
        self.conv2 = nn.Conv2d(filters[0], filters[1], 5, padding=2)
        self.fc1 = nn.Linear(filters[1] * (side // 4) ** 2, hidden)
        self.fc2 = nn.Linear(hidden, 10)

    def forward(self, images: Tensor) -> Tensor:
        values = images.reshape(-1, self._channels, self._side, self._side)
        values = functional.max_pool2d(functional.relu(self.conv1(values)), 2)  # (n, f0, side/2, side/2)
        values = functional.max_pool2d(functional.relu(self.conv2(values)), 2)  # (n, f1, side/4, side/4)
        logits: Tensor = self.fc2(functional.relu(self.fc1(values.flatten(1))))
        return logits


class MnistCnn(_Cnn):
    """The paper's CNN for MNIST; the paper compares its last two layers, ``fc1`` and ``fc2``."""

    def __init__(self) -> None:
        super().__init__(channels=1, side=28, filters=(32, 32), hidden=2048)


class CifarCnn(_Cnn):
    """The paper's CNN for CIFAR-10; the paper compares its last two layers, ``fc1`` and ``fc2``."""

    def __init__(self) -> None:
        super().__init__(channels=3, side=32, filters=(32, 64), hidden=512)
