"""Training of many models at once; importing this does not import torch, building a trainer does.

Ways to train ("backends"): ``batched`` is the fast one for each model, ``sequential`` an ordinary PyTorch loop, which
the batched trainers must equal. The contract tests in ``tests/contract/test_trainers.py`` hold every model and backend
to what ``Trainer`` promises.
"""

from typing import Final, Literal, TypeAlias, get_args

from fl_client.training.errors import TorchMissingError
from fl_core.errors import UnknownNameError
from fl_simulator.engine.population import Population
from fl_simulator.models.catalogue import MODELS
from fl_simulator.seeds import Seeds
from fl_simulator.training.protocol import Evaluation, Rows, Task, Trainer
from fl_simulator.training.recipe import INITIALISATIONS, Initialisation, Recipe

Backend: TypeAlias = Literal["batched", "sequential"]
Device: TypeAlias = Literal["auto", "cpu", "cuda"]
Precision: TypeAlias = Literal["float32", "bfloat16", "float64"]

BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)
DEVICES: Final[tuple[Device, ...]] = get_args(Device)
PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)


def build_trainer(
    model_name: str,
    population: Population,
    *,
    recipe: Recipe,
    seeds: Seeds,
    init: Initialisation = "pytorch",
    device: Device = "auto",
    workers: int = 0,
    precision: Precision = "float32",
    backend: Backend = "batched",
) -> Trainer:
    """The trainer of the model that a scenario names, on a population's images.

    Args:
        model_name: One of ``MODELS``; a dense one takes the images' size.
        population: Its images and labels are kept, not copied, on a processor.
        recipe: Batches, steps and loss.
        seeds: Decide the order of batches.
        init: One of ``INITIALISATIONS``: how a new model's weights are drawn.
        device: One of ``DEVICES``; ``auto``: a GPU where torch finds one.
        workers: Threads of the batched trainers on a processor; 0: one for each core.
        precision: One of ``PRECISIONS``, of the arithmetic; rows are float32 in any case. ``bfloat16`` is for speed and
            loses small updates; ``float64`` shows what of a difference is rounding.
        backend: One of ``BACKENDS``.

    Raises:
        UnknownNameError: No such model, initialisation, backend, device or precision.
        ScenarioError: The images do not fit the model, or there is no such device.
        TorchMissingError: PyTorch is not installed.
    """
    model = MODELS[model_name]
    named: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("initialisation", init, INITIALISATIONS),
        ("training backend", backend, BACKENDS),
        ("device", device, DEVICES),
        ("precision", precision, PRECISIONS),
    )
    for kind, word, known in named:
        if word not in known:
            raise UnknownNameError(kind, word, known)
    try:
        from fl_simulator.training import building  # noqa: PLC0415 (torch is loaded when a trainer is built)
        from fl_simulator.training.base import Common  # noqa: PLC0415 (it knows torch's types)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TorchMissingError("training needs PyTorch; run: pip install torch") from error
    common = Common(
        population.images,
        population.labels,
        recipe,
        seeds,
        device=building.device_named(device),
        dtype=building.DTYPES[precision],
        init=init,
    )
    one_by_one = backend == "sequential"
    return building.trainer_of(model, population.num_classes, common, one_by_one=one_by_one, workers=workers)


__all__ = [
    "BACKENDS",
    "DEVICES",
    "INITIALISATIONS",
    "PRECISIONS",
    "Backend",
    "Device",
    "Evaluation",
    "Initialisation",
    "Precision",
    "Recipe",
    "Rows",
    "Task",
    "Trainer",
    "build_trainer",
]
