"""Each label is divided among all clients in proportions that a symmetric Dirichlet distribution gives.

Small ``concentration``: most of a label is with few clients. Large: everybody has a sample of the whole. Nobody's
true cluster is known, so there is one. All samples are given out, and clients have unequally many. The rule is
Yurochkin et al.'s (ICML 2019); that a draw in which a client has too few samples is thrown away, and another made, is
Li et al.'s (ICDE 2022), with their 10 samples. Deviation: they draw until it succeeds, here ``draws`` times.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_simulator.data.partition.shares import deal, proportional
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError


@dataclass(frozen=True, slots=True)
class DirichletParams:
    clients: int = parameter(10, at_least=1, doc="How many clients.")
    concentration: float = parameter(
        0.5, at_least=0.01, at_most=1e6, doc="Of the distribution over clients; less is less even."
    )
    min_samples: int = parameter(10, at_least=1, doc="Samples that each client has at least, to train and test on.")
    draws: int = parameter(1000, at_least=1, doc="Draws in which a client had too few samples, until it is given up.")


def dirichlet(
    params: DirichletParams, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """Labels over clients, unevenly."""
    wanted = params
    if wanted.clients * wanted.min_samples > len(labels):
        raise PartitionError(f"{wanted.clients} clients cannot have {wanted.min_samples} of {len(labels)} samples each")
    _, available = np.unique(labels, return_counts=True)
    alpha = np.full(wanted.clients, wanted.concentration)
    fewest = 0
    for _ in range(wanted.draws):
        amounts = np.array([proportional(int(n), rng.dirichlet(alpha)) for n in available])
        scarcest = int(amounts.sum(axis=0).min())
        if scarcest >= wanted.min_samples:
            return deal(labels, amounts, train_fraction=train_fraction, rng=rng)
        fewest = max(fewest, scarcest)
    raise PartitionError(
        f"in each of {wanted.draws} draws a client had fewer than {wanted.min_samples} samples, {fewest} at best: "
        "ask for fewer clients, a larger concentration, or fewer samples at least"
    )
