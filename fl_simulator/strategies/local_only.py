"""Everybody alone: what a client has without federation. Its model is its own, nothing travels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.protocol import PersonalizedModels, Strategy, Traffic


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

    name = "local-only"
    remembered: tuple[str, ...] = ("models",)

    def __init__(self, params: LocalOnlyParams, world: World) -> None:
        self._world = world
        if params.init == "shared":
            self.models = np.tile(world.initial_model(), (world.num_clients, 1))
        else:
            self.models = np.stack([world.initial_model(client) for client in range(world.num_clients)])

    def round(self, number: int, participants: Clients) -> Traffic:
        models = self.models[participants]
        self._world.train(models, participants, round_index=number)
        self.models[participants] = models
        return Traffic()

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        return PersonalizedModels(self.models, np.asarray(clients, dtype=np.int64))
