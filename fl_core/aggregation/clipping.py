"""Norm clipping: no parent's update counts for more than a bound, whatever its author published.

A published model cannot be changed, for its bytes are hashed and signed. So where genesis says ``clip``
instead of ``refuse``, a model is admitted whatever its growth, and clipped where it is averaged:

    u_k  = x_k - g                                     what model k learned since genesis g
    r    = growth * max(median of the |u_k| that are not 0, |g|)
    x'_k = x_k  where |u_k| <= r,  else  g + s u_k  with  s = float32(r / |u_k|)

The update, not the model, is scaled (Sun et al., Can You Really Backdoor Federated Learning?, 2019): a model shrunk
towards zero computes something else, one shrunk towards genesis has merely learned less. The median is the lower of
two, so that of two parents the larger one is clipped; genesis's own norm is the floor, so that liars with tiny
updates cannot clip honest ones away. One model alone is its own measure and stays as it is.

The same to the byte everywhere: norms come from ``fl_core.aggregation.distances`` and a correctly rounded square
root, ``u``, ``s u`` and the sum are float32, element by element.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fl_core.aggregation.distances import squared_distances_to
from fl_core.aggregation.protocol import VectorSource
from fl_core.aggregation.span_pool import ONE_THREAD
from fl_core.types import Vector32


def clipped(sources: Sequence[VectorSource], *, genesis_model: VectorSource, growth: float) -> list[VectorSource]:
    """The sources, those beyond the bound clipped; each is read once for its norm.

    Args:
        sources: Models of one size.
        genesis_model: g, of the same size.
        growth: ``Bounds.max_step_growth``, above 1.
    """
    if len(sources) == 1:
        return list(sources)
    squared = squared_distances_to(genesis_model, sources, ONE_THREAD)
    norms = [math.sqrt(value) for value in squared.tolist()]
    learned = [norm for norm in norms if norm > 0]
    if not learned:
        return list(sources)
    (genesis_squared,) = squared_distances_to(_Zeros(genesis_model.size), [genesis_model], ONE_THREAD).tolist()
    bound = growth * max(statistics.median_low(learned), math.sqrt(genesis_squared))
    return [
        source if norm <= bound else ClippedSource(source, genesis_model, np.float32(bound / norm))
        for source, norm in zip(sources, norms, strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class ClippedSource:
    """A model whose update counts ``scale`` times."""

    model: VectorSource
    genesis_model: VectorSource
    scale: np.float32

    @property
    def size(self) -> int:
        return self.model.size

    def read(self, start: int, stop: int) -> Vector32:
        """The clipped model's values ``start`` to ``stop``, computed anew."""
        first = self.genesis_model.read(start, stop)
        values = np.subtract(self.model.read(start, stop), first)
        np.multiply(values, self.scale, out=values)
        np.add(values, first, out=values)
        return values


@dataclass(frozen=True, slots=True)
class _Zeros:
    size: int

    def read(self, start: int, stop: int) -> Vector32:
        return np.zeros(stop - start, dtype=np.float32)
