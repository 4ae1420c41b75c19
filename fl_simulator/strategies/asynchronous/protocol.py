"""What a federated-learning method without rounds is to the simulator.

Clients come one by one: ``start`` gives a client a model to train from, ``finish`` takes what it made of it; between
the two others start and finish. When a client comes, how long its work takes and whether it is lost on the way is the
engine's. A client does one thing at a time: it does not start twice without finishing, except where its work was lost;
the method is not told of that, as a server is not. Rules that each keeps, besides those of ``strategies.protocol``:

* times never fall from call to call;
* a model that was given or taken is not changed afterwards, by nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fl_core.types import Vector32
from fl_simulator.engine.world import Clients
from fl_simulator.strategies.protocol import PersonalizedModels, Reporting, State, Traffic


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """What a client is to do.

    Attributes:
        model: To train from, shape ``(P,)``.
        down_bytes: What it receives before it begins.
        up_bytes: What it sends when it is done; 0: nothing, what it made stays with it.
        epochs: Instead of the world's E.
        proximal: FedProx's µ.
    """

    model: Vector32
    down_bytes: int
    up_bytes: int
    epochs: int | None = None
    proximal: float = 0.0


@runtime_checkable
class AsynchronousStrategy(Reporting, Protocol):
    """One method, in the middle of one run."""

    name: str
    """The registry's."""

    traffic: Traffic
    """Bytes since the interval began: a question and an answer when work starts, a result when it is finished."""

    def begin_interval(self) -> None:
        """Count and collect anew: the engine has looked at everything so far."""
        ...

    def question_bytes(self, client: int) -> int:
        """What this client would send now to be given work."""
        ...

    def start(self, client: int, *, now: float) -> Assignment:
        """What the client is given whose question arrives."""
        ...

    def finish(self, client: int, model: Vector32, *, now: float) -> None:
        """Take what the client made of its latest assignment.

        Args:
            client: Who has finished.
            model: Shape ``(P,)``; the strategy may keep it.
            now: Virtual seconds since the run began.
        """
        ...

    def personal(self, clients: Sequence[int] | Clients, *, now: float) -> PersonalizedModels:
        """What these clients would train from if they asked now; changes nothing."""
        ...

    def state(self) -> State:
        """All that what follows depends on, except what ``begin_interval`` forgets."""
        ...

    def restore(self, state: State) -> None:
        """Become the strategy whose state this is."""
        ...
