"""A client's own file in the simulator: her trainers, one for each site, behind what a simulation asks of training.

What a site's samples are only its trainer knows. To the simulator they are numbers, as many as the site has; whose they
are says who is trained or judged. Nothing is drawn here: order and batches are the trainer's.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_client.errors import UserModuleError
from fl_client.scaffold import load_trainers
from fl_client.training.errors import users_code
from fl_client.training.protocol import Arrays, TrainingResult, check_shapes
from fl_client.training.protocol import Trainer as ClientTrainer
from fl_core.errors import ParameterError, ShapeMismatchError
from fl_core.models import ModelLayout
from fl_core.types import JsonScalar, Matrix32, Vector32
from fl_simulator.engine.population import Population
from fl_simulator.errors import ScenarioError
from fl_simulator.training.protocol import Evaluation, Rows, Task

SITE: Final = "site"
"""The argument of ``trainer()`` that says which site it is, from 0."""


def load_sites(
    file: Path, count: int, settings: Mapping[str, JsonScalar] | None = None, *, seed: int = 0
) -> "SiteTrainers":
    """``trainer(site=0)`` to ``trainer(site=count - 1)`` of a client's file, or the partitions of a Flower app.

    Args:
        file: The file, imported once; or the folder of a Flower app.
        count: Sites, at least 1.
        settings: Further arguments of ``trainer()``, the same for all; or values of the app's run configuration.
        seed: Of Python's, NumPy's and torch's own generators, from which a file that seeds nothing draws its model.

    Raises:
        UserModuleError: As ``load_trainer``.
        ParameterError: The settings say which site.
        ModelLayoutError: Two sites have different models.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (what others draw from)
    with suppress(ModuleNotFoundError):
        import torch  # noqa: PLC0415 (a file may do without)

        torch.manual_seed(seed)
    settings = settings or {}
    if file.is_dir():
        return SiteTrainers(_partitions(file, count, settings))
    if SITE in settings:
        raise ParameterError(f"{SITE} is said for each site; leave {SITE}={settings[SITE]} out, and say how many sites")
    try:
        return SiteTrainers(load_trainers(file, [{**settings, SITE: site} for site in range(count)]))
    except UserModuleError as error:
        if f"unexpected keyword argument '{SITE}'" not in str(error):
            raise
        raise UserModuleError(f"{error}; give it {SITE}: int = 0, which says whose data it loads") from error


def _partitions(folder: Path, count: int, settings: Mapping[str, JsonScalar]) -> list[ClientTrainer]:
    """A Flower app's ClientApp for each partition; its ServerApp says once how they begin."""
    from fl_client.integrations.flower import FlowerApp, FlowerTrainer, opening_of  # noqa: PLC0415 (an extra)

    config = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
    apps = [
        FlowerApp(folder, node_config=f"partition-id={site} num-partitions={count}", run_config=config)
        for site in range(count)
    ]
    opening = opening_of(apps[0])
    return [FlowerTrainer(app, opening, node_id=site + 1) for site, app in enumerate(apps)]


class SiteTrainers:
    """Trains and judges rows of models, each by the trainer of its site; meets the simulator's ``Trainer``.

    Attributes:
        trainers: These.
        layout: Of a row.
        on_trained: Called after each training, which may take minutes.

    Raises:
        ModelLayoutError: Two sites have different models.
    """

    def __init__(self, trainers: Sequence[ClientTrainer]) -> None:
        self.trainers = trainers
        self.on_trained: Callable[[], None] = lambda: None
        tensors = trainers[0].layout().tensors
        for trainer in trainers[1:]:
            check_shapes(trainer.layout(), {tensor.name: tensor.shape for tensor in tensors})
        # Rows are float32, whatever the models travel as.
        self.layout: Final = ModelLayout.of(replace(tensor, dtype="F32") for tensor in tensors)
        with users_code("trainer().initial_arrays()"):
            self._initial = self._flat(trainers[0].initial_arrays())
        self._held: list[Arrays] = []
        self.forget()
        self._ends: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @property
    def trained_tensors(self) -> tuple[str, ...]:
        """What is trained, where the file says that something is not (``buffers``); empty: everything."""
        buffers = set(getattr(self.trainers[0], "buffers", tuple)())
        return tuple(tensor.name for tensor in self.layout.tensors if tensor.name not in buffers) if buffers else ()

    @property
    def holds_back(self) -> bool:
        """Whether tensors stay with their site, which no row has."""
        return any(self._held)

    def forget(self) -> None:
        """Let every site begin again with what stays with it."""
        self._held = [self._rest(trainer.initial_arrays()) for trainer in self.trainers]

    def hold(self, site: int, arrays: Arrays) -> None:
        """From now on this stays with a site."""
        self._held[site] = arrays

    def population(self) -> Population:
        """Numbers in place of everybody's samples; to count them each site is trained for an epoch, and judged."""
        train: list[Rows] = []
        test: list[Rows] = []
        start = 0
        for site in range(len(self.trainers)):
            result = self._trained(site, self._initial, epochs=1)
            judged = self._judged(site, result.arrays)
            middle = start + result.num_examples
            end = middle + max(1, int(judged.get("num_examples", 1)))
            train.append(np.arange(start, middle))
            test.append(np.arange(middle, end))
            start = end
            self.on_trained()
        self._ends = np.array([rows[-1] + 1 for rows in test])
        count = len(self.trainers)
        return Population(
            images=np.zeros((start, 0), dtype=np.float32),
            labels=np.zeros(start, dtype=np.int64),
            train=tuple(train),
            test=tuple(test),
            clusters=np.zeros(count, dtype=np.int64),
            num_classes=1,
            clusters_known=False,
        )

    def initial(self, rng: np.random.Generator, *, gain: float = 1.0) -> Vector32:  # noqa: ARG002 (nothing is drawn)
        """The first site's model as ``trainer()`` made it.

        Raises:
            ScenarioError: ``gain`` is not 1: which values are weights only the file knows.
        """
        if gain != 1.0:
            raise ScenarioError("a client's own file has no gain: leave strategy.gain out")
        return self._initial.copy()

    def train(
        self, models: Matrix32, tasks: Sequence[Task], *, proximal: float = 0.0, towards: Matrix32 | None = None
    ) -> None:
        """Train row k in place, by the trainer of the site whose samples ``tasks[k]`` names.

        Raises:
            ScenarioError: A proximal term or a number of steps is asked for, which a trainer does not know.
            TrainerFailedError: The file's own code fails; the message names the line.
        """
        del towards  # of a proximal term
        if proximal or any(task.steps for task in tasks):
            raise ScenarioError("a client's own file trains for epochs and its own loss: leave steps and fedprox out")
        for row, task in enumerate(tasks):
            site = self._site(task.samples)
            result = self._trained(site, models[row], epochs=task.epochs)
            models[row], self._held[site] = self._flat(result.arrays), self._rest(result.arrays)
            self.on_trained()

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:  # noqa: ARG002 (see below)
        """None: a trainer shows no gradients."""
        raise ScenarioError("a client's own file shows no gradients: choose a strategy that needs none")

    def evaluate(self, models: Matrix32, rows: Sequence[int] | Rows, samples: Sequence[Rows]) -> Evaluation:
        """Model ``rows[k]`` on the test data of the site that has ``samples[k]``.

        Raises:
            ScenarioError: ``evaluate()`` gives no accuracy, by which simulations are compared.
            TrainerFailedError: The file's own code fails; the message names the line.
        """
        sites = [self._site(each) for each in samples]
        found = [self.metrics(models[row], site) for row, site in zip(rows, sites, strict=True)]
        if lacking := [given for given in found if "accuracy" not in given]:
            given = ", ".join(sorted(lacking[0])) or "nothing"
            raise ScenarioError(f"evaluate() gives no accuracy, by which simulations are compared, but {given}")
        count = np.array([max(1, int(each.get("num_examples", 1))) for each in found], dtype=np.int64)
        accuracy, loss = (np.array([each.get(name, np.nan) for each in found]) for name in ("accuracy", "loss"))
        return Evaluation(accuracy * count, loss * count, count)  # an accuracy may count other things than samples

    def metrics(self, model: Vector32, site: int) -> Mapping[str, float]:
        """What a site's ``evaluate()`` says of a model, shape ``(P,)``."""
        return self._judged(site, self._arrays(model, site))

    def close(self) -> None:
        """Nothing is held."""

    def _site(self, samples: Rows) -> int:
        if len(samples) == 0:
            raise ShapeMismatchError("a task without samples; each needs at least one")
        return int(np.searchsorted(self._ends, samples[0], side="right"))

    def _trained(self, site: int, model: Vector32, *, epochs: int) -> TrainingResult:
        with users_code(f"train() of site {site}"):
            return self.trainers[site].train(self._arrays(model, site), epochs=epochs)

    def _judged(self, site: int, arrays: Arrays) -> Mapping[str, float]:
        with users_code(f"evaluate() of site {site}"):
            return self.trainers[site].evaluate(arrays)

    def _arrays(self, model: Vector32, site: int) -> Arrays:
        """A row as named arrays, which cannot be written to, as a participant's cannot; and what stays at the site."""
        values = model.view()
        values.flags.writeable = False
        pieces = zip(self.layout.tensors, self.layout.tensor_slices, strict=True)
        shared = {tensor.name: values[piece].reshape(tensor.shape) for tensor, piece in pieces}
        return {**self._held[site], **shared}

    def _rest(self, arrays: Arrays) -> Arrays:
        """What of a trainer's arrays does not travel."""
        travels = {tensor.name for tensor in self.layout.tensors}
        return {name: array for name, array in arrays.items() if name not in travels}

    def _flat(self, arrays: Arrays) -> Vector32:
        names = [tensor.name for tensor in self.layout.tensors]
        check_shapes(self.layout, {name: arrays[name].shape for name in names if name in arrays})
        pieces = [np.asarray(arrays[tensor.name], dtype=np.float32).ravel() for tensor in self.layout.tensors]
        return np.concatenate(pieces)
