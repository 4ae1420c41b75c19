"""What an attacker in a simulation knows, and what it may decide: its training samples, and the model it publishes.

It takes a client's place, with that client's samples, and goes through the method as that client would: it is given a
model, trains, and hands in what it made. Of the others it knows what a reader of a ledger does: each client's newest
model and step, also those of the round that it publishes in; and the source, so every rule and bound. Rules that each
keeps, and the contract tests hold each registered one to them:

* the same turn, to the generator's state, gives the same model, finite and of the same shape;
* nothing that it is given is changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_core.models import ModelLayout
from fl_core.types import Vector32


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Images float32, shape ``(n, …)``, labels int64, shape ``(n,)``, and how many labels there are."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    num_classes: int


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """A client's newest update: the model that its training began from, and what it handed in, each ``(P,)``."""

    client: int
    start: Vector32
    model: Vector32

    @property
    def step(self) -> Vector32:
        """The client's change, shape ``(P,)``."""
        return self.model - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """An attacker's turn to hand in a model.

    Attributes:
        client: Whose place it has.
        start: What it was given, shape ``(P,)``.
        trained: What training on its samples made of that, shape ``(P,)``.
        victims: The newest of each honest client of its cluster, ascending by client; empty before the first.
        colluders: The newest of each other attacker of its cluster that has acted, likewise.
        layout: The tensors of a model.
        rng: Every draw.
    """

    client: int
    start: Vector32
    trained: Vector32
    victims: Sequence[Published]
    colluders: Sequence[Published]
    layout: ModelLayout
    rng: np.random.Generator

    @property
    def step(self) -> Vector32:
        """What training changed, shape ``(P,)``."""
        return self.trained - self.start

    @property
    def usual_norm(self) -> float:
        """The median of the victims' step norms, and of the own where there is no victim."""
        return float(np.median([np.linalg.norm(each.step) for each in self.victims] or [np.linalg.norm(self.step)]))


@runtime_checkable
class Attacker(Protocol):
    """One way to do harm; what it does not decide it does as an honest client would."""

    name: str
    """The registry's."""
    takes_part: bool = True
    """Whether it does anything at all."""

    def poison(self, samples: Samples, rng: np.random.Generator) -> Samples:  # noqa: ARG002
        """What it trains on in place of its own training samples; as many, at least one."""
        return samples

    def triggered(self, samples: Samples) -> Samples | None:  # noqa: ARG002
        """Of an honest client's test samples those that its backdoor opens for, as it wants them called; perhaps none.

        None: it plants no backdoor.
        """
        return None

    def hand_in(self, turn: Turn) -> Vector32:
        """The model that it publishes, shape ``(P,)``."""
        return turn.trained
