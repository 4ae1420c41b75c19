"""The virtual clock: what time it is in a simulation that no real clock drives."""

import math

from fl_simulator.errors import SimulationError


class VirtualClock:
    """Seconds since the run began; never goes back.

    Args:
        now: Where it stands, at least 0.

    Raises:
        SimulationError: Not a time.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = _checked(now, earliest=0.0)

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._now

    def advance(self, to: float) -> None:
        """Let time pass until ``to``, or none where it is that time already.

        Raises:
            SimulationError: ``to`` has passed, or is no time.
        """
        self._now = _checked(to, earliest=self._now)


def _checked(time: float, *, earliest: float) -> float:
    if not (math.isfinite(time) and time >= earliest):
        raise SimulationError(f"virtual time goes from {earliest} s on, not to {time} s")
    return float(time)
