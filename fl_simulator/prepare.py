"""From a scenario to the world that it describes: data, clients, trainer. Needs torch, loaded when it is called."""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from fl_simulator.data import load, load_digits
from fl_simulator.models.catalogue import MODELS
from fl_simulator.partition import build_partitioner
from fl_simulator.population import Population, gather
from fl_simulator.processes import usable_cores
from fl_simulator.scenario import DIGITS, Scenario
from fl_simulator.seeds import Seeds
from fl_simulator.training import Backend, Device, Initialisation, Precision, build_trainer
from fl_simulator.world import LocalTraining, World


def build_population(scenario: Scenario) -> Population:
    """The scenario's clients with their samples; models, training and strategy play no part.

    Raises:
        DataError: The data set is not here, or damaged; the message says how to get it.
        PartitionError: The samples cannot be shared out so.
    """
    images: NDArray[np.uint8] | NDArray[np.float32]
    if scenario.data.name == DIGITS:
        images, labels = load_digits()
    else:
        data = load(scenario.data.name)
        images, labels = data.train_x, data.train_y
        if scenario.data.parts == "all":
            images = np.concatenate([images, data.test_x])
            labels = np.concatenate([labels, data.test_y])
    partitioner = build_partitioner(scenario.partition.name, scenario.partition.params)
    shares = partitioner.shares(
        labels,
        train_fraction=scenario.run.train_fraction,
        rng=Seeds(scenario.run.seed).generator("partition"),
    )
    return gather(images, labels, shares, num_classes=int(labels.max()) + 1)


def build_world(scenario: Scenario, *, workers: int = 0) -> World:
    """The scenario's clients and a trainer for them; close the trainer when done.

    Args:
        scenario: Checked.
        workers: Threads or processes that train; 0: one for each core.

    Raises:
        DataError, PartitionError, ScenarioError: As ``build_population``; or the model does not fit the images.
        TorchMissingError, RayMissingError: PyTorch, or Ray, is not installed.
        ClusterError: The cluster of backend ``ray`` cannot be reached, or cannot begin.
    """
    population, training, seeds = build_population(scenario), scenario.training, Seeds(scenario.run.seed)
    trainer = build_trainer(
        scenario.model.name,
        population,
        recipe=training.recipe,
        seeds=seeds,
        init=cast("Initialisation", scenario.model.init),
        device=cast("Device", training.device),
        workers=workers,
        precision=cast("Precision", training.precision),
        backend=cast("Backend", training.backend),
        address=training.address,
    )
    local = LocalTraining(training.epochs, training.initial_epochs, training.steps)
    compared = MODELS[scenario.model.name].last_layers if scenario.model.compared == "last" else ()
    return World(population, trainer, seeds, local, compared, workers=workers or usable_cores())
