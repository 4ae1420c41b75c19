"""What a federated-learning method is to the simulator.

A strategy owns its models and decides who is trained from what, and what becomes of the results. It does not decide
who takes part (the engine: the same participants for every strategy of a run), how a client trains (``World``), or
how well it does (``metrics``). Rules that each keeps, and the contract tests hold each registered one to them:

* the same world, seed and participants give the same models, to the byte;
* nothing depends on test samples; only oracles look at true clusters;
* ``personal`` changes nothing, however often it is asked;
* ``state`` after any round, given to ``restore`` of a new strategy in an equal world, goes on as if nothing had been.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_core.clusters import Approvals
from fl_core.types import Matrix32, Vector32, Vector64
from fl_simulator.engine.world import Clients
from fl_simulator.ledgers.network import VirtualServers

State: TypeAlias = Mapping[str, NDArray[Any]]
"""Everything that a strategy remembers, as named arrays of fixed-size elements (no objects)."""


HASH_BYTES: Final = 32
"""A transaction's id, DAG-ACFL's |hash|: what a client asks with, and what it is told when it has published."""


@dataclass(frozen=True, slots=True, eq=False)
class PersonalizedModels:
    """What each of some clients would start its next training from: "the global model for client i" (Sec. IV-A).

    Attributes:
        models: Distinct models, shape ``(M, P)``.
        rows: Which of them each client has, shape ``(k,)``.
    """

    models: Matrix32
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, keys: Sequence[Hashable], model: Callable[[int], Vector32], *, num_parameters: int) -> Self:
        """Models that are made one after the other, each once.

        Args:
            keys: Of each client what decides its model: equal keys, equal models.
            model: Makes the model, shape ``(P,)``, of the client at a place of ``keys``.
            num_parameters: P.
        """
        firsts: dict[Hashable, int] = {}
        for place, key in enumerate(keys):
            firsts.setdefault(key, place)
        # Filled row by row: of thousands of clients a list to be stacked would be as large again.
        models = np.empty((len(firsts), num_parameters), dtype=np.float32)
        for row, place in enumerate(firsts.values()):
            models[row] = model(place)
        row_of = {key: row for row, key in enumerate(firsts)}
        return cls(models, np.array([row_of[key] for key in keys], dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one round, or of some time, counted as DAG-ACFL's Table III counts them: payload, no protocol overhead.

    Attributes:
        up: From clients to servers (or to other clients, where there is no server).
        down: From servers to clients.
        between_servers: Among servers, each transfer once.
    """

    up: int = 0
    down: int = 0
    between_servers: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.up + other.up, self.down + other.down, self.between_servers + other.between_servers)


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
        averaged: How many models the client's average was made of, its own among them where it was; 1: its own alone,
            or genesis's.
    """

    client: int
    offered: Clients
    taken: Clients
    similarities: Vector64 = field(default_factory=_nothing)
    update_similarities: Vector64 = field(default_factory=_nothing)
    probabilities: Vector64 = field(default_factory=_nothing)
    averaged: int = 1

    @property
    def ranked_by(self) -> Vector64:
        """What the ranking fell by: of updates, where those fall, as the robust rules rank, else Eq. 5."""
        updates = self.update_similarities
        return updates if np.all(updates[1:] <= updates[:-1]) else self.similarities


Edge: TypeAlias = tuple[int | str, int | str, float]
"""Whose model went into whose average, by what share of it: clients, or a group's model such as ``group 0``."""

Figures: TypeAlias = Mapping[str, float | None]
"""Figures of a round, by the names that ``RoundRecord`` gives them."""


class Reporting(Protocol):
    """What measuring asks of a strategy beside its models; one that has nothing to say inherits these answers."""

    num_groups: int = 1
    """Models that each participant is sent in a round."""
    choices: Sequence[Choice] = ()
    """The selections of the latest round, in order of clients."""

    @property
    def ledger(self) -> VirtualServers | None:
        """The servers on which clients meet, and all that was published."""
        return None

    def groups(self) -> NDArray[np.int64] | None:
        """Each client's cluster by this method's own account, shape ``(C,)``, -1 for a client without one yet; None
        for a method that has no clusters.
        """
        return None

    def approvals(self) -> Approvals | None:
        """Who approved whom so far (Sec. IV-C); None where there is no ledger."""
        return None

    def take_edges(self) -> Sequence[Edge]:
        """Whose models were averaged since this was last asked."""
        return ()

    def figures(self, *, evaluated: bool) -> Figures:  # noqa: ARG002 (some figures cost as much as an evaluation)
        """What else there is to tell of the latest round."""
        return {}


@runtime_checkable
class Strategy(Reporting, Protocol):
    """One method, in the middle of one run."""

    name: str
    """The registry's."""
    remembered: Sequence[str] = ()
    """Names of the attributes, arrays, on which the next round depends."""

    def round(self, number: int, participants: Clients) -> Traffic:
        """One round.

        Args:
            number: From 0, one more each time.
            participants: Ascending, at least one.
        """
        ...

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """What these clients would be given now."""
        ...

    def state(self) -> State:
        """All that the next round depends on: a copy of what is ``remembered``."""
        return {name: np.copy(getattr(self, name)) for name in self.remembered}

    def restore(self, state: State) -> None:
        """Become the strategy whose state this is."""
        for name in self.remembered:
            setattr(self, name, np.copy(state[name]))
