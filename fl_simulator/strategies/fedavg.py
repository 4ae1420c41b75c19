"""FedAvg: one model for all (McMahan et al., AISTATS 2017, Alg. 1), clients weighted by their samples."""

from collections.abc import Sequence

from fl_core.parameters import NoParams
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy, every
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic


class FedAvg(GroupStrategy):
    """One global model."""

    name = "fedavg"

    def __init__(self, params: NoParams, world: World) -> None:
        del params
        super().__init__(world, world.initial_model()[None].copy())
        self._proximal = 0.0

    def round(self, number: int, participants: Clients) -> Traffic:
        groups = every(participants)
        trained = self.train(participants, groups, round_index=number, proximal=self._proximal)
        self.replace_by_means(trained, participants, groups)
        return self.models_moved(len(participants))

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        return PersonalizedModels(self.models, every(clients))
