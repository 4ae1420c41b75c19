"""The gain of a family of graphs: n^α, as ||v_steady|| = n^-α with an exponent that the family has (Fig. 8a, b).

Exponents are those that experiments/uncoordinated_initialisation fitted; the paper shows them in a figure, without
numbers. The law has no factor in front, as in the paper: what it lacks is in the README's comparison.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.random import Generator

from fl_core.initialisation.protocol import NetworkSketch, needed
from fl_core.parameters import parameter

NAME: Final = "family"

EXPONENTS: Final[Mapping[str, float]] = MappingProxyType({"k-regular": 0.5, "erdos-renyi": 0.5, "barabasi-albert": 0.5})
"""α of each family with one exponent."""

HEAVY_TAIL: Final[Mapping[float, float]] = MappingProxyType({2.0: 0.5, 3.0: 0.5})
"""α of configuration-model graphs with ``p(k) ~ k^-γ``, by γ; between them, linear."""


@dataclass(frozen=True, slots=True)
class FamilyParams:
    """Which family, or which exponent."""

    family: str = parameter(
        "erdos-renyi",
        choices=("k-regular", "erdos-renyi", "barabasi-albert", "configuration"),
        doc="How the network came to be.",
    )
    gamma: float = parameter(
        2.5,
        at_least=min(HEAVY_TAIL),
        at_most=max(HEAVY_TAIL),
        doc="Exponent γ of the degree distribution; read where the family is `configuration`.",
    )
    exponent: float = parameter(
        0.0, at_least=0, at_most=0.5, doc="Size exponent α, over- or underestimated (Fig. 7b); 0: the family's."
    )
    nodes: int = parameter(0, at_least=0, doc="Number of nodes; 0: what the node knows.")
    error_factor: float = parameter(
        1.0, above=0, doc="The number of nodes is taken so many times: an over- or underestimate (Fig. 7a)."
    )


@dataclass(frozen=True, slots=True)
class Family:
    """Of n and a family (Uncoordinated initialisation, Sec. 4.4)."""

    params: FamilyParams = field(default_factory=FamilyParams)
    name: str = NAME

    def estimate(self, sketch: NetworkSketch, *, rng: Generator) -> float:  # noqa: ARG002 -- nothing is drawn
        """See ``GainEstimator.estimate``; an underestimate below one node counts as one."""
        nodes = self.params.nodes or needed(sketch.num_nodes, "the number of nodes", owner=NAME)
        return float(max(1.0, nodes * self.params.error_factor) ** self._exponent())

    def _exponent(self) -> float:
        if self.params.exponent:
            return self.params.exponent
        if self.params.family in EXPONENTS:
            return EXPONENTS[self.params.family]
        return float(np.interp(self.params.gamma, list(HEAVY_TAIL), list(HEAVY_TAIL.values())))
