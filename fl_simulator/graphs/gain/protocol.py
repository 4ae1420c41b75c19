"""What a node may know of its network, and what it makes of it: an estimate of its gain.

The gain is 1 / ||v_steady||: what initial weights are multiplied with, so that averaging among peers leaves them with
the standard deviation that their initialiser meant (Uncoordinated initialisation, Sec. 4.3, Alg. 1, line 5).
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.types import Vector64
from fl_simulator.graphs.topology.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class NetworkSketch:
    """What one node knows of its network (Alg. 1, line 2: "a sketch of the comms network"); each part may be unknown.

    Attributes:
        num_nodes: How many nodes there are, or an estimate such as push-sum's; at least 1, not always whole.
        degrees: Of nodes that were polled, shape ``(m,)``, m >= 1, each at least 0.
        graph: The whole network.
    """

    num_nodes: float | None = None
    degrees: Vector64 | None = None
    graph: Graph | None = None

    def __post_init__(self) -> None:
        if self.num_nodes is not None and not (math.isfinite(self.num_nodes) and self.num_nodes >= 1):
            raise ParameterError(f"a network has at least 1 node and finitely many, not {self.num_nodes}")
        if self.degrees is not None and not (
            self.degrees.ndim == 1
            and self.degrees.size
            and np.isfinite(self.degrees).all()
            and (self.degrees >= 0).all()
        ):
            raise ParameterError("polled degrees are a vector of at least one number, none below 0")

    @classmethod
    def of(cls, graph: Graph) -> "NetworkSketch":
        """Everything there is to know."""
        return cls(num_nodes=graph.num_nodes, degrees=graph.degrees.astype(np.float64), graph=graph)


@runtime_checkable
class GainEstimator(Protocol):
    """A rule that makes a gain of a sketch; instances are immutable."""

    @property
    def name(self) -> str:
        """The registry's name for this rule."""
        ...

    @property
    def params(self) -> Any:
        """The frozen dataclass of its parameters."""
        ...

    def estimate(self, sketch: NetworkSketch, *, rng: Generator) -> float:
        """The gain of one node that knows ``sketch``: finite, at least 1.

        Args:
            sketch: What the node knows.
            rng: Every draw; an estimator that draws nothing leaves it as it is.

        Raises:
            ParameterError: The sketch lacks what this rule needs; the message says what.
        """
        ...


def needed(value: float | None, what: str, *, owner: str) -> float:
    """``value``, which a rule cannot do without.

    Raises:
        ParameterError: It is not known.
    """
    if value is None:
        raise ParameterError(f"gain estimator {owner!r} needs {what}, which this node does not know")
    return value
