"""The classifiers of the demo and of the papers' experiments, as ``catalogue`` describes them.

===================  ============================================================  ==========
model                layers                                                        parameters
===================  ============================================================  ==========
``digits-mlp``       64-32-10                                                           2,410
``lr``               784-10                                                             7,850
``gn-lenet``         3 x (conv 5x5, 32, 32, 64 filters, 2 groups, ReLU, pool 3), 10    85,354
``mlp``              784-128-10                                                       101,770
``mlp-512-256-128``  784-512-256-128-10                                               567,434
``fashion-cnn``      conv 3x3, 32 and 64 filters, ReLU, pool 2, 128-10              1,199,882
``cifar-cnn``        2 x (conv 5x5, 32 and 64 filters, ReLU, pool 2), 512-10        2,156,490
``mnist-cnn``        2 x (conv 5x5, 32 filters, ReLU, pool 2), 2048-10              3,260,266
===================  ============================================================  ==========

DAG-ACFL (Sec. IV-A) does not say how its convolutions are padded; here they keep the image's size ('same').
DecDiff's CNN for Fashion-MNIST and EMNIST (Table I) has no padding: its first fully connected layer takes 9216 values.
D-Cliques' group-normalised LeNet is that of Hsieh et al. (ICML 2020), its convolutions padded to the image's size. It
pools overlapping squares (3 x 3, stride 2), as D-Cliques' program does, which normalises first after its first pooling.
All models take images ``(n, height, width)`` or ``(n, channels, height, width)``, float32, and give logits
``(n, classes)``.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from fl_simulator.models.catalogue import Architecture


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


class Cnn(nn.Module):
    """Convolutions (``conv1`` …, with ``conv1_norm`` …) and fully connected layers (``fc1`` …)."""

    def __init__(self, model: Architecture, classes: int = 10) -> None:
        super().__init__()
        self._model = model
        channels = model.num_channels
        for number, layer in enumerate(model.convolutions, 1):
            self.add_module(f"conv{number}", nn.Conv2d(channels, layer.filters, layer.side, padding=layer.padding))
            if layer.groups:
                self.add_module(f"conv{number}_norm", nn.GroupNorm(layer.groups, layer.filters))
            channels = layer.filters
        self._sizes = model.num_features, *model.hidden, classes
        for number, (inputs, outputs) in enumerate(pairwise(self._sizes), 1):
            self.add_module(f"fc{number}", nn.Linear(inputs, outputs))

    def forward(self, images: Tensor) -> Tensor:
        values = images.reshape(len(images), self._model.num_channels, *images.shape[-2:])
        for number, layer in enumerate(self._model.convolutions, 1):
            values = self.get_submodule(f"conv{number}")(values)
            if layer.groups:
                values = self.get_submodule(f"conv{number}_norm")(values)
            values = functional.relu(values)
            if layer.pool:
                values = functional.max_pool2d(values, layer.pool, stride=2)
        values = values.flatten(1)
        for number in range(1, len(self._sizes) - 1):
            values = functional.relu(self.get_submodule(f"fc{number}")(values))
        logits: Tensor = self.get_submodule(f"fc{len(self._sizes) - 1}")(values)
        return logits


def classifier(model: Architecture, image: Sequence[int], classes: int = 10) -> nn.Module:
    if model.convolutions:
        return Cnn(model, classes)
    return Mlp(math.prod(image), *model.hidden, classes)
