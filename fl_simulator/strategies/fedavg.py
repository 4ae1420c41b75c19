"""FedAvg: one model for all (McMahan et al., AISTATS 2017, Alg. 1), clients weighted by their samples.

``aggregator`` names another rule than the mean, such as ``trimmed-mean``, for a server that does not trust all clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from fl_core.aggregation import AGGREGATORS
from fl_core.errors import ParameterError
from fl_core.parameters import NoParams
from fl_core.registry import written_params
from fl_core.types import JsonScalar
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy, every
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic

_PART: Final = "aggregator"


@dataclass(frozen=True, slots=True)
class FedAvgParams:
    """``aggregator``, and its parameters as ``aggregator.<parameter>``."""

    own: NoParams = field(default_factory=NoParams)
    aggregator: str = "fedavg"
    params: Mapping[str, JsonScalar] = field(default_factory=dict)

    def write(self) -> dict[str, JsonScalar]:
        """What ``read`` makes this of, defaults written out."""
        params = written_params(AGGREGATORS.read_params(self.aggregator, self.params))
        return {_PART: self.aggregator, **{f"{_PART}.{key}": value for key, value in params.items()}}

    @classmethod
    def read(cls, given: Mapping[str, JsonScalar], *, owner: str) -> Self:
        """Check what a scenario says."""
        if unknown := [key for key in given if key.partition(".")[0] != _PART]:
            raise ParameterError(f"{owner} has no parameter {unknown[0]!r}; there are {_PART} and its own")
        name = str(given.get(_PART, "fedavg"))
        params = {key.removeprefix(f"{_PART}."): value for key, value in given.items() if key != _PART}
        AGGREGATORS.read_params(name, params)
        return cls(aggregator=name, params=params)


class FedAvg(GroupStrategy):
    """One global model."""

    name = "fedavg"

    def __init__(self, params: FedAvgParams, world: World) -> None:
        super().__init__(world, world.initial_model()[None].copy())
        self.aggregator = AGGREGATORS.build(params.aggregator, params.params)
        self._proximal = 0.0

    def round(self, number: int, participants: Clients) -> Traffic:
        groups = every(participants)
        trained = self.train(participants, groups, round_index=number, proximal=self._proximal)
        self.replace_by_means(trained, participants, groups)
        return self.models_moved(len(participants))

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        return PersonalizedModels(self.models, every(clients))
