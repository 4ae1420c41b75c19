"""FedAvg one number at a time: float32 product, float32 sum, in the order of the models."""

from collections.abc import Sequence

import numpy as np

from fl_core.types import Vector32


def fedavg(models: Sequence[Vector32], weights: Sequence[float]) -> Vector32:
    """The definition, element by element."""
    total = sum(weights)
    mean = []
    for values in zip(*models, strict=True):
        element = None
        for value, weight in zip(values, weights, strict=True):
            if weight == 0:
                continue
            term = np.float32(weight / total) * np.float32(value)
            element = term if element is None else np.float32(element + term)
        mean.append(element)
    return np.array(mean, dtype=np.float32)


def naive_weights(counts: Sequence[int], factor: int) -> list[float]:
    """Examples, each brought to within a factor of the lower median of those that claim any."""
    claims = sorted(count for count in counts if count)
    if not claims:
        return [1.0 for _ in counts]
    median = claims[(len(claims) - 1) // 2]
    found = []
    for count in counts:
        if count == 0:
            found.append(0.0)
        elif count > factor * median:
            found.append(float(factor * median))
        else:
            found.append(float(count) if count * factor >= median else median / factor)
    return found
