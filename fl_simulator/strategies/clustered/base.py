"""One model for each group of clients, and group-wise FedAvg: what synchronous clustered methods have in common."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.aggregation import Aggregator, ArraySource, FedAvg
from fl_core.types import Matrix32, Vector32
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.protocol import Edge, Strategy, Traffic

_BEFORE_THE_FIRST_ROUND: Final = 1 << 31
"""The round index of a client's training before it takes part for the first time; no round has this number."""
_FEDAVG: Final = FedAvg()


def average(
    world: World, models: Matrix32, clients: Clients, *, weighted: bool = True, aggregator: Aggregator = _FEDAVG
) -> Vector32:
    """The average of the clients' models with the very aggregator of the servers, by their training samples.

    Args:
        world: Knows how many samples each client has.
        models: Shape ``(k, P)``, k at least 1.
        clients: Whose, shape ``(k,)``.
        weighted: Otherwise every client counts the same.
        aggregator: Another than FedAvg.
    """
    weights = world.population.num_examples[clients].astype(float) if weighted else np.ones(len(clients))
    with world.stopwatch.measure("aggregation"):
        return aggregator.aggregate([ArraySource(model) for model in models], weights.tolist())


class GroupStrategy(Strategy):
    """A model for each group of clients."""

    remembered: Sequence[str] = ("models",)
    aggregator: Aggregator = _FEDAVG

    def __init__(self, world: World, models: Matrix32) -> None:
        self.world: World = world
        self.models: Matrix32 = models
        self._edges: list[Edge] = []

    def train(
        self, participants: Clients, groups: NDArray[np.int64], *, round_index: int, proximal: float = 0.0
    ) -> Matrix32:
        """Train each participant from its group's model; the trained models, shape ``(k, P)``."""
        models = self.models[groups]  # fancy indexing copies
        self.world.train(models, participants, round_index=round_index, proximal=proximal)
        return models

    def train_first(self, first: Vector32, clients: Clients) -> Matrix32:
        """What E′ epochs on each of the clients make of the run's first model, shape ``(k, P)``."""
        models = np.tile(first, (len(clients), 1))
        epochs = self.world.training.initial_epochs
        self.world.train(models, clients, round_index=_BEFORE_THE_FIRST_ROUND, epochs=epochs)
        return models

    def replace_by_means(
        self, trained: Matrix32, participants: Clients, groups: NDArray[np.int64], *, weighted: bool = True
    ) -> None:
        """Each group's model becomes the mean of its members' trained ones; a group without any keeps its model."""
        for group in np.unique(groups):
            members = np.flatnonzero(groups == group)
            whose = participants[members]
            self.models[group] = average(
                self.world, trained[members], whose, weighted=weighted, aggregator=self.aggregator
            )
            counts = self.world.population.num_examples[whose] if weighted else np.ones(len(whose))
            shares = (counts / counts.sum()).tolist()
            self._edges += zip(whose.tolist(), [f"group {group}"] * len(whose), shares, strict=True)

    def models_moved(self, count: int) -> Traffic:
        """Traffic of so many trainings: a model down and a model up for each."""
        return Traffic(up=count * self.world.model_bytes, down=count * self.world.model_bytes)

    def take_edges(self) -> list[Edge]:
        taken, self._edges = self._edges, []
        return taken


def every(clients: Sequence[int] | Clients, row: int = 0) -> NDArray[np.int64]:
    """The same row for each of the clients."""
    return np.full(len(clients), row, dtype=np.int64)


def compared(world: World, models: Matrix32, layers: str) -> Matrix32:
    """The columns by which models are compared.

    Args:
        world: Names the similarity layers.
        models: Models or updates, shape ``(k, P)``.
        layers: ``all``: the whole model; ``similarity``: the world's similarity layers.
    """
    if layers == "all" or not world.similarity_layers:
        return models
    pieces = world.trainer.layout.slices(world.similarity_layers)
    return np.concatenate([models[:, piece] for piece in pieces], axis=1)
