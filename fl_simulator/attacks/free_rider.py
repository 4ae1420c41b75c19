"""A free rider: it hands in another's newest model, and has never trained."""

from fl_core.parameters import NoParams
from fl_core.types import Vector32
from fl_simulator.attacks.protocol import Attacker, Turn


class FreeRider(Attacker):
    """Copies a victim that it draws each time."""

    name = "free-rider"

    def __init__(self, params: NoParams) -> None:
        del params

    def hand_in(self, turn: Turn) -> Vector32:
        if not turn.victims:
            return turn.trained
        return turn.victims[int(turn.rng.integers(len(turn.victims)))].model.copy()
