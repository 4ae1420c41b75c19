"""Prints the SHA-256 of cosines, norms and sketches of the same vectors, for processes that may use more or less of the CPU.

The vectors come of integers and powers of two alone (PCG64's raw output is fixed, NumPy's distributions are not),
so that every machine has the same.
"""

import hashlib
import sys

import numpy as np

from fl_core.models import model_norm
from fl_core.similarity import CandidateVectors, Similarities
from fl_core.sketch import Sketch
from fl_core.types import Matrix32, TxId

KNOWN = "1ee726ced028d71a666b175c5063062aeeb060027ed295f0ca150c65d3a4fc80"
"""First printed by an Intel Xeon with AVX-512, NumPy 2.4 and OpenBLAS 0.3.31."""

KNOWN_SKETCHES = "31b5491533f659861c7b49f0eea45a6e4dc290cd5b7a72b91f21b32cfa3fddd3"
"""Likewise."""

SIZES = ((300, 1290), (40, 20_011), (3, 70_007))
"""Tips and values of each: one layer, in several tiles, and longer than any block."""


def vectors(count: int, size: int, *, seed: int) -> Matrix32:
    """``(count, size)``: 24-bit integers times 2^-15 to 2^0, every eleventh zero."""
    raw = np.random.PCG64(seed).random_raw(count * size).reshape(count, size)
    values = (raw >> np.uint64(40)).astype(np.float32) - np.float32(1 << 23)
    values[:, ::11] = 0
    halvings = np.array([2.0**-power for power in range(16)], dtype=np.float32)
    return values * halvings[raw & np.uint64(15)]


def similarities(count: int, size: int) -> list[Similarities]:
    """Of the last seven of ``count`` models with all of them, whose updates are small; then of one of these alone."""
    genesis, *models = vectors(count + 1, size, seed=size)
    models = [genesis + model * np.float32(2**-7) for model in models]
    tips = CandidateVectors(genesis)
    ids = [TxId(f"{number:064x}") for number in range(count)]
    for each, model in zip(ids, models, strict=True):
        tips.add(each, model)
    together = tips.compare(np.stack(models[-7:]), [ids] * len(models[-7:]))
    return [*together, *tips.compare(models[-1][None], [ids])]


def digest() -> str:
    """Of cosines of models, of updates and with genesis, and of every model's norm."""
    found = hashlib.sha256()
    for count, size in SIZES:
        for each in similarities(count, size):
            found.update(each.models.tobytes() + each.updates.tobytes() + each.genesis.hex().encode())
        for model in vectors(count, size, seed=3):
            found.update(model_norm(model).hex().encode())
    return found.hexdigest()


def sketches_digest() -> str:
    """Of every model's sketch of 513 values."""
    found = hashlib.sha256()
    for count, size in SIZES:
        sketch = Sketch(size, dimensions=513, seed=size)
        for model in vectors(count, size, seed=4):
            found.update(sketch.of(model).tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(f"{digest()} {sketches_digest()}")
