"""The numerical model of the first rounds: vectors that are averaged among peers while noise stands for training.

Each node has d parameters of N(0, σ_init²); each round it averages them over its neighbourhood and adds N(0, σ_noise²).
What comes of it: σ_an, the spread across nodes, falls until noise holds it up; σ_ap, the spread within a node, falls to
σ_init ||v_steady|| and stays there while noise is small. The gain lifts the second, the first says when training begins
to tell.

Source: Uncoordinated initialisation, Sec. 4.2, 4.3 and 4.5. Deviation: Sec. 4.2 sums over the neighbours alone, Eq. (4)
over neighbours and the node itself. Which it is, the mixing matrix says; ``averaging_matrix`` is Eq. (4).
"""

from typing import Final

import numpy as np
from numpy.random import Generator

from fl_core.errors import ParameterError
from fl_core.types import Vector64
from fl_simulator.graphs.gain.dispersion import parameter_spread
from fl_simulator.graphs.mixing import MixingMatrix

_LAST_PART: Final = 4
"""A curve's end is its last fourth."""


def early_stage(
    matrix: MixingMatrix,
    *,
    num_parameters: int,
    rounds: int,
    sigma_init: float = 1.0,
    sigma_noise: float,
    rng: Generator,
) -> tuple[Vector64, Vector64]:
    """Play the numerical model.

    Args:
        matrix: How nodes average.
        num_parameters: d, at least 1.
        rounds: At least 0.
        sigma_init: Standard deviation of initial parameters, at least 0.
        sigma_noise: Standard deviation of a round's noise, at least 0.
        rng: All values.

    Returns:
        σ_an and σ_ap before the first round and after each, shape ``(rounds + 1,)``.

    Source: [Gain Sec. 4.2].
    """
    values = sigma_init * rng.standard_normal((matrix.num_nodes, num_parameters))
    spreads = [parameter_spread(values)]
    averages = matrix.dense()  # (n, n)
    for _ in range(rounds):
        values = averages @ values
        values += sigma_noise * rng.standard_normal(values.shape)
        spreads.append(parameter_spread(values))
    sigma_an, sigma_ap = np.array(spreads).T
    return sigma_an, sigma_ap


def stabilisation_time(sigma_an: Vector64, *, tolerance: float = 0.1) -> int | None:
    """The round from which on σ_an is flat.

    The curve's level is the mean of its last fourth. It is flat from the first round after which it is never more than
    ``tolerance`` above that level.

    Args:
        sigma_an: One value for each round from 0, shape ``(rounds + 1,)``, at least four.
        tolerance: Share of the level, above 0.

    Returns:
        The round; None where that would be in the last fourth or where the last fourth still falls: play more rounds.

    Raises:
        ParameterError: Too few rounds.

    Source: Uncoordinated initialisation, Sec. 4.5, which gives no number for "flattens out".
    """
    if len(sigma_an) < _LAST_PART:
        raise ParameterError(f"{len(sigma_an)} rounds are too few to tell whether a curve is flat; play more")
    end = len(sigma_an) - len(sigma_an) // _LAST_PART
    level = float(sigma_an[end:].mean())
    above = np.flatnonzero(sigma_an > (1 + tolerance) * level)
    first = int(above[-1]) + 1 if above.size else 0
    return first if first < end else None
