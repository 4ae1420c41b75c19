"""FedAvg: one model for all (McMahan et al., AISTATS 2017, Alg. 1), clients weighted by their samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.group_models import GroupModels, every
from fl_simulator.strategies.protocol import Edge, PersonalizedModels, State, Strategy, Traffic

NAME: Final = "fedavg"


@dataclass(frozen=True, slots=True)
class FedAvgParams:
    """FedAvg has no parameters of its own."""


class FedAvg(Strategy):
    """One global model."""

    def __init__(self, params: FedAvgParams, world: World) -> None:
        del params
        self._world = world
        self._global = GroupModels(world.initial_model()[None].copy())
        self._proximal = 0.0

    @property
    def name(self) -> str:
        """See ``Strategy.name``."""
        return NAME

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``."""
        groups = every(participants)
        trained = self._global.train(self._world, participants, groups, round_index=number, proximal=self._proximal)
        self._global.replace_by_means(self._world, trained, participants, groups)
        moved = len(participants) * self._world.model_bytes
        return Traffic(up=moved, down=moved)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``."""
        return PersonalizedModels(self._global.models, every(clients))

    def take_edges(self) -> Sequence[Edge]:
        """See ``Reporting.take_edges``."""
        return self._global.take_edges()

    def state(self) -> State:
        """See ``Strategy.state``."""
        return {"models": self._global.models.copy()}

    def restore(self, state: State) -> None:
        """See ``Strategy.restore``."""
        self._global = GroupModels(state["models"].copy())
