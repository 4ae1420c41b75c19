"""The gain of the whole graph: 1 / ||v_steady||."""

from dataclasses import dataclass, field
from typing import Final

from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.gain.eigenvector import gain
from fl_simulator.graphs.gain.protocol import NetworkSketch

NAME: Final = "exact"


@dataclass(frozen=True, slots=True)
class ExactParams:
    """What a node says of itself."""

    self_weight: float = parameter(
        1.0, above=0, doc="Weight of a node's own model beside those of its neighbours (the diagonal in Eq. 4)."
    )


@dataclass(frozen=True, slots=True)
class Exact:
    """The Gain paper's exact strategy (Uncoordinated initialisation, Sec. 4.3)."""

    params: ExactParams = field(default_factory=ExactParams)
    name: str = NAME

    def estimate(self, sketch: NetworkSketch, *, rng: Generator) -> float:  # noqa: ARG002 -- nothing is drawn
        """See ``GainEstimator.estimate``.

        Raises:
            ParameterError: The graph is not known, or some node's model never reaches some other.
        """
        if sketch.graph is None:
            raise ParameterError(f"gain estimator {NAME!r} needs the whole graph, which this node does not know")
        return gain(sketch.graph, self_weight=self.params.self_weight)
