"""DecDiff one number at a time, from the paper's formula (DecDiff+VT, Eq. 5) and its text."""

import math
from collections.abc import Sequence

import numpy as np

from fl_core.types import Vector32


def decdiff(own: Vector32, average: Vector32, *, s: float, sizes: Sequence[int] = ()) -> Vector32:
    """``sizes``: how many values each tensor has, for a distance of its own; none for one distance in all."""
    merged: list[float] = []
    for size in sizes or [len(own)]:
        start = len(merged)
        pairs = [(float(own[i]), float(average[i])) for i in range(start, start + size)]
        distance = math.sqrt(math.fsum((w_bar - w) ** 2 for w, w_bar in pairs))
        merged.extend(w + (w_bar - w) / (distance + s) for w, w_bar in pairs)
    return np.array(merged, dtype=np.float32)
