"""Everybody alone: what a client has without federation. Its model is its own, nothing travels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_core.parameters import parameter
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.protocol import PersonalizedModels, State, Strategy, Traffic

NAME: Final = "local-only"


@dataclass(frozen=True, slots=True)
class LocalOnlyParams:
    """With which models clients begin."""

    init: str = parameter(
        "shared",
        choices=("shared", "independent"),
        doc="All clients begin with one and the same first model, or each draws its own (DecDiff's ISOL).",
    )


class LocalOnly(Strategy):
    """A model for each client, from one initial model or each from its own."""

    def __init__(self, params: LocalOnlyParams, world: World) -> None:
        self._world = world
        if params.init == "shared":
            self._models = np.tile(world.initial_model(), (world.num_clients, 1))
        else:
            self._models = np.stack([world.initial_model(client) for client in range(world.num_clients)])

    @property
    def name(self) -> str:
        """See ``Strategy.name``."""
        return NAME

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``."""
        models = self._models[participants]
        self._world.train(models, participants, round_index=number)
        self._models[participants] = models
        return Traffic()

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``."""
        return PersonalizedModels(self._models, np.asarray(clients, dtype=np.int64))

    def state(self) -> State:
        """See ``Strategy.state``."""
        return {"models": self._models.copy()}

    def restore(self, state: State) -> None:
        """See ``Strategy.restore``."""
        self._models = state["models"].copy()
