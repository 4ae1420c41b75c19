"""Ditto: each client has a model of its own beside one for all, and is held near it (Li et al., ICML 2021, Alg. 1).

The model for all is FedAvg's. Its own a participant trains by E epochs of loss + λ/2 ‖v - w‖², where w is the model for
all that it was sent in this round: twice the training of FedAvg. Deviation: Alg. 1 adds single steps by clients that
are drawn each; here a round is E epochs, as for all methods.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy, every
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic


@dataclass(frozen=True, slots=True)
class DittoParams:
    """How near."""

    pull: float = parameter(1.0, at_least=0.0, doc="λ, how strongly a client's own model is held near the one for all.")


class Ditto(GroupStrategy):
    """One model for all, and one for each client."""

    name = "ditto"
    remembered: tuple[str, ...] = ("models", "own")

    def __init__(self, params: DittoParams, world: World) -> None:
        first = world.initial_model()
        super().__init__(world, first[None].copy())
        self.own = np.tile(first, (world.num_clients, 1))
        self._pull = params.pull

    def round(self, number: int, participants: Clients) -> Traffic:
        groups = every(participants)
        own = self.own[participants]
        self.world.train(own, participants, round_index=number, proximal=self._pull, towards=self.models[groups])
        self.own[participants] = own
        trained = self.train(participants, groups, round_index=number)
        self.replace_by_means(trained, participants, groups)
        return self.models_moved(len(participants))

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``: its own."""
        return PersonalizedModels(self.own, np.asarray(clients, dtype=np.int64))
