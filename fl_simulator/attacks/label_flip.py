"""A label flip: it trains on labels counted from the other end (Fang et al., USENIX Security 2020, Sec. 5.1)."""

from dataclasses import replace

import numpy as np

from fl_core.parameters import NoParams
from fl_simulator.attacks.protocol import Attacker, Samples


class LabelFlip(Attacker):
    """Of L labels, l becomes L - 1 - l."""

    name = "label-flip"

    def __init__(self, params: NoParams) -> None:
        del params

    def poison(self, samples: Samples, rng: np.random.Generator) -> Samples:
        del rng
        return replace(samples, labels=samples.num_classes - 1 - samples.labels)
