"""What strategies whose clients meet on a ledger have in common: its genesis, and how others look at it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

import numpy as np

from fl_core.dag.genesis import Component, Genesis, Policy
from fl_core.types import Vector64
from fl_simulator.engine.world import Clients, World
from fl_simulator.ledgers import VirtualServers

ANY_GROWTH: Final = 1e6
"""Neither paper bounds norms; a real ledger's policy does (``max_norm_growth``)."""


def _nothing() -> Vector64:
    return np.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One answered question, in clients instead of transactions.

    Attributes:
        client: Who asked.
        offered: Clients whose tips were candidates.
        taken: Those of them whose tips were selected; empty: the client kept its own model, or began with genesis's.
        similarities: Eq. 5 of ``offered``; empty where a selector does not look at models.
        update_similarities: The same after the genesis model was subtracted; empty likewise.
        probabilities: That a new segment begins at this place of ``offered``; of the first few, or of none.
    """

    client: int
    offered: Clients
    taken: Clients
    similarities: Vector64 = field(default_factory=_nothing)
    update_similarities: Vector64 = field(default_factory=_nothing)
    probabilities: Vector64 = field(default_factory=_nothing)

    @property
    def ranked_by(self) -> Vector64:
        """What the ranking fell by: of updates, where those fall, as the robust rules rank, else Eq. 5."""
        updates = self.update_similarities
        return updates if np.all(updates[1:] <= updates[:-1]) else self.similarities


@runtime_checkable
class LedgerStrategy(Protocol):
    """A strategy whose clients meet on a ledger, for those who look at it."""

    @property
    def servers(self) -> VirtualServers:
        """The servers and all that was published."""
        ...

    @property
    def choices(self) -> Sequence[Choice]:
        """The selections of the latest round, in order of clients."""
        ...


def genesis_of(world: World, *, selector: Component, aggregator: Component, policy: Policy) -> Genesis:
    """The rules of a simulated ledger."""
    layout = world.trainer.layout
    return Genesis(
        name="simulation",
        layout=layout,
        similarity_layers=world.similarity_layers or tuple(tensor.name for tensor in layout.tensors),
        selector=selector,
        aggregator=aggregator,
        training={"epochs": world.training.epochs, "initial_epochs": world.training.initial_epochs},
        policy=policy,
    )
