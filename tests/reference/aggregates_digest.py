"""Prints the SHA-256 of what every aggregator makes of the same models, and of distances.

Run in processes whose NumPy may use more or less of the CPU: the digest must not tell them apart.
"""

import hashlib
import sys

import numpy as np

from fl_core.aggregation import AGGREGATORS, ArraySource
from fl_core.aggregation.distances import squared_distances
from fl_core.aggregation.span_pool import ONE_THREAD

COUNT, SIZE = 17, 40_003


def digest() -> str:
    """Of models with zeros of both signs, values of many magnitudes, and an outlier."""
    rng = np.random.default_rng(3)
    genesis = rng.standard_normal(SIZE, dtype=np.float32)
    models = genesis + np.float32(0.3) * rng.standard_normal((COUNT, SIZE), dtype=np.float32)
    models *= (10.0 ** rng.integers(-3, 4, SIZE)).astype(np.float32)
    models[:, ::7], models[::2, ::7] = -0.0, 0.0
    models[4] *= 50
    sources = [ArraySource(model) for model in models]
    found = hashlib.sha256(squared_distances(sources, ONE_THREAD).tobytes())
    for name in AGGREGATORS:
        found.update(AGGREGATORS.build(name, {}).aggregate(sources, [1.0, 2.0] * (COUNT // 2) + [3.0]).tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest())
