"""The gain of a number of nodes: √n, as if all were equally central (k-regular and Erdős–Rényi graphs nearly are)."""

import math
from dataclasses import dataclass, field
from typing import Final

from numpy.random import Generator

from fl_core.parameters import parameter
from fl_simulator.graphs.gain.protocol import NetworkSketch, needed

NAME: Final = "size"


@dataclass(frozen=True, slots=True)
class SizeParams:
    """How many nodes there are."""

    nodes: int = parameter(0, at_least=0, doc="Number of nodes; 0: what the node knows.")
    error_factor: float = parameter(
        1.0, above=0, doc="The number of nodes is taken so many times: an over- or underestimate (Fig. 7a)."
    )


@dataclass(frozen=True, slots=True)
class Size:
    """Of n alone (Uncoordinated initialisation, Sec. 4.3: a gain of √n for random k-regular and Erdős–Rényi)."""

    params: SizeParams = field(default_factory=SizeParams)
    name: str = NAME

    def estimate(self, sketch: NetworkSketch, *, rng: Generator) -> float:  # noqa: ARG002 -- nothing is drawn
        """See ``GainEstimator.estimate``; an underestimate below one node counts as one."""
        nodes = self.params.nodes or needed(sketch.num_nodes, "the number of nodes", owner=NAME)
        return math.sqrt(max(1.0, nodes * self.params.error_factor))
