"""The papers' models; needs torch."""

from fl_simulator.models.classifiers import (
    CifarCnn,
    LogisticRegression,
    Mlp,
    MnistCnn,
    digits_mlp,
    mnist_mlp,
)

__all__ = ["CifarCnn", "LogisticRegression", "Mlp", "MnistCnn", "digits_mlp", "mnist_mlp"]
