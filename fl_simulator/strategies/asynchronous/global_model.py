"""One model for all that changes one result at a time, and how old the results are: what FedAsync and FedBuff share.

Staleness is the number of times that the model changed between a client's start and its finish: 0 when nobody came in
between. FedAsync's text counts 1 more (its update t meets a model of version t - 1 at best); its functions of staleness
are 1 at 0 all the same.
"""

from collections.abc import Sequence

import numpy as np

from fl_core.types import Vector32
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.asynchronous.protocol import Assignment
from fl_simulator.strategies.clustered.base import every
from fl_simulator.strategies.protocol import PersonalizedModels, Reporting, State, Traffic


class OneGlobalModel(Reporting):
    """A model, its version, and which version each client trains from."""

    def __init__(self, world: World, *, proximal: float = 0.0) -> None:
        self._world, self._proximal = world, proximal
        self._model = world.initial_model()
        self._version = 0
        self._given: dict[int, tuple[int, Vector32]] = {}  # of each client, what it started from last
        self.traffic: Traffic = Traffic()

    def begin_interval(self) -> None:
        self.traffic = Traffic()

    def question_bytes(self, client: int) -> int:
        """Nothing: whoever comes is given the same."""
        del client
        return 0

    def start(self, client: int, *, now: float) -> Assignment:
        del now
        self._given[client] = (self._version, self._model)
        size = self._world.model_bytes
        self.traffic += Traffic(down=size)
        return Assignment(self._model, down_bytes=size, up_bytes=size, proximal=self._proximal)

    def _received(self, client: int) -> tuple[int, Vector32]:
        """Staleness of a client's result, and what it started from."""
        self.traffic += Traffic(up=self._world.model_bytes)
        version, model = self._given.pop(client)
        return self._version - version, model

    def _replace(self, model: Vector32) -> None:
        self._model = model
        self._version += 1

    def personal(self, clients: Sequence[int] | Clients, *, now: float) -> PersonalizedModels:
        del now
        return PersonalizedModels(self._model[None], every(clients))

    def state(self) -> State:
        versions = dict(sorted(self._given.values(), key=lambda given: given[0]))
        return {
            "model": self._model.copy(),
            "version": np.array(self._version),
            "clients": np.array(list(self._given), dtype=np.int64),
            "client_versions": np.array([version for version, _ in self._given.values()], dtype=np.int64),
            "versions": np.array(list(versions), dtype=np.int64),
            "version_models": np.array(list(versions.values()), dtype=np.float32).reshape(-1, len(self._model)),
        }

    def restore(self, state: State) -> None:
        self._model = state["model"].copy()
        self._version = int(state["version"])
        models = dict(zip(state["versions"].tolist(), state["version_models"].copy(), strict=True))
        pairs = zip(state["clients"].tolist(), state["client_versions"].tolist(), strict=True)
        self._given = {client: (version, models[version]) for client, version in pairs}
        self.traffic = Traffic()
