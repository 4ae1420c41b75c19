"""A little is enough (Baruch et al., NeurIPS 2019): against the others' step, by as little as they differ anyway.

Each value is the victims' mean less z of their standard deviations, on the side from which their steps came: within
what a robust rule expects of honest models, and all attackers alike.
"""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.attacks.protocol import Attacker, Turn


@dataclass(frozen=True, slots=True)
class LittleIsEnoughParams:
    deviations: float = parameter(1.0, above=0.0, doc="z.")


class LittleIsEnough(Attacker):
    """Pulls back unseen."""

    name = "little-is-enough"

    def __init__(self, params: LittleIsEnoughParams) -> None:
        self._deviations = params.deviations

    def hand_in(self, turn: Turn) -> Vector32:
        if not turn.victims:
            return turn.trained
        models = np.stack([each.model for each in turn.victims])  # (n, P)
        forward = np.sign(np.mean([each.step for each in turn.victims], axis=0))
        moved: Vector32 = models.mean(axis=0) - np.float32(self._deviations) * forward * models.std(axis=0)
        return moved
