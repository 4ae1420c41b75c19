"""FedBuff: K results change the global model together (Nguyen et al., AISTATS 2022, Alg. 1).

A client's update is what it ended with less what it started from. The buffer sums updates, each times 1/√(1 + τ), the
paper's staleness scaling, with the staleness τ of ``global_model``; when there are K of them, the model moves by 1/K
times the sum (η = 1) and the buffer is empty again. Not here: the secure aggregation for which the buffer was made.
"""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.engine.world import World
from fl_simulator.strategies.asynchronous.global_model import OneGlobalModel
from fl_simulator.strategies.protocol import State


@dataclass(frozen=True, slots=True)
class FedBuffParams:
    buffer: int = parameter(10, at_least=1, at_most=1_000_000, doc="K, how many results change the model together.")


class FedBuff(OneGlobalModel):
    """A model that waits for K results."""

    name = "fedbuff"

    def __init__(self, params: FedBuffParams, world: World) -> None:
        super().__init__(world)
        self._params = params
        self._sum = np.zeros_like(self._model)
        self._buffered = 0

    def finish(self, client: int, model: Vector32, *, now: float) -> None:
        del now
        staleness, start = self._received(client)
        self._sum = self._sum + np.float32((1 + staleness) ** -0.5) * (model - start)
        self._buffered += 1
        if self._buffered == self._params.buffer:
            self._replace(self._model + np.float32(1 / self._params.buffer) * self._sum)
            self._sum = np.zeros_like(self._model)
            self._buffered = 0

    def state(self) -> State:
        return {**super().state(), "sum": self._sum.copy(), "buffered": np.array(self._buffered)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._sum = state["sum"].copy()
        self._buffered = int(state["buffered"])
