"""FedAvg within each true cluster: the upper bound of clustering, for it is told what the others must find out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.group_models import GroupModels
from fl_simulator.strategies.protocol import Edge, PersonalizedModels, State, Strategy, Traffic

NAME: Final = "oracle"


@dataclass(frozen=True, slots=True)
class OracleParams:
    """Knowing everything needs no parameters."""


class Oracle(Strategy):
    """One model for each true cluster, all from one initial model."""

    def __init__(self, params: OracleParams, world: World) -> None:
        del params
        self._world = world
        self._clusters = world.population.clusters
        self._groups = GroupModels(np.tile(world.initial_model(), (world.population.num_clusters, 1)))

    @property
    def name(self) -> str:
        """See ``Strategy.name``."""
        return NAME

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``."""
        groups = self._clusters[participants]
        trained = self._groups.train(self._world, participants, groups, round_index=number)
        self._groups.replace_by_means(self._world, trained, participants, groups)
        moved = len(participants) * self._world.model_bytes
        return Traffic(up=moved, down=moved)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``."""
        return PersonalizedModels(self._groups.models, self._clusters[np.asarray(clients)])

    def groups(self) -> NDArray[np.int64] | None:
        """See ``Strategy.groups``."""
        return self._clusters

    def take_edges(self) -> Sequence[Edge]:
        """See ``Reporting.take_edges``."""
        return self._groups.take_edges()

    def state(self) -> State:
        """See ``Strategy.state``."""
        return {"models": self._groups.models.copy()}

    def restore(self, state: State) -> None:
        """See ``Strategy.restore``."""
        self._groups = GroupModels(state["models"].copy())
