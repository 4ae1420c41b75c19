"""How many rounds averaging needs: mixing time by iteration, and the spectral gap.

The walk is that of the mixing matrix itself, which stays with probability 1 / (k_i + 1); it is not the lazy walk of the
literature, whose time is the same up to a constant factor. All of it works on the matrix written out, so it is meant
for up to a few thousand nodes: 4,096 are 128 MiB, and a mixing time of t holds log₂ t of its powers.

Source: [Gain Sec. 4.5]; Levin, Peres: Markov Chains and Mixing Times, Sec. 4.5 (definition of the mixing time).
"""

from typing import Final

import numpy as np

from fl_core.errors import ParameterError
from fl_core.types import Vector64
from fl_simulator.graphs.gain.steady_state import steady_state
from fl_simulator.graphs.mixing import MixingMatrix

MIXED: Final = 0.25
"""The literature's tolerance."""
_MOST_DOUBLINGS: Final = 30


def mixing_time(matrix: MixingMatrix) -> int:
    """The least t at which, wherever it began, the walk is within ``MIXED`` of v_steady in total variation.

    Found by squaring and bisection, which is exact: that distance never grows from round to round.

    Args:
        matrix: Row-stochastic P of an undirected graph.

    Raises:
        ParameterError: Nodes that do not all reach one another, or a walk that never settles because it is periodic.
    """
    steady = steady_state(matrix)
    now = np.eye(matrix.num_nodes)
    if _distance(now, steady) <= MIXED:
        return 0
    powers = [matrix.dense()]
    while _distance(powers[-1], steady) > MIXED:
        if len(powers) > _MOST_DOUBLINGS:
            raise ParameterError(
                f"this walk has not mixed after {1 << _MOST_DOUBLINGS} rounds: it is periodic; let nodes keep a share "
                "of their own model"
            )
        powers.append(powers[-1] @ powers[-1])
    rounds = 0
    for doublings, power in reversed(list(enumerate(powers))):
        further = now @ power
        if _distance(further, steady) > MIXED:
            now, rounds = further, rounds + (1 << doublings)
    return rounds + 1


def spectral_gap(matrix: MixingMatrix) -> float:
    """1 - |λ₂|, the distance from 1 of the second largest modulus of an eigenvalue; 1 for a single node.

    Args:
        matrix: Row-stochastic P in detailed balance, so that its eigenvalues are those of a symmetric matrix.

    Raises:
        ParameterError: Nodes that do not all reach one another.
    """
    roots = np.sqrt(steady_state(matrix))
    if matrix.num_nodes == 1:
        return 1.0
    similar = roots[:, None] * matrix.dense() / roots
    moduli = np.abs(np.linalg.eigvalsh((similar + similar.T) / 2))
    return max(0.0, 1 - float(np.sort(moduli)[-2]))


def _distance(power: Vector64, steady: Vector64) -> float:
    """The worst start's total variation."""
    return float(np.abs(power - steady).sum(axis=1).max()) / 2
