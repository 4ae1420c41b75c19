"""A scaled step: it trains as it should, and hands in many times the change; below 0 backwards, which unlearns."""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.attacks.protocol import Attacker, Turn


@dataclass(frozen=True, slots=True)
class ScaledStepParams:
    factor: float = parameter(10.0, doc="What the step is multiplied by; below 0 its sign is flipped.")


class ScaledStep(Attacker):
    """Publishes what it was given, and ``factor`` times its step."""

    name = "scaled-step"

    def __init__(self, params: ScaledStepParams) -> None:
        self._factor = params.factor

    def hand_in(self, turn: Turn) -> Vector32:
        return turn.start + np.float32(self._factor) * (turn.trained - turn.start)
