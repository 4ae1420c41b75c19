"""The gain of a family of graphs: n^α, for ||v_steady|| falls as n^-α with an exponent of the family (Fig. 8a, b).

Exponents and factors are those that ``experiments/uncoordinated_initialisation`` fitted to 64 to 4,096 nodes of mean
degree 16, and to configuration models of degrees from 3 up; the Gain paper shows its exponents in a
figure, without numbers.
Deviation: it says that the norm "is simply" n^-α, which fits families that are not homogeneous badly, so here each has
a factor in front, too; with ``factor = 1`` it is the Gain paper's law. No graph's gain is above √n, so no family's is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.random import Generator

from fl_core.parameters import parameter
from fl_simulator.graphs.gain.protocol import NetworkSketch, needed

NAME: Final = "family"
CONFIGURATION: Final = "configuration"

FAMILIES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"k-regular": (0.5, 1.0), "erdos-renyi": (0.498, 0.986), "barabasi-albert": (0.434, 1.196)}
)
"""α and factor of the families that have one of each."""

HEAVY_TAILS: Final[Mapping[float, tuple[float, float]]] = MappingProxyType(
    {
        2.0: (0.265, 2.259),
        2.5: (0.338, 1.679),
        3.0: (0.436, 1.151),
        3.5: (0.484, 0.969),
        4.0: (0.495, 0.954),
        5.0: (0.498, 0.985),
    }
)
"""α and factor of configuration models with ``p(k) ~ k^-γ``, by γ ascending; both linear in between."""


@dataclass(frozen=True, slots=True)
class FamilyParams:
    """Which family, or which law."""

    family: str = parameter("erdos-renyi", choices=(*FAMILIES, CONFIGURATION), doc="How the network came to be.")
    gamma: float = parameter(
        2.5,
        at_least=min(HEAVY_TAILS),
        at_most=max(HEAVY_TAILS),
        doc="Exponent γ of the degree distribution; read where the family is `configuration`.",
    )
    exponent: float = parameter(
        0.0,
        at_least=0,
        at_most=1,
        doc="Size exponent α, over- or underestimated (Fig. 7b): the gain is n^α. 0: the family's, up to √n.",
    )
    factor: float = parameter(
        0.0, at_least=0, doc="What stands before the family's n^α; 0: the family's own. 1 is the Gain paper's law."
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
        known = self.params.nodes or needed(sketch.num_nodes, "the number of nodes", owner=NAME)
        nodes = max(1.0, known * self.params.error_factor)
        if self.params.exponent:
            return float((self.params.factor or 1.0) * nodes**self.params.exponent)
        exponent, factor = self._law()
        return float(min(max(1.0, (self.params.factor or factor) * nodes**exponent), nodes**0.5))

    def _law(self) -> tuple[float, float]:
        if self.params.family in FAMILIES:
            return FAMILIES[self.params.family]
        exponents, factors = zip(*HEAVY_TAILS.values(), strict=True)
        gammas = list(HEAVY_TAILS)
        return (
            float(np.interp(self.params.gamma, gammas, exponents)),
            float(np.interp(self.params.gamma, gammas, factors)),
        )
