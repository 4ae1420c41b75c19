"""Grid and torus: nodes in rows and columns, numbered row by row, each beside its neighbours in both. A grid's edges
end at the border; a torus's borders meet, so that every node has as many neighbours as any other.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Graph


@dataclass(frozen=True, slots=True)
class LatticeParams:
    dimensions: int = parameter(
        2, at_least=1, at_most=6, doc="Dimensions; the sides are as equal as the number of nodes allows."
    )


def grid(params: LatticeParams, count: int) -> Graph:
    """The grid; edges end at the border."""
    return _lattice(params, count, wrapped=False)


def torus(params: LatticeParams, count: int) -> Graph:
    """The torus: a grid whose borders meet, so that every node has as many neighbours as any other."""
    return _lattice(params, count, wrapped=True)


def _lattice(params: LatticeParams, count: int, *, wrapped: bool) -> Graph:
    """Edges to the next node along each side; ``wrapped`` also joins each side's last to its first."""
    places = np.arange(count).reshape(_sides(count, params.dimensions))
    pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for axis, length in enumerate(places.shape):
        pairs.append((places.take(range(length - 1), axis), places.take(range(1, length), axis)))
        if wrapped and length > 2:
            pairs.append((places.take([0], axis), places.take([length - 1], axis)))
    return Graph.from_edges(count, np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs]))


def _sides(count: int, dimensions: int) -> tuple[int, ...]:
    """The lengths of a lattice of ``count`` nodes: whole numbers as equal as their product allows, ascending.

    Raises:
        ParameterError: a side would be 1 although there are enough nodes for two on each: 7 nodes make no rectangle.
    """
    left, lengths = count, list[int]()
    for dimension in range(dimensions, 0, -1):
        # Rounded, since a float root may fall short of a whole number: 64 ** (1 / 3) is 3.9999999999999996.
        root = round(left ** (1 / dimension))
        root -= root**dimension > left
        lengths.append(left if dimension == 1 else next(side for side in range(root, 0, -1) if left % side == 0))
        left //= lengths[-1]
    if min(lengths) == 1 and count >= 2**dimensions:
        power = int(count ** (1 / dimensions)) ** dimensions
        raise ParameterError(
            f"{count} nodes do not fill {dimensions} dimensions, as {power} nodes would; take a "
            "number that is a product, or fewer dimensions"
        )
    return tuple(sorted(lengths))
