"""Training of many models at once; importing this does not import torch, building a trainer does.

``tests/contract/test_trainers.py`` holds every model's trainer to what ``Trainer`` promises, and to the same models as
an ordinary PyTorch loop gives, one client after the other.
"""

from fl_client.training.errors import TorchMissingError
from fl_simulator.engine.population import Population
from fl_simulator.models.catalogue import MODELS
from fl_simulator.seeds import Seeds
from fl_simulator.training.protocol import Trainer
from fl_simulator.training.recipe import Recipe


def build_trainer(
    model_name: str,
    population: Population,
    *,
    recipe: Recipe,
    seeds: Seeds,
    init: str = "pytorch",
    device: str = "auto",
    workers: int = 0,
    precision: str = "float32",
) -> Trainer:
    """The trainer of the model that a scenario names, on a population's images.

    Args:
        model_name: One of ``MODELS``; a dense one takes the images' size.
        population: Its images and labels are kept, not copied, on a processor.
        recipe: Batches, steps and loss.
        seeds: Decide the order of batches.
        init: How a new model's weights are drawn: ``pytorch`` or ``he``.
        device: ``cpu``, ``cuda``, or ``auto``: a GPU where torch finds one.
        workers: Threads on a processor; 0: one for each core.
        precision: Of the arithmetic; rows are float32 in any case. ``float32``; ``bfloat16`` is for speed and loses
            small updates; ``float64`` shows what of a difference is rounding.

    Raises:
        UnknownNameError: No such model.
        ScenarioError: The images do not fit the model, or there is no such device.
        TorchMissingError: PyTorch is not installed.
    """
    model = MODELS[model_name]
    try:
        from fl_simulator.training.base import Common  # noqa: PLC0415 (torch is loaded when a trainer is built)
        from fl_simulator.training.building import DTYPES, device_named, trainer_of  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TorchMissingError("training needs PyTorch; run: pip install torch") from error
    images, labels, found = population.images, population.labels, device_named(device)
    common = Common(images, labels, recipe, seeds, device=found, dtype=DTYPES[precision], init=init)
    return trainer_of(model, population.num_classes, common, workers=workers)
