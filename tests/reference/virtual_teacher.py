"""The virtual teacher one sample and one class at a time (DecDiff+VT, Eq. 7 and 8)."""

import math
from collections.abc import Sequence


def virtual_teacher(outputs: Sequence[Sequence[float]], labels: Sequence[int], *, beta: float) -> float:
    """Mean over samples of KL(teacher, model), from logits."""
    total = 0.0
    for logits, label in zip(outputs, labels, strict=True):
        largest = max(logits)
        sums = math.fsum(math.exp(value - largest) for value in logits)
        for number, value in enumerate(logits):
            log_said = value - largest - math.log(sums)
            taught = beta if number == label else (1 - beta) / (len(logits) - 1)
            if taught > 0:
                total += taught * (math.log(taught) - log_said)
    return total / len(labels)
