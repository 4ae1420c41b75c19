"""A backdoor of small norm: that of ``patch``, whose step is no longer than the others' (Sun et al., 2019, Sec. 4)."""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.attacks.patch import Patch, PatchParams
from fl_simulator.attacks.protocol import Turn


@dataclass(frozen=True, slots=True)
class SmallNormParams(PatchParams):
    factor: float = parameter(1.0, above=0.0, doc="Its step's greatest length, in medians of the victims' steps.")


class SmallNorm(Patch):
    """Shortens its step where it is longer."""

    name = "small-norm"

    def __init__(self, params: SmallNormParams) -> None:
        super().__init__(params)
        self._most = params.factor

    def hand_in(self, turn: Turn) -> Vector32:
        step = super().hand_in(turn) - turn.start
        longest = self._most * turn.usual_norm
        return turn.start + step * np.float32(min(1.0, longest / max(float(np.linalg.norm(step)), 1e-30)))
