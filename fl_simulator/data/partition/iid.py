"""Everybody has a sample of the whole: one cluster."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_simulator.data.partition.shares import split
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError


@dataclass(frozen=True, slots=True)
class IidParams:
    clients: int = parameter(10, at_least=1, doc="How many clients.")
    samples: int = parameter(
        0, at_least=0, doc="Samples of each client, to train and test on; 0: as many as there are."
    )


def iid(
    params: IidParams, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """Shuffled samples in equal parts."""
    size = params.samples or len(labels) // params.clients
    if size < 2 or size * params.clients > len(labels):
        raise PartitionError(f"{params.clients} clients cannot have {size} of {len(labels)} samples each")
    order = rng.permutation(len(labels))[: size * params.clients].reshape(params.clients, size)
    return [split(mine, train_fraction=train_fraction, rng=rng, cluster=0) for mine in order]
