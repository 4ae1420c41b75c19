"""All data in one place, one model: the bound without privacy, for tasks on which clients do not contradict each other.

A round is E epochs over the samples of the participants together, in batches of the clients' size; or as many batches
as all of them would train on, where the scenario counts steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.group_models import every
from fl_simulator.strategies.protocol import PersonalizedModels, State, Strategy, Traffic
from fl_simulator.training.protocol import Task

NAME: Final = "centralised"


@dataclass(frozen=True, slots=True)
class CentralisedParams:
    """Central training has no parameters."""


class Centralised(Strategy):
    """One model that sees everybody's samples."""

    def __init__(self, params: CentralisedParams, world: World) -> None:
        del params
        self._world = world
        self._model = world.initial_model()[None].copy()

    @property
    def name(self) -> str:
        """See ``Strategy.name``."""
        return NAME

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``; what clients send are their samples, which Table III does not know."""
        world = self._world
        samples = np.concatenate([world.population.train[client] for client in participants])
        with world.stopwatch.measure("training"):
            steps = world.training.steps * len(participants)
            world.trainer.train(self._model, [Task(samples, (world.num_clients, number), world.training.epochs, steps)])
        return Traffic()

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``."""
        return PersonalizedModels(self._model, every(clients))

    def state(self) -> State:
        """See ``Strategy.state``."""
        return {"models": self._model.copy()}

    def restore(self, state: State) -> None:
        """See ``Strategy.restore``."""
        self._model = state["models"].copy()
