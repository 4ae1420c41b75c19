"""FedAsync: every result is mixed into one global model at once, the older the less (Xie et al., OPT 2020, Alg. 1).

    x <- (1 - α s(τ)) x + α s(τ) x_new

with α = ``mixing`` and the staleness τ of ``global_model``. The FedAsync paper's functions s: constant 1;
polynomial (τ + 1)^-a; hinge 1 up to b, 1 / (a (τ - b) + 1) beyond. FedAsync regularises local training by ρ/2 of the
squared distance to the model that was given (Alg. 1, Process Worker): ``proximal``.
"""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.engine.world import World
from fl_simulator.strategies.asynchronous.global_model import OneGlobalModel


@dataclass(frozen=True, slots=True)
class FedAsyncParams:
    """Parameters of FedAsync."""

    mixing: float = parameter(0.6, above=0.0, at_most=1.0, doc="α, a fresh result's share in the new model.")
    staleness: str = parameter(
        "polynomial", choices=("constant", "hinge", "polynomial"), doc="How a result's share falls with its age."
    )
    polynomial_a: float = parameter(0.5, at_least=0.0, doc="a of polynomial.")
    hinge_a: float = parameter(10.0, at_least=0.0, doc="a of hinge.")
    hinge_b: float = parameter(4.0, at_least=0.0, doc="b of hinge, the staleness up to which nothing falls.")
    proximal: float = parameter(0.0, at_least=0.0, doc="ρ; the FedAsync paper's local regularisation.")

    def factor(self, staleness: int) -> float:
        """s(τ), in (0, 1]."""
        if self.staleness == "polynomial":
            return float((staleness + 1) ** -self.polynomial_a)
        if self.staleness == "hinge" and staleness > self.hinge_b:
            return 1 / (self.hinge_a * (staleness - self.hinge_b) + 1)
        return 1.0


class FedAsync(OneGlobalModel):
    """A model that moves towards every result."""

    name = "fedasync"

    def __init__(self, params: FedAsyncParams, world: World) -> None:
        super().__init__(world, proximal=params.proximal)
        self._params = params

    def finish(self, client: int, model: Vector32, *, now: float) -> None:
        del now
        staleness, _ = self._received(client)
        share = np.float32(self._params.mixing * self._params.factor(staleness))
        self._replace(self._model + share * (model - self._model))
