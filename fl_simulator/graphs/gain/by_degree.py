"""The gain of a sampled degree distribution: √n <k + 1> / √<(k + 1)²>.

In an undirected graph v_steady is (k_i + 1) / Σ (k_j + 1), so its norm needs the number of nodes and two moments of the
degrees, which a sample gives. With all degrees and n, this is the exact gain.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.gain.protocol import NetworkSketch, needed

NAME: Final = "degrees"


@dataclass(frozen=True, slots=True)
class DegreesParams:
    """What is polled, and how wrong the number of nodes is."""

    sample: int = parameter(0, at_least=0, doc="Degrees drawn of those that the node knows; 0: all of them.")
    error_factor: float = parameter(
        1.0, above=0, doc="The number of nodes is taken so many times: an over- or underestimate (Fig. 7a)."
    )


@dataclass(frozen=True, slots=True)
class Degrees:
    """Of n and a sample of degrees (Uncoordinated initialisation, Sec. 4.4: polling a sample for a distribution)."""

    params: DegreesParams = field(default_factory=DegreesParams)
    name: str = NAME

    def estimate(self, sketch: NetworkSketch, *, rng: Generator) -> float:
        """See ``GainEstimator.estimate``; draws without replacement."""
        if sketch.degrees is None:
            raise ParameterError(
                f"gain estimator {NAME!r} needs degrees of polled nodes, which this node does not know"
            )
        nodes = self.params.error_factor * needed(sketch.num_nodes, "the number of nodes", owner=NAME)
        polled = sketch.degrees + 1
        if 0 < self.params.sample < polled.size:
            polled = rng.choice(polled, self.params.sample, replace=False)
        return max(1.0, math.sqrt(nodes) * float(polled.mean()) / math.sqrt(float(np.square(polled).mean())))
