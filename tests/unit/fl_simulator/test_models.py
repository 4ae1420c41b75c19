"""The papers' models have the sizes that the papers' setting implies."""

import pytest
import torch

from fl_simulator.models.catalogue import MODELS
from fl_simulator.models.classifiers import classifier


@pytest.mark.parametrize(
    ("name", "image", "parameters"),
    [
        ("digits-mlp", (8, 8), 64 * 32 + 32 + 32 * 10 + 10),
        ("lr", (28, 28), 7_850),
        ("mlp", (28, 28), 101_770),
        ("mnist-cnn", (28, 28), 3_260_266),
        ("cifar-cnn", (3, 32, 32), 2_156_490),
        ("mlp-512-256-128", (28, 28), 567_434),
        ("fashion-cnn", (28, 28), 320 + 18_496 + 9216 * 128 + 128 + 1_290),
        ("gn-lenet", (3, 32, 32), 85_354),
    ],
)
def test_a_model_has_its_size_and_gives_ten_logits(name: str, image: tuple[int, ...], parameters: int) -> None:
    module = classifier(MODELS[name], image)
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    assert module(torch.zeros(3, *image)).shape == (3, 10)
    assert set(MODELS[name].last_layers) <= module.state_dict().keys()


@pytest.mark.parametrize(
    ("name", "features", "compared"),
    [
        ("mnist-cnn", 32 * 7 * 7, ("fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight")),
        ("cifar-cnn", 64 * 8 * 8, ("fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight")),
        ("fashion-cnn", 9216, ("fc2.bias", "fc2.weight")),
        ("gn-lenet", 64 * 3 * 3, ("fc1.bias", "fc1.weight")),
    ],
)
def test_convolutions_give_so_many_features_and_the_last_layers_are_compared(
    name: str, features: int, compared: tuple[str, ...]
) -> None:
    model = MODELS[name]
    assert (model.num_features, model.last_layers) == (features, compared)


def test_the_group_norm_makes_a_filter_blind_to_scale() -> None:
    """Twice as bright an image with twice the bias is, to a group norm, the same image."""
    torch.manual_seed(0)
    model, image = classifier(MODELS["gn-lenet"], (3, 32, 32), 26), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        before = model(image)
        model.get_parameter("conv1.bias").mul_(2)
        after = model(2 * image)
    assert before.shape == (2, 26)
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)
