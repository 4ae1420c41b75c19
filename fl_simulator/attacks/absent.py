"""Nobody: the places stay empty. What the others come to then is what every attack is measured against."""

from fl_core.parameters import NoParams
from fl_simulator.attacks.protocol import Attacker


class Absent(Attacker):
    """Takes no part."""

    name = "absent"
    takes_part = False

    def __init__(self, params: NoParams) -> None:
        del params
