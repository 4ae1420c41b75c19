"""A backdoor that knows the robust rule: each value is moved only as far as the rule still counts it.

The trimmed mean drops the k least and greatest values of a coordinate; the median all but the middle. So the backdoored
model of ``patch`` is put, value by value, between the least and the greatest honest value that are kept beside those of
all attackers: none of theirs is dropped (the idea of Fang et al., USENIX Security 2020, Sec. 4, for a backdoor).
"""

import math
from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.attacks.patch import Patch, PatchParams
from fl_simulator.attacks.protocol import Turn


@dataclass(frozen=True, slots=True)
class AdaptiveParams(PatchParams):
    against: str = parameter("trimmed-mean", choices=("trimmed-mean", "median"), doc="The rule that it expects.")
    trim_share: float = parameter(0.34, at_least=0.0, below=0.5, doc="The trimmed mean's.")


class Adaptive(Patch):
    """Stays where the rule looks."""

    name = "adaptive"

    def __init__(self, params: AdaptiveParams) -> None:
        super().__init__(params)
        self._rule = params

    def hand_in(self, turn: Turn) -> Vector32:
        wanted = super().hand_in(turn)
        if not turn.victims:
            return wanted
        honest = np.sort(np.stack([each.model for each in turn.victims]), axis=0)  # (n, P)
        models = len(honest) + len(turn.colluders) + 1
        share = self._rule.trim_share if self._rule.against == "trimmed-mean" else 0.5
        low = min(math.floor(share * models), (len(honest) - 1) // 2)
        return np.clip(wanted, honest[low], honest[len(honest) - 1 - low])
