"""What a participant needs of whatever trains: four calls on named NumPy arrays, no torch.

``TorchTrainer`` and ``LoopTrainer`` meet it for PyTorch; another framework needs only these methods. A trainer is given
float32 arrays, and may return any float type; ``layout`` says how each tensor is stored in the ledger (``F32``,
``F16``, ``BF16``).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ModelLayoutError
from fl_core.models import ModelLayout

Arrays: TypeAlias = Mapping[str, NDArray[np.float32]]
"""A model: tensor name to values."""

Hints: TypeAlias = Mapping[str, str | int | float | bool]
"""Training hints from genesis; a trainer uses those it knows (``learning_rate``, ``batch_size``) and no
others."""


_watcher: ContextVar[Callable[[str], None] | None] = ContextVar("watcher", default=None)


def report_progress(text: str) -> None:
    """Say how far a training is, such as ``epoch 2 of 3, batch 5 of 20``; ``dag-acfl client run`` shows it.

    Any trainer may call this, as often as it likes.
    """
    if (watcher := _watcher.get()) is not None:
        watcher(text)


@contextmanager
def progress_watched(watcher: Callable[[str], None]) -> Iterator[None]:
    """In this block, and on this thread, ``watcher`` is called with what trainings report."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingResult:
    """A trained model, the number of samples it was trained on, and any numbers by name that were measured.

    Arrays of another float type become float32, so that what is measured is what travels. ``noise_std``: of the noise
    that training added to each value, for privacy; 0 where that is not known.
    """

    arrays: Mapping[str, NDArray[Any]]
    num_examples: int
    metrics: dict[str, float] = field(default_factory=dict)
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(array, np.float32) for name, array in self.arrays.items()}
        object.__setattr__(self, "arrays", arrays)


def check_shapes(layout: ModelLayout, ledgers: Mapping[str, tuple[int, ...]]) -> None:
    """Compare a client's model with its ledger's.

    Raises:
        ModelLayoutError: They differ; the message names the first tensor.
    """
    mine = {spec.name: spec.shape for spec in layout.tensors}
    differing = sorted(name for name in mine.keys() | ledgers.keys() if mine.get(name) != ledgers.get(name))
    if differing:
        here, there = (list(each[differing[0]]) if differing[0] in each else "absent" for each in (mine, ledgers))
        raise ModelLayoutError(
            f"the trainer's model is not the ledger's: tensor {differing[0]!r} is {here} here, {there} there "
            f"({len(differing)} differ)"
        )


@runtime_checkable
class Trainer(Protocol):
    """Trains one site's model on that site's data. A class may inherit from this one, or just have its methods.

    One with running statistics that travel but are not trained names them by a method ``buffers()``, which
    ``dag-acfl ledger init`` asks where there is one: they are averaged, and never compared.
    """

    def layout(self) -> ModelLayout:
        """The tensors that travel to the ledger and into averages, in canonical order; a class that inherits and does
        not say has all of ``initial_arrays`` travel, as float32.
        """
        return ModelLayout.of_arrays(self.initial_arrays())

    @abstractmethod
    def initial_arrays(self) -> Mapping[str, NDArray[Any]]:
        """The model as it was when the trainer was made: what a genesis can start from.

        Tensors beyond those of ``layout`` stay with the client: ``train`` and ``evaluate`` get them with the others,
        as the last ``train`` returned them.
        """
        ...

    @abstractmethod
    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        """Train from ``arrays`` for ``epochs`` ≥ 1 passes over the local data; ``arrays`` stay as they
        are. Returns all of them, those that stay with the client, too.
        """
        ...

    @abstractmethod
    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        """Any numbers by name, measured on the local test data; empty without test data.

        The first is the one that people see first. ``accuracy`` and ``loss`` mean to others what they say;
        ``num_examples`` is the number of test samples. ``fl_client.metrics`` says which are published.
        """
        ...
