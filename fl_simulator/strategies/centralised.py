"""All data in one place, one model: the bound without privacy, for tasks on which clients do not contradict each other.

A round is E epochs over the samples of the participants together, in batches of the clients' size; or as many batches
as all of them would train on, where the scenario counts steps.
"""

from collections.abc import Sequence

import numpy as np

from fl_core.parameters import NoParams
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import every
from fl_simulator.strategies.protocol import PersonalizedModels, Strategy, Traffic
from fl_simulator.training.protocol import Task


class Centralised(Strategy):
    """One model that sees everybody's samples."""

    name = "centralised"
    remembered: tuple[str, ...] = ("models",)

    def __init__(self, params: NoParams, world: World) -> None:
        del params
        self._world = world
        self.models = world.initial_model()[None].copy()

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``; what clients send are their samples, which Table III does not know."""
        world = self._world
        samples = np.concatenate([world.population.train[client] for client in participants])
        with world.stopwatch.measure("training"):
            steps = world.training.steps * len(participants)
            world.trainer.train(self.models, [Task(samples, (world.num_clients, number), world.training.epochs, steps)])
        return Traffic()

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        return PersonalizedModels(self.models, every(clients))
