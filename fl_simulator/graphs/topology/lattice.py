"""What the grid and the torus share: nodes in rows, as square as their number allows, and each beside the next."""

import math
from collections.abc import Iterator
from itertools import product

from fl_core.errors import ParameterError
from fl_simulator.graphs.topology.protocol import Edge, edge


def sides(count: int, dimensions: int, *, owner: str) -> tuple[int, ...]:
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
            f"{owner}: {count} nodes do not fill {dimensions} dimensions, as {power} nodes would; take a number that "
            f"is a product, or fewer dimensions"
        )
    return tuple(sorted(lengths))


def lattice_edges(lengths: tuple[int, ...], *, wrapped: bool) -> Iterator[Edge]:
    """Edges to the next node along each side; ``wrapped`` also joins each side's last to its first."""
    strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
    for place in product(*map(range, lengths)):
        node = sum(at * stride for at, stride in zip(place, strides, strict=True))
        for at, length, stride in zip(place, lengths, strides, strict=True):
            if at + 1 < length:
                yield edge(node, node + stride)
            elif wrapped and length > 1:
                yield edge(node, node - at * stride)
