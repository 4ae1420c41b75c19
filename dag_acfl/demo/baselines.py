"""What the demo compares with: the simulator's strategies on the same data, model, optimiser and number of epochs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dag_acfl.demo.client import BATCH_SIZE, LEARNING_RATE, sites
from fl_core.types import Matrix32
from fl_simulator.engine.population import Population
from fl_simulator.engine.world import LocalTraining, World
from fl_simulator.seeds import Seeds
from fl_simulator.strategies import STRATEGIES
from fl_simulator.training import Recipe, build_trainer


def build_demo_world(clients: int, *, seed: int, epochs: int) -> World:
    """The demo's sites as the simulator sees them; close it when done."""
    data = sites(clients, seed)
    train, test = len(data[0].train_y), len(data[0].test_y)
    starts = np.arange(clients) * (train + test)
    population = Population(
        images=np.concatenate([part for site in data for part in (site.train_x, site.test_x)]),
        labels=np.concatenate([part for site in data for part in (site.train_y, site.test_y)]),
        train=tuple(start + np.arange(train) for start in starts),
        test=tuple(start + np.arange(train, train + test) for start in starts),
        clusters=np.array([site.cluster for site in data]),
        num_classes=10,
    )
    seeds = Seeds(seed)
    trainer = build_trainer("digits-mlp", population, recipe=Recipe(BATCH_SIZE, LEARNING_RATE), seeds=seeds, workers=1)
    return World(population, trainer, seeds, LocalTraining(epochs=epochs))


def baseline(world: World, name: str, *, rounds: int) -> tuple[float, ...]:
    """Each client's test accuracy after so many rounds of a strategy, everybody in every round."""
    strategy = STRATEGIES.build(name, {}, world)
    everybody = np.arange(world.num_clients)
    for number in range(rounds):
        strategy.round(number, everybody)
    models = strategy.personal(everybody)
    return accuracies(world, models.models, models.rows)


def accuracies(world: World, models: Matrix32, rows: Sequence[int] | NDArray[np.int64]) -> tuple[float, ...]:
    """Accuracy of ``models[rows[k]]`` on client k's test data."""
    found = world.evaluate(models, rows, np.arange(world.num_clients))
    return tuple(round(each, 6) for each in found.accuracy.tolist())
