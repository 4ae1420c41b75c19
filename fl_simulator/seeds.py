"""One seed for a run, and a generator of its own for everything that draws.

A generator is named for what it decides (``participants``, ``initial model`` …), so that drawing more of one thing
changes nothing of another, and a run with the same seed is the same run.
"""

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Seeds:
    """Named generators that one seed decides."""

    seed: int

    def generator(self, name: str, *numbers: int) -> np.random.Generator:
        """The generator of this name, at its beginning; ``numbers`` (a client, a round) tell its siblings apart."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode()), *numbers])
