"""What a demo client tells the process that started it; small values that travel through a pipe."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class FirstModel:
    """The model that the ledger starts from; the process that plans the demo has no torch to make it with."""

    arrays: dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Joined:
    """The client's process is there; ``author`` is the name that it will publish under."""

    client: int
    author: str


@dataclass(frozen=True, slots=True)
class Published:
    """One round: selection, training, publication.

    Attributes:
        number: The client's own count of transactions, from 1.
        approved: Ids of the transactions that it approves, genesis and its own among them.
        source, rule: As in the selection's evidence.
        accuracy: Test accuracy of ω_agg, the aggregate that it was given.
        trained_accuracy: Test accuracy of the model that it published.
        sent_bytes, received_bytes: On the client's sockets in this round, HTTP headers included.
        elapsed_s: Since everybody was there.
        server: Which of the servers acknowledged it, from 0.
    """

    client: int
    number: int
    transaction: str
    approved: tuple[str, ...]
    source: str
    rule: str
    accuracy: float
    trained_accuracy: float
    sent_bytes: int
    received_bytes: int
    elapsed_s: float
    server: int


@dataclass(frozen=True, slots=True)
class Finished:
    """After everybody's last transaction: one more selection, and how its aggregate does."""

    client: int
    rule: str
    accuracy: float
    trained_accuracy: float


@dataclass(frozen=True, slots=True)
class BaselineStep:
    """A baseline has made ``done`` of ``total`` steps."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class BaselineDone:
    """A baseline's test accuracy for each client."""

    name: str
    accuracies: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The process gives up; ``message`` is one line."""

    who: str
    message: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A server's event stream showed a transaction at ``at_s`` on this machine's monotonic clock."""

    transaction: str
    server: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What a listener to all servers' event streams has seen of everybody's transactions."""

    arrivals: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """All servers say that they hold the same.

    Attributes:
        digest: Of the tips, as every server gives it.
        transactions: Genesis included.
        waited_s: Since the clients were done.
    """

    digest: str
    transactions: int
    waited_s: float


Event: TypeAlias = FirstModel | Joined | Published | Finished | BaselineStep | BaselineDone | Observed | Failed
