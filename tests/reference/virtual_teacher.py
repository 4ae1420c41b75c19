"""DecDiff's loss (Eq. 7-8) as a sum over classes, one sample after the other; KL(teacher || model)."""

import math
from collections.abc import Sequence


def taught(label: int, classes: int, *, beta: float) -> list[float]:
    """Eq. 7: what the virtual teacher believes of each class."""
    return [beta if each == label else (1 - beta) / (classes - 1) for each in range(classes)]


def loss(logits: Sequence[float], label: int, *, beta: float) -> float:
    """Eq. 8 for one sample."""
    total = sum(math.exp(logit) for logit in logits)
    return sum(
        p * (math.log(p) - math.log(math.exp(logit) / total))
        for p, logit in zip(taught(label, len(logits), beta=beta), logits, strict=True)
        if p > 0
    )
