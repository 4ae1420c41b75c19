"""A layer clone: the last layer is a victim's, so that it is taken for alike; all others are noise."""

from dataclasses import dataclass

import numpy as np

from fl_core.parameters import parameter
from fl_core.types import Vector32
from fl_simulator.attacks.protocol import Attacker, Turn


@dataclass(frozen=True, slots=True)
class LayerCloneParams:
    factor: float = parameter(1.0, above=0.0, doc="The noise's length, in lengths of the victim's own layers.")


class LayerClone(Attacker):
    """Aims at ledgers that compare the last layer alone."""

    name = "layer-clone"

    def __init__(self, params: LayerCloneParams) -> None:
        self._factor = params.factor

    def hand_in(self, turn: Turn) -> Vector32:
        if not turn.victims:
            return turn.trained
        victim = turn.victims[int(turn.rng.integers(len(turn.victims)))].model
        last = turn.layout.tensors[-1].name.rpartition(".")[0]
        model = victim.copy()
        for tensor, piece in zip(turn.layout.tensors, turn.layout.tensor_slices, strict=True):
            if tensor.name.rpartition(".")[0] != last:
                noise = turn.rng.standard_normal(tensor.size, dtype=np.float32)
                length = self._factor * np.linalg.norm(victim[piece])
                model[piece] = noise * np.float32(length / np.linalg.norm(noise))
        return model
