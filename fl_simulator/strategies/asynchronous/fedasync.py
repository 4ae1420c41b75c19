"""FedAsync: every result is mixed into one global model at once, the older the less (Xie et al., OPT 2020, Alg. 1).

    x <- (1 - α s(τ)) x + α s(τ) x_new

with α = ``mixing``, the staleness τ of ``global_model``, and of the FedAsync paper's functions s the polynomial one,
(τ + 1)^-a with its a = 0.5. FedAsync regularises local training by ρ/2 of the squared distance to the model that was
given (Alg. 1, Process Worker): ``proximal``.
"""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.engine.world import World
from fl_simulator.strategies.asynchronous.global_model import OneGlobalModel


@dataclass(frozen=True, slots=True)
class FedAsyncParams:
    mixing: float = parameter(0.6, above=0.0, at_most=1.0, doc="α, a fresh result's share in the new model.")
    proximal: float = parameter(0.0, at_least=0.0, doc="ρ; the FedAsync paper's local regularisation.")


class FedAsync(OneGlobalModel):
    """A model that moves towards every result."""

    name = "fedasync"

    def __init__(self, params: FedAsyncParams, world: World) -> None:
        super().__init__(world, proximal=params.proximal)
        self._params = params

    def finish(self, client: int, model: Vector32, *, now: float) -> None:
        del now
        staleness, _ = self._received(client)
        share = np.float32(self._params.mixing * float((staleness + 1) ** -0.5))
        self._replace(self._model + share * (model - self._model))
