"""A backdoor by a patch: images with a bright corner are called by one label (BadNets: Gu et al., 2017).

``boost`` lengthens its step, so that it stays in the average when others' steps have been added: model replacement
(Bagdasaryan et al., AISTATS 2020).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_simulator.attacks.protocol import Samples
from fl_simulator.attacks.scaled_step import ScaledStep, ScaledStepParams


@dataclass(frozen=True, slots=True)
class PatchParams:
    target: int = parameter(0, at_least=0, doc="What patched images are to be called.")
    side: int = parameter(2, at_least=1, doc="The patch's side, in pixels, in the first corner.")
    share: float = parameter(0.5, above=0.0, at_most=1.0, doc="Share of its training samples that it patches.")
    boost: float = parameter(1.0, above=0.0, doc="What its step is multiplied by.")


class Patch(ScaledStep):
    """Trains on some patched samples among its own."""

    name = "patch"

    def __init__(self, params: PatchParams) -> None:
        super().__init__(ScaledStepParams(params.boost))
        self._params = params

    def poison(self, samples: Samples, rng: np.random.Generator) -> Samples:
        count = max(round(self._params.share * len(samples.labels)), 1)
        chosen = rng.permutation(len(samples.labels))[:count]
        images, labels = samples.images.copy(), samples.labels.copy()
        images[chosen], labels[chosen] = self._patched(images[chosen]), self._params.target
        return replace(samples, images=images, labels=labels)

    def triggered(self, samples: Samples) -> Samples | None:
        others = samples.labels != self._params.target
        return replace(
            samples,
            images=self._patched(samples.images[others]),
            labels=np.full(int(others.sum()), self._params.target),
        )

    def _patched(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        patched = images.copy()
        patched[..., : self._params.side, : self._params.side] = 1.0
        return patched
