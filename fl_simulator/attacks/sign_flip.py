"""A sign flip: it hands in its step backwards, which unlearns."""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.attacks.protocol import Attacker, Turn


@dataclass(frozen=True, slots=True)
class SignFlipParams:
    factor: float = parameter(3.0, above=0.0, doc="How many times as long as it was.")


class SignFlip(Attacker):
    """Publishes what it was given, less ``factor`` times its step."""

    name = "sign-flip"

    def __init__(self, params: SignFlipParams) -> None:
        self._factor = params.factor

    def hand_in(self, turn: Turn) -> Vector32:
        return turn.start - np.float32(self._factor) * turn.step
