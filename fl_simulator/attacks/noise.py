"""Noise within the bounds: in place of its step a Gaussian one, as long as the others' steps times a factor."""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.attacks.protocol import Attacker, Turn


@dataclass(frozen=True, slots=True)
class NoiseParams:
    factor: float = parameter(3.0, above=0.0, doc="Its length, in medians of the victims' steps.")


class Noise(Attacker):
    """Publishes what it was given, and noise."""

    name = "noise"

    def __init__(self, params: NoiseParams) -> None:
        self._factor = params.factor

    def hand_in(self, turn: Turn) -> Vector32:
        noise = turn.rng.standard_normal(turn.start.size, dtype=np.float32)
        noise *= np.float32(self._factor * turn.usual_norm / np.linalg.norm(noise))
        return turn.start + noise
