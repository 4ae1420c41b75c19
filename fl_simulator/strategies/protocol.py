"""What a federated-learning method is to the simulator.

A strategy owns its models and decides who is trained from what, and what becomes of the results. It does not decide
who takes part (the engine: the same participants for every strategy of a run), how a client trains (``World``), or
how well it does (``metrics``). Rules that each keeps, and the contract tests hold each registered one to them:

* the same world, seed and participants give the same models, to the byte;
* nothing depends on test samples or true clusters, except where a strategy's name (``oracle``) or a parameter that is
  not the default (``sdagfl``'s ``better-test``) says so;
* ``personal`` changes nothing, however often it is asked;
* ``state`` after any round, given to ``restore`` of a new strategy in an equal world, goes on as if nothing had been.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_core.types import Matrix32, Vector32
from fl_simulator.engine.world import Clients

State: TypeAlias = Mapping[str, NDArray[Any]]
"""Everything that a strategy remembers, as named arrays of fixed-size elements (no objects)."""


HASH_BYTES: Final = 32
"""A transaction's id, the paper's |hash|: what a client asks with, and what it is told when it has published."""


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


@runtime_checkable
class Strategy(Protocol):
    """One method, in the middle of one run."""

    @property
    def name(self) -> str:
        """The registry's name."""
        ...

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

    def groups(self) -> NDArray[np.int64] | None:
        """Each client's cluster by this method's own account, shape ``(C,)``, -1 for a client without one yet; None
        for a method that has no clusters.
        """
        ...

    def state(self) -> State:
        """All that the next round depends on."""
        ...

    def restore(self, state: State) -> None:
        """Become the strategy whose state this is."""
        ...
