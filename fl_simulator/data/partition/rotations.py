"""Clusters by rotation: everybody has a sample of the whole, and each cluster sees it turned by its own angle.

The setting of Ghosh et al. (NeurIPS 2020, "rotated MNIST"), whose clusters are 0, 90, 180 and 270 degrees. Deviation:
they give every cluster every image, turned; here no image is given twice, so that a model is never tested on what
another cluster trained on.
"""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.data.partition.iid import IidParams, iid
from fl_simulator.data.partition.superclass import SuperclassParams, superclass
from fl_simulator.engine.population import Share


@dataclass(frozen=True, slots=True)
class RotationsParams:
    quarter_turns: str = parameter(
        "0,1,2,3", doc="Quarters of a turn, counter-clockwise, of each cluster, 0 to 3, with commas."
    )
    clients: str = parameter("4,4,4,4", doc="Clients of each cluster, with commas.")
    samples: int = parameter(
        0, at_least=0, doc="Samples of each client, to train and test on; 0: as many as there are."
    )
    concentration: float = parameter(
        0.0, at_least=0.0, doc="Of the Dirichlet distribution of each client's labels; 0: all have the same labels."
    )

    def __post_init__(self) -> None:
        try:
            turns, counts = self.turns, self.counts
        except ValueError:
            raise ParameterError("quarter_turns and clients are whole numbers, with commas between") from None
        if len(turns) != len(set(turns)) or not set(turns) <= {0, 1, 2, 3}:
            raise ParameterError("quarter_turns are from 0 to 3, each at most once")
        if len(turns) != len(counts) or min(counts) < 1:
            raise ParameterError("clients names a number of at least 1 for each of quarter_turns")

    @property
    def turns(self) -> list[int]:
        return [int(turns) for turns in self.quarter_turns.split(",")]

    @property
    def counts(self) -> list[int]:
        return [int(count) for count in self.clients.split(",")]


def rotations(
    params: RotationsParams, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """The same labels for all, or each client's own mixture of them, at another angle for each cluster.

    Clients of the first cluster come first.
    """
    ends = list(accumulate(params.counts, initial=0))
    if params.concentration:
        everything = ",".join(map(str, np.unique(labels)))
        skewed = SuperclassParams(
            everything, str(ends[-1]), kind="II", samples=params.samples, concentration=params.concentration
        )
        upright = superclass(skewed, labels, train_fraction=train_fraction, rng=rng)
    else:
        even = IidParams(clients=ends[-1], samples=params.samples)
        upright = iid(even, labels, train_fraction=train_fraction, rng=rng)
    return [
        replace(share, cluster=cluster, quarter_turns=turns)
        for cluster, (turns, (start, end)) in enumerate(zip(params.turns, pairwise(ends), strict=True))
        for share in upright[start:end]
    ]
