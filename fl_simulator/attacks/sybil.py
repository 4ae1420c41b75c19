"""Sybils: one attacker under many names. The first plants ``patch``'s backdoor; all others say the same again."""

from typing import Final

import numpy as np

from fl_core.types import Vector32
from fl_simulator.attacks.patch import Patch
from fl_simulator.attacks.protocol import Turn

_APART: Final = 1e-4
"""Of the usual step: names whose models are the same to the byte would give themselves away."""


class Sybil(Patch):
    """Repeats its first name's newest model under each other one."""

    name = "sybil"

    def hand_in(self, turn: Turn) -> Vector32:
        if not turn.colluders or turn.client < turn.colluders[0].client:
            return super().hand_in(turn)
        noise = turn.rng.standard_normal(turn.start.size, dtype=np.float32)
        noise *= np.float32(_APART * turn.usual_norm / np.linalg.norm(noise))
        return turn.colluders[0].model + noise
