"""What a simulation asks of training: many models at once, each on samples of its own.

Models are the rows of one float32 array ``(K, P)`` in the order of ``ModelLayout``; nobody above this seam knows torch.
A trainer takes steps of stochastic gradient descent as its ``Recipe`` says, and goes through samples as McMahan et al.
describe it: every epoch once through the shuffled samples in batches, the last of which may be smaller. The order of a
row's batches is decided by the run's seed and the row's ``draw`` alone, never by which rows it trains beside: training
together is training one after the other, to rounding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_core.models import ModelLayout
from fl_core.types import Matrix32, Vector32
from fl_simulator.seeds import Seeds

Rows = NDArray[np.int64]
"""Places in the population's arrays, shape ``(n,)``."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One row's training.

    Attributes:
        samples: The population's rows to train on, at least one.
        draw: Decides, with the run's seed, the order of batches; a client and the round_index, by custom.
        epochs: Passes over the samples, at least 0.
        steps: Exactly so many batches instead, through as many epochs as it takes; the last may end anywhere. 0: whole
            epochs.
    """

    samples: Rows
    draw: tuple[int, ...]
    epochs: int
    steps: int = 0

    def order(self, epoch: int, seeds: Seeds) -> Rows:
        """The samples as this epoch goes through them."""
        return seeds.generator("batches", *self.draw, epoch).permutation(self.samples)

    def num_steps(self, batch_size: int) -> int:
        return self.steps or self.epochs * self.steps_per_epoch(batch_size)

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-len(self.samples) // batch_size)

    def num_passed(self, batch_size: int) -> int:
        """How many samples go by in all, each as often as it does."""
        epochs, rest = divmod(self.num_steps(batch_size), self.steps_per_epoch(batch_size))
        return epochs * len(self.samples) + rest * batch_size

    def batches(self, batch_size: int, seeds: Seeds) -> Iterator[Rows]:
        """Each step's samples."""
        per_epoch = self.steps_per_epoch(batch_size)
        for step in range(self.num_steps(batch_size)):
            epoch, number = divmod(step, per_epoch)
            if number == 0:
                order = self.order(epoch, seeds)
            yield order[number * batch_size : (number + 1) * batch_size]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """How models did, one entry for each pair of a model and samples.

    Attributes:
        correct: Samples whose label had the greatest logit; of a client's own file, its accuracy times ``count``.
        loss_sum: Sum of the samples' cross-entropies (natural logarithm), float64.
        count: Samples, int64.
    """

    correct: NDArray[np.int64] | NDArray[np.float64]
    loss_sum: NDArray[np.float64]
    count: NDArray[np.int64]

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Share of samples that were right, in [0, 1]; NaN where there was none."""
        with np.errstate(invalid="ignore"):
            return self.correct / self.count

    @property
    def loss(self) -> NDArray[np.float64]:
        """Mean cross-entropy; NaN where there was no sample."""
        with np.errstate(invalid="ignore"):
            return self.loss_sum / self.count


@runtime_checkable
class Trainer(Protocol):
    """Trains and evaluates rows of models on one population's images."""

    @property
    def layout(self) -> ModelLayout:
        """The tensors of a row, and their order."""
        ...

    def initial(self, rng: np.random.Generator, *, gain: float = 1.0) -> Vector32:
        """A new model as the scenario's ``init`` says, shape ``(P,)``; ``rng`` decides it.

        Args:
            rng: Draws it.
            gain: All weights, but not the biases, are so many times as large (uncoordinated initialisation, Sec. 3).
        """
        ...

    def train(
        self, models: Matrix32, tasks: Sequence[Task], *, proximal: float = 0.0, towards: Matrix32 | None = None
    ) -> None:
        """Train ``models`` in place: row k by ``tasks[k]``.

        Args:
            models: Shape ``(K, P)``, C-contiguous float32; overwritten.
            tasks: K of them.
            proximal: FedProx's µ (Li et al., MLSys 2020, Eq. 2): adds µ (w - w0) to each gradient. 0: none of it.
            towards: w0 of each row, shape ``(K, P)``; None: the row as it came in.
        """
        ...

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:
        """The mean gradient of the loss at each row, over the batch that training by ``tasks[k]`` would begin with.

        Args:
            models: Shape ``(K, P)``; left as they are.
            tasks: K of them; their epochs and steps play no part.

        Returns:
            Shape ``(K, P)``.
        """
        ...

    def evaluate(self, models: Matrix32, rows: Sequence[int] | Rows, samples: Sequence[Rows]) -> Evaluation:
        """Model ``rows[k]`` on the samples ``samples[k]``, for every k.

        Args:
            models: Shape ``(M, P)``.
            rows: K rows of ``models``; one model may be asked often.
            samples: K arrays of the population's rows; one may be empty.
        """
        ...

    def close(self) -> None:
        """Let processes and memory go; a closed trainer is not used again."""
        ...
