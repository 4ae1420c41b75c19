"""The papers' models. Importing this package does not import torch; asking for one of its classes does."""

from typing import TYPE_CHECKING, Any

from fl_client.training.errors import TorchMissingError
from fl_simulator.models.catalogue import MODELS, Convolution, ConvolutionalModel, DenseModel

if TYPE_CHECKING:
    from fl_simulator.models.classifiers import (
        CifarCnn,
        FashionCnn,
        GnLeNet,
        LogisticRegression,
        Mlp,
        MnistCnn,
        digits_mlp,
        mnist_mlp,
    )

__all__ = [
    "MODELS",
    "CifarCnn",
    "Convolution",
    "ConvolutionalModel",
    "DenseModel",
    "FashionCnn",
    "GnLeNet",
    "LogisticRegression",
    "Mlp",
    "MnistCnn",
    "digits_mlp",
    "mnist_mlp",
]

_NEEDS_TORCH = frozenset(
    {"CifarCnn", "FashionCnn", "GnLeNet", "LogisticRegression", "Mlp", "MnistCnn", "digits_mlp", "mnist_mlp"}
)


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from fl_simulator.models import classifiers  # noqa: PLC0415 (torch is loaded when it is asked for)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TorchMissingError("the models need PyTorch: pip install 'dag-acfl[torch]'") from error
    return getattr(classifiers, name)
