"""Each label is divided among all clients in the proportions of draws from a truncated Zipf distribution.

DecDiff (Sec. V-3, in words, without an equation): for each label every client draws a value, with exponent 1.26, that
is about the number of its images; every client has some of each label, "however few", and one has most of a label;
clients have unequally many. Nobody's true cluster is known, so there is one.

DecDiff does not say where the distribution is truncated, how values become numbers of images, or how few is few.
Here: value k = 1, 2 … K has probability k^-exponent / Σ j^-exponent with K as many as the label has, unless told; each
client first gets ``min_per_label``, and the rest of the label is divided in proportion to the values, so that all
samples are given out. Taken as they are, the values of 50 clients would sum to more than the label has, nearly twice
as many with MNIST's. With 50 clients the Gini index of a label, averaged, is 0.75 for 800 samples and 0.87 for 6,000
(DecDiff works in 0.7 to 0.85), and the largest part of 6,000 is a third in the median, more than half for one label
in seven.

Not this rule: the Zipf partition of the Gain paper, where clients have equally many samples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_simulator.data.partition.shares import deal, proportional
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError


@dataclass(frozen=True, slots=True)
class TruncatedZipfParams:
    clients: int = parameter(50, at_least=1, doc="How many clients.")
    exponent: float = parameter(1.26, at_least=0.0, at_most=100.0, doc="Of the distribution; more is less even.")
    largest: int = parameter(
        0, at_least=0, at_most=10**7, doc="Value at which the distribution ends; 0: as many as the label has samples."
    )
    min_per_label: int = parameter(
        1, at_least=1, doc="Samples of each label that each client has at least, to train and test on."
    )
    per_label: int = parameter(
        0, at_least=0, doc="Samples of each label that are given out, to all clients together; 0: all that there are."
    )


def truncated_zipf(
    params: TruncatedZipfParams, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """All labels for everybody, and most of each for few."""
    clients, least = params.clients, params.min_per_label
    _, available = np.unique(labels, return_counts=True)
    if params.per_label:
        available = np.minimum(available, params.per_label)
    scarcest = int(available.min(initial=len(labels)))
    if clients * least > scarcest:
        raise PartitionError(
            f"{clients} clients cannot have {least} each of the {scarcest} samples of the scarcest label"
        )
    amounts = [
        least
        + proportional(
            int(n) - clients * least,
            zipf_values(clients, exponent=params.exponent, largest=params.largest or int(n), rng=rng),
        )
        for n in available
    ]
    return deal(labels, np.array(amounts), train_fraction=train_fraction, rng=rng)


def zipf_values(size: int, *, exponent: float, largest: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Whole numbers in 1..largest, k with a probability in proportion to ``k ** -exponent``, shape ``(size,)``."""
    ends = np.cumsum(np.arange(1, largest + 1, dtype=np.float64) ** -exponent)
    values: NDArray[np.float64] = 1.0 + np.searchsorted(ends, rng.random(size) * ends[-1], side="right")
    return values
