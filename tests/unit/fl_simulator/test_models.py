"""The papers' models have the sizes that the papers' setting implies."""

import pytest
import torch
from torch import nn

from fl_simulator.models import (
    MODELS,
    CifarCnn,
    ConvolutionalModel,
    FashionCnn,
    GnLeNet,
    LogisticRegression,
    Mlp,
    MnistCnn,
    digits_mlp,
    mnist_mlp,
)


@pytest.mark.parametrize(
    ("model", "image", "parameters"),
    [
        pytest.param(digits_mlp(), (8, 8), 64 * 32 + 32 + 32 * 10 + 10, id="digits"),
        pytest.param(LogisticRegression(), (28, 28), 7_850, id="lr"),
        pytest.param(mnist_mlp(), (28, 28), 101_770, id="mlp"),
        pytest.param(MnistCnn(), (28, 28), 3_260_266, id="mnist-cnn"),
        pytest.param(CifarCnn(), (3, 32, 32), 2_156_490, id="cifar-cnn"),
        pytest.param(Mlp(784, 512, 256, 128, 10), (28, 28), 567_434, id="mlp-512-256-128"),
        pytest.param(FashionCnn(), (28, 28), 320 + 18_496 + 9216 * 128 + 128 + 1_290, id="fashion-cnn"),
        pytest.param(GnLeNet(), (3, 32, 32), 89_834, id="gn-lenet"),
    ],
)
def test_a_model_has_its_size_and_gives_ten_logits(model: nn.Module, image: tuple[int, ...], parameters: int) -> None:
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model(torch.zeros(3, *image)).shape == (3, 10)


def test_the_last_layers_have_the_names_that_a_genesis_compares() -> None:
    assert {"fc2.weight", "fc2.bias"} <= digits_mlp().state_dict().keys()
    assert {"fc1.weight", "fc2.weight"} <= MnistCnn().state_dict().keys() & CifarCnn().state_dict().keys()


@pytest.mark.parametrize(
    ("name", "features", "compared"),
    [
        ("mnist-cnn", 32 * 7 * 7, ("fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight")),
        ("cifar-cnn", 64 * 8 * 8, ("fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight")),
        ("fashion-cnn", 9216, ("fc2.bias", "fc2.weight")),
        ("gn-lenet", 64 * 4 * 4, ("fc1.bias", "fc1.weight")),
    ],
)
def test_convolutions_give_so_many_features_and_the_last_layers_are_compared(
    name: str, features: int, compared: tuple[str, ...]
) -> None:
    model = MODELS[name]
    assert isinstance(model, ConvolutionalModel)
    assert (model.num_features, model.last_layers) == (features, compared)


def test_the_group_norm_makes_a_filter_blind_to_scale() -> None:
    """Twice as bright an image with twice the bias is, to a group norm, the same image."""
    torch.manual_seed(0)
    model, image = GnLeNet(26), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        before = model(image)
        model.conv1.bias *= 2
        after = model(2 * image)
    assert before.shape == (2, 26)
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)
