"""What a node makes of what it knows of its network: estimates of the gain 1 / ‖v_steady‖ ([Gain Sec. 4.4]).

The gain is what initial weights are multiplied with, so that averaging among peers leaves them with the standard
deviation that their initialiser meant ([Gain Alg. 1], line 5). No graph's gain is below 1 or above √n.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from fl_core.types import Vector64

FAMILIES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"k-regular": (0.5, 1.0), "erdos-renyi": (0.498, 0.986), "barabasi-albert": (0.434, 1.196)}
)
"""α and factor of the families of graphs that have one of each."""

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


def gain_by_size(nodes: float) -> float:
    """√n, as if all were equally central: k-regular and Erdős-Rényi graphs nearly are ([Gain Sec. 4.3]).

    Args:
        nodes: n, or an estimate of it; less than 1 counts as 1.
    """
    return math.sqrt(max(1.0, nodes))


def gain_by_degrees(nodes: float, degrees: Vector64) -> float:
    """√n <k + 1> / √<(k + 1)²>, which is exact for an undirected graph where n and all degrees are known.

    Args:
        nodes: n, or an estimate of it.
        degrees: Of polled nodes, shape ``(m,)``, m at least 1.
    """
    polled = degrees + 1
    return max(1.0, math.sqrt(nodes) * float(polled.mean()) / math.sqrt(float(np.square(polled).mean())))


def gain_by_family(nodes: float, family: str, *, gamma: float = 2.5, factor: float = 0.0) -> float:
    """``factor`` n^α, up to √n, for ‖v_steady‖ falls as n^-α with an exponent of the family (Fig. 8a, b).

    Exponents and factors are those that ``experiments/uncoordinated_initialisation`` fitted to 64 to 4,096 nodes of
    mean degree 16, and to configuration models of degrees from 3 up; the Gain paper shows its exponents in a figure,
    without numbers. Deviation: it says that the norm "is simply" n^-α, which fits families that are not homogeneous
    badly, so here each has a factor in front, too.

    Args:
        nodes: n, or an estimate of it; less than 1 counts as 1.
        family: One of ``FAMILIES``, or ``configuration``.
        gamma: Exponent of the configuration model's degrees, in 2 to 5.
        factor: Instead of the family's, if above 0; 1 is the Gain paper's law.
    """
    known = max(1.0, nodes)
    if family in FAMILIES:
        exponent, fitted = FAMILIES[family]
    else:
        gammas, laws = list(HEAVY_TAILS), zip(*HEAVY_TAILS.values(), strict=True)
        exponent, fitted = (float(np.interp(gamma, gammas, each)) for each in laws)
    return float(min(max(1.0, (factor or fitted) * known**exponent), known**0.5))
