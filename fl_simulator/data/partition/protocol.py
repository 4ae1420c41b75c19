"""What a partitioner is: who gets which samples of a data set.

A partitioner knows labels, not images. Rules that each keeps, and the contract tests hold each registered one to: no
sample is given twice, within a client or among clients; the same labels, number of clients and state of the generator
give the same shares; ``train_fraction`` of a client's samples, rounded, are to train on, at least one.
"""

from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_simulator.engine.population import Share

TRAIN_FRACTION: Final = 0.8
"""DAG-ACFL, Sec. IV-A: "an 80:20 ratio"."""


@runtime_checkable
class Partitioner(Protocol):
    """A rule for sharing samples out; instances are immutable."""

    @property
    def name(self) -> str:
        """The registry's name for this rule."""
        ...

    @property
    def params(self) -> Any:
        """The frozen dataclass of its parameters."""
        ...

    def shares(self, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator) -> list[Share]:
        """One share for each client.

        Args:
            labels: Of all samples, shape ``(n,)``.
            train_fraction: Part of each client's samples to train on, in (0, 1].
            rng: Every draw.

        Raises:
            PartitionError: There are not enough samples.
        """
        ...


def split(
    samples: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator, cluster: int, quarter_turns: int = 0
) -> Share:
    """A client's samples, shuffled and parted into those to train and those to test on."""
    order = rng.permutation(samples)
    middle = max(round(len(order) * train_fraction), 1)
    return Share(order[:middle], order[middle:], cluster, quarter_turns)
