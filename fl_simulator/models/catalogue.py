"""The models that a scenario names: what is in them and what of them is compared. Never torch.

A model without convolutions takes its inputs' size from the population's images; one with them is made for one size.
"""

from dataclasses import dataclass
from typing import Final

from fl_core.registry import Registry


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution, ReLU, and what stands around them.

    Attributes:
        filters: Channels that come out.
        side: Of the kernel, a square.
        padding: Zeros around the image, on each side.
        pool: Side of the squares that max pooling at the end takes, with stride 2; 0: there is no pooling.
        groups: Of a group normalisation between convolution and ReLU; 0: there is none.
    """

    filters: int
    side: int
    padding: int = 0
    pool: int = 2
    groups: int = 0

    def size_after(self, size: int) -> int:
        """Side of the image that comes out of one of that side."""
        convolved = size + 2 * self.padding - self.side + 1
        return (convolved - self.pool) // 2 + 1 if self.pool else convolved


@dataclass(frozen=True, slots=True)
class Architecture:
    """Convolutions, if any, then fully connected layers: without hidden ones and convolutions, logistic regression.

    Attributes:
        name: What a scenario calls it.
        title: What the papers call it.
        hidden: Neurons of each hidden fully connected layer.
        image: Shape of the images that it is made for; of any shape where there are no convolutions.
        convolutions: The first layers.
        num_compared: Layers by which such models are compared, the last ones (DAG-ACFL, Sec. III-D).
    """

    name: str
    title: str
    hidden: tuple[int, ...]
    image: tuple[int, ...] = ()
    convolutions: tuple[Convolution, ...] = ()
    num_compared: int = 1

    @property
    def num_channels(self) -> int:
        """Of an image."""
        return 1 if len(self.image) == 2 else self.image[0]

    @property
    def num_features(self) -> int:
        """Values that the convolutions give to the fully connected layers."""
        size = self.image[-1]
        for convolution in self.convolutions:
            size = convolution.size_after(size)
        return self.convolutions[-1].filters * size**2

    @property
    def last_layers(self) -> tuple[str, ...]:
        """The tensors by which such models are compared."""
        depth = len(self.hidden) + 1
        layers = range(depth - self.num_compared + 1, depth + 1)
        return tuple(f"fc{layer}.{part}" for layer in layers for part in ("bias", "weight"))


MODELS: Final = Registry[Architecture](
    "model",
    {
        model.name: model
        for model in (
            Architecture("lr", "logistic regression", ()),
            Architecture("mlp", "MLP with one hidden layer of 128 neurons", (128,)),
            Architecture(
                "mlp-512-256-128", "MLP with hidden layers of 512, 256 and 128 neurons (DecDiff)", (512, 256, 128)
            ),
            Architecture("digits-mlp", "the demo's MLP with one hidden layer of 32 neurons", (32,)),
            # Compared by their last two layers (DAG-ACFL, Sec. IV-A).
            Architecture(
                "mnist-cnn", "CNN for MNIST", (2048,), (28, 28), (Convolution(32, 5, 2), Convolution(32, 5, 2)), 2
            ),
            Architecture(
                "cifar-cnn", "CNN for CIFAR-10", (512,), (3, 32, 32), (Convolution(32, 5, 2), Convolution(64, 5, 2)), 2
            ),
            Architecture(
                "fashion-cnn",
                "CNN for Fashion-MNIST and EMNIST (DecDiff, Table I)",
                (128,),
                (28, 28),
                (Convolution(32, 3, pool=0), Convolution(64, 3)),  # pooled once, after both
            ),
            Architecture(
                "gn-lenet",
                "LeNet with group normalisation for CIFAR-10 (D-Cliques)",
                (),
                (3, 32, 32),
                tuple(Convolution(filters, 5, 2, pool=3, groups=2) for filters in (32, 32, 64)),
            ),
        )
    },
)
"""Every model that a scenario may name."""
