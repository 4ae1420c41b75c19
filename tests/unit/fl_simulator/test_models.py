"""The papers' models have the sizes that the papers' setting implies."""

import pytest
import torch
from torch import nn

from fl_simulator.models import CifarCnn, LogisticRegression, MnistCnn, digits_mlp, mnist_mlp


@pytest.mark.parametrize(
    ("model", "image", "parameters"),
    [
        pytest.param(digits_mlp(), (8, 8), 64 * 32 + 32 + 32 * 10 + 10, id="digits"),
        pytest.param(LogisticRegression(), (28, 28), 7_850, id="lr"),
        pytest.param(mnist_mlp(), (28, 28), 101_770, id="mlp"),
        pytest.param(MnistCnn(), (28, 28), 3_260_266, id="mnist-cnn"),
        pytest.param(CifarCnn(), (3, 32, 32), 2_156_490, id="cifar-cnn"),
    ],
)
def test_a_model_has_its_size_and_gives_ten_logits(model: nn.Module, image: tuple[int, ...], parameters: int) -> None:
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model(torch.zeros(3, *image)).shape == (3, 10)


def test_the_last_layers_have_the_names_that_a_genesis_compares() -> None:
    assert {"fc2.weight", "fc2.bias"} <= digits_mlp().state_dict().keys()
    assert {"fc1.weight", "fc2.weight"} <= MnistCnn().state_dict().keys() & CifarCnn().state_dict().keys()
