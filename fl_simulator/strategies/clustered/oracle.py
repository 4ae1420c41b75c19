"""FedAvg within each true cluster: the upper bound of clustering, for it is told what the others must find out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import NoParams
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic


class Oracle(GroupStrategy):
    """One model for each true cluster, all from one initial model."""

    name = "oracle"

    def __init__(self, params: NoParams, world: World) -> None:
        del params
        super().__init__(world, np.tile(world.initial_model(), (world.population.num_clusters, 1)))

    @property
    def _clusters(self) -> NDArray[np.int64]:
        """As they are now: it is told of clients that move."""
        return self.world.population.clusters

    def round(self, number: int, participants: Clients) -> Traffic:
        groups = self._clusters[participants]
        trained = self.train(participants, groups, round_index=number)
        self.replace_by_means(trained, participants, groups)
        return self.models_moved(len(participants))

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        return PersonalizedModels(self.models, self._clusters[np.asarray(clients)])

    def groups(self) -> NDArray[np.int64] | None:
        return self._clusters
