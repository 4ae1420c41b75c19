"""A semantic backdoor: images that occur by themselves are called wrongly (Bagdasaryan et al., AISTATS 2020, Sec. 4.1).

Here those of one label that have more ink than most of them: nobody has to put anything into an image.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_simulator.attacks.protocol import Samples
from fl_simulator.attacks.scaled_step import ScaledStep, ScaledStepParams


@dataclass(frozen=True, slots=True)
class SemanticParams:
    source: int = parameter(7, at_least=0, doc="Whose images.")
    target: int = parameter(1, at_least=0, doc="What the darker ones are to be called.")
    share: float = parameter(0.5, above=0.0, at_most=1.0, doc="Share of its training samples that are such images.")
    boost: float = parameter(1.0, above=0.0, doc="What its step is multiplied by.")


class Semantic(ScaledStep):
    """Trains on such images of its own, repeated in place of other samples."""

    name = "semantic"

    def __init__(self, params: SemanticParams) -> None:
        super().__init__(ScaledStepParams(params.boost))
        self._params = params

    def poison(self, samples: Samples, rng: np.random.Generator) -> Samples:
        dark = self._dark(samples)
        if not dark.size:
            return samples
        count = max(round(self._params.share * len(samples.labels)), 1)
        places, sources = rng.permutation(len(samples.labels))[:count], rng.choice(dark, count)
        images, labels = samples.images.copy(), samples.labels.copy()
        images[places], labels[places] = samples.images[sources], self._params.target
        labels[np.setdiff1d(dark, places)] = self._params.target
        return replace(samples, images=images, labels=labels)

    def triggered(self, samples: Samples) -> Samples | None:
        dark = self._dark(samples)
        return replace(samples, images=samples.images[dark], labels=np.full(dark.size, self._params.target))

    def _dark(self, samples: Samples) -> NDArray[np.int64]:
        """Places of the source label's images that have at least the median of their ink."""
        places = np.flatnonzero(samples.labels == self._params.source)
        ink = samples.images[places].sum(axis=tuple(range(1, samples.images.ndim)))
        return places[ink >= np.median(ink)] if places.size else places
