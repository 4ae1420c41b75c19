"""FedPer: all but the last layer is everybody's, the last each client's own (Arivazhagan et al., 2019, Alg. 1 and 2).

A participant trains all layers together and sends those below its own, which are averaged by samples. Where a model is
one layer nothing is shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy, every
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic


@dataclass(frozen=True, slots=True)
class FedPerParams:
    """What is a client's own."""

    own_tensors: int = parameter(2, at_least=1, doc="How many tensors, the last of a model: a weight and a bias are 2.")


class FedPer(GroupStrategy):
    """One model for all, whose last values give way to each client's."""

    name = "fedper"
    remembered: tuple[str, ...] = ("models", "own")

    def __init__(self, params: FedPerParams, world: World) -> None:
        first = world.initial_model()
        super().__init__(world, first[None].copy())
        tensors = world.trainer.layout.tensors[-params.own_tensors :]
        self._num_own = sum(tensor.size for tensor in tensors)
        self.own = np.tile(first[len(first) - self._num_own :], (world.num_clients, 1))  # (C, values of the last layer)

    def round(self, number: int, participants: Clients) -> Traffic:
        personal = self.personal(participants)
        trained, shared = personal.models, self.models.shape[1] - self._num_own
        self.world.train(trained, participants, round_index=number)
        self.own[participants] = trained[:, shared:]
        self.replace_by_means(trained, participants, every(participants))
        nbytes = shared * trained.itemsize * len(participants)
        return Traffic(up=nbytes, down=nbytes)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``: what all share, and its own last layer."""
        clients = np.asarray(clients, dtype=np.int64)
        models = self.models[every(clients)]
        models[:, models.shape[1] - self._num_own :] = self.own[clients]
        return PersonalizedModels(models, np.arange(len(clients)))
