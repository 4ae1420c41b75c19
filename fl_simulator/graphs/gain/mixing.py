"""How many rounds averaging needs: mixing time by iteration, and from the spectral gap.

The walk is that of the mixing matrix itself, which stays with probability 1 / (k_i + 1); it is not the lazy walk of the
literature, whose time is the same up to a constant factor. All of it works on the matrix written out, so it is meant
for up to a few thousand nodes.

Source: Uncoordinated initialisation, Sec. 4.5; Levin, Peres: Markov Chains and Mixing Times, Sec. 4.5 (definition of
the mixing time), Thm. 12.4 and 12.5 (bounds by the relaxation time).
"""

import math
from typing import Final

import numpy as np

from fl_core.errors import ParameterError
from fl_core.types import Vector64
from fl_simulator.graphs.gain.eigenvector import steady_state_of
from fl_simulator.graphs.topology.mixing import MixingMatrix

MOST_NODES: Final = 4096
"""A matrix of so many nodes is 128 MiB, and a mixing time of t holds log₂ t of its powers: ten, but 20 on a ring."""
_MOST_DOUBLINGS: Final = 30
_BALANCED: Final = 1e-12


def mixing_time(matrix: MixingMatrix, *, tolerance: float = 0.25) -> int:
    """The least t at which, wherever it began, the walk is within ``tolerance`` of v_steady in total variation.

    Found by squaring and bisection, which is exact: that distance never grows from round to round.

    Args:
        matrix: Row-stochastic P.
        tolerance: In (0, 1); 1/4 is the literature's.

    Raises:
        ParameterError: Too many nodes, nodes that do not all reach one another, a walk that never settles because it is
            periodic, or a tolerance out of range.
    """
    if not 0 < tolerance < 1:
        raise ParameterError(f"a mixing time's tolerance lies between 0 and 1, not at {tolerance}")
    steady = steady_state_of(_of_moderate_size(matrix))
    now = np.eye(matrix.num_nodes)
    if _distance(now, steady) <= tolerance:
        return 0
    powers = [matrix.dense()]
    while _distance(powers[-1], steady) > tolerance:
        if len(powers) > _MOST_DOUBLINGS:
            raise ParameterError(
                f"this walk has not mixed after {1 << _MOST_DOUBLINGS} rounds: it is periodic; let nodes keep a share "
                "of their own model"
            )
        powers.append(powers[-1] @ powers[-1])
    rounds = 0
    for doublings, power in reversed(list(enumerate(powers))):
        further = now @ power
        if _distance(further, steady) > tolerance:
            now, rounds = further, rounds + (1 << doublings)
    return rounds + 1


def spectral_gap(matrix: MixingMatrix) -> float:
    """1 - |λ₂|, the distance from 1 of the second largest modulus of an eigenvalue; 1 for a single node.

    Raises:
        ParameterError: Too many nodes, or nodes that do not all reach one another.
    """
    steady = steady_state_of(_of_moderate_size(matrix))
    if matrix.num_nodes == 1:
        return 1.0
    dense = matrix.dense()
    flows = steady[:, None] * dense
    if np.allclose(flows, flows.T, rtol=0, atol=_BALANCED * float(flows.max())):
        roots = np.sqrt(steady)
        similar = roots[:, None] * dense / roots
        moduli = np.abs(np.linalg.eigvalsh((similar + similar.T) / 2))
    else:
        moduli = np.abs(np.linalg.eigvals(dense))
    return max(0.0, 1 - float(np.sort(moduli)[-2]))


def mixing_time_bounds(matrix: MixingMatrix, *, tolerance: float = 0.25) -> tuple[float, float]:
    """Between what the mixing time of an undirected graph lies, by its spectral gap.

    Returns:
        ``((1/gap - 1) ln(1 / 2ε), (1/gap) ln(1 / (ε min v)))``; infinite where the gap is 0.

    Raises:
        ParameterError: As ``spectral_gap``.

    Source: Levin, Peres, Thm. 12.5 and 12.4, for reversible walks.
    """
    gap = spectral_gap(matrix)
    relaxation = 1 / gap if gap > 0 else math.inf
    least = float(steady_state_of(matrix).min())
    return (relaxation - 1) * max(0.0, math.log(1 / (2 * tolerance))), relaxation * math.log(1 / (tolerance * least))


def _distance(power: Vector64, steady: Vector64) -> float:
    """The worst start's total variation."""
    return float(np.abs(power - steady).sum(axis=1).max()) / 2


def _of_moderate_size(matrix: MixingMatrix) -> MixingMatrix:
    if matrix.num_nodes > MOST_NODES:
        raise ParameterError(f"mixing times are for up to {MOST_NODES} nodes, and this matrix has {matrix.num_nodes}")
    return matrix
