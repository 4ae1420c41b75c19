"""FedProx: FedAvg whose clients are held near the model that they were given (Li et al., MLSys 2020, Eq. 2)."""

from dataclasses import dataclass

from fl_core.parameters import parameter
from fl_simulator.engine.world import World
from fl_simulator.strategies.fedavg import FedAvg, FedAvgParams


@dataclass(frozen=True, slots=True)
class FedProxParams:
    """The proximal term."""

    mu: float = parameter(0.01, at_least=0.0, doc="Weight µ of the proximal term; 0 is FedAvg.")


class FedProx(FedAvg):
    """FedAvg with µ (w - w0) in every gradient."""

    name = "fedprox"

    def __init__(self, params: FedProxParams, world: World) -> None:
        super().__init__(FedAvgParams(), world)
        self._proximal = params.mu
