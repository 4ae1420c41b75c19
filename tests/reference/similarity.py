"""Cosines by the book, in Python floats."""

import math
from collections.abc import Sequence


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Eq. 5; 0 when either vector is zero."""
    norms = math.sqrt(math.fsum(a * a for a in left)) * math.sqrt(math.fsum(b * b for b in right))
    return math.fsum(a * b for a, b in zip(left, right, strict=True)) / norms if norms else 0.0


def update_cosine(left: Sequence[float], right: Sequence[float], genesis: Sequence[float]) -> float:
    """Eq. 5 after genesis was subtracted from both."""
    return cosine(
        [a - g for a, g in zip(left, genesis, strict=True)],
        [b - g for b, g in zip(right, genesis, strict=True)],
    )
