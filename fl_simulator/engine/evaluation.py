"""When a run is evaluated, and what of it is reported each time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.engine.conditions import Conditions
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.asynchronous.protocol import AsynchronousStrategy
from fl_simulator.strategies.protocol import PersonalizedModels, State, Strategy, Traffic
from fl_simulator.training.protocol import Evaluation

_MOST_EVALUATIONS: Final = 1_000_000
_ROUNDING: Final = 1e-9
"""1.1 / 0.1 is a little more than 11 in float64, and means 11."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long a run in virtual time is, and when it is evaluated."""

    duration_s: float = parameter(3600.0, above=0.0, doc="Virtual seconds of the run.")
    evaluate_every_s: float = parameter(60.0, above=0.0, doc="Virtual seconds between evaluations; the end is one.")
    evaluated: str = parameter(
        "seen",
        choices=("seen", "available", "all"),
        doc="Who is evaluated: whose result was taken at least once; who of them is reachable; or everybody.",
    )
    in_rounds: bool = parameter(False, doc="Whether a method that needs no rounds is run in rounds all the same.")
    deadline_s: float = parameter(
        0.0,
        at_least=0.0,
        doc="In rounds: seconds after which who is late is dropped; 0: a round waits for the slowest.",
    )
    concurrency: int = parameter(
        0, at_least=0, doc="Without rounds: how many clients may be at work at once, drawn at random; 0: all."
    )
    largest_batch: int = parameter(
        0, at_least=0, doc="Without rounds: trainings that are computed together at most; 0: any number."
    )

    def __post_init__(self) -> None:
        if self.duration_s > _MOST_EVALUATIONS * self.evaluate_every_s:
            raise ParameterError(
                f"duration_s over evaluate_every_s is more than {_MOST_EVALUATIONS:,} evaluations; evaluate less often"
            )

    @property
    def num_evaluations(self) -> int:
        return max(ceil(self.duration_s / self.evaluate_every_s - _ROUNDING), 1)

    def time_of(self, number: int) -> float:
        """When an evaluation is, counted from 0."""
        return min((number + 1) * self.evaluate_every_s, self.duration_s)


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """What happened in a round, or in the virtual time between two evaluations.

    Attributes:
        number: From 0.
        virtual_time_s: When.
        participants: Clients whose results were taken, ascending.
        results: How many were; a fast client has several.
        lost: Trainings that were begun and came to nothing.
        traffic: Bytes that travelled.
        evaluated: Clients that were judged, ascending.
        evaluation: Of each of them, its model on its test samples; None where there is nobody to judge.
        backdoors: Of each of them, its model on triggered ones; None where nobody plants a backdoor.
        heard: Clients whose result was ever taken, ascending.
    """

    number: int
    virtual_time_s: float
    participants: Clients
    results: int
    lost: int
    traffic: Traffic
    evaluated: Clients
    evaluation: Evaluation | None
    backdoors: Evaluation | None = None
    heard: Clients = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Engine(Protocol):
    """What moves one run on: rounds, rounds in virtual time, or events in virtual time."""

    @property
    def strategy(self) -> AsynchronousStrategy | Strategy:
        """The method, as it stands now."""
        ...

    def play(self) -> Iterator[Interval]:
        """What is left of the run's intervals, one each time the caller asks."""
        ...

    def state(self) -> State:
        """All that follows depends on, at the end of an interval."""
        ...

    def restore(self, state: State) -> None:
        """Become the run whose state this is."""
        ...


def evaluate_interval(
    world: World,
    schedule: Schedule,
    conditions: Conditions,
    *,
    number: int,
    results: NDArray[np.int64],
    lost: int,
    traffic: Traffic,
    seen: Clients,
    personal: Callable[[Clients], PersonalizedModels],
) -> Interval:
    """Evaluate the clients that are to be evaluated, and report the interval.

    Who is fast is seen first: comparing methods by the time they need asks for ``evaluated = "all"``.

    ``results`` are how many of each client were taken in it, shape ``(C,)``; ``seen`` the clients whose result was ever
    taken, ascending; ``personal`` is what clients would be given now. All else is the run's, or the interval's.
    """
    now = schedule.time_of(number)
    evaluated, evaluation = seen, None
    if schedule.evaluated == "all":
        evaluated = np.arange(world.num_clients)
    elif schedule.evaluated == "available":
        reachable = [client for client in seen.tolist() if is_reachable(conditions, client, now)]
        evaluated = np.array(reachable, dtype=np.int64)
    if world.attack is not None:
        evaluated = world.attack.honest(evaluated)
    backdoors = None
    if len(evaluated):
        given = personal(evaluated)
        evaluation = world.evaluate(given.models, given.rows, evaluated)
        backdoors = world.backdoors(given.models, given.rows, evaluated)
    return Interval(
        number=number,
        virtual_time_s=now,
        participants=np.flatnonzero(results),
        results=int(results.sum()),
        lost=lost,
        traffic=traffic,
        evaluated=evaluated,
        evaluation=evaluation,
        backdoors=backdoors,
        heard=seen,
    )


def is_reachable(conditions: Conditions, client: int, now: float) -> bool:
    """Whether a client is reachable at a time."""
    window = conditions.window(client, now)
    return window is not None and window.start <= now


_STRATEGY: Final = "strategy."


def state_of(strategy: AsynchronousStrategy | Strategy, world: World) -> dict[str, NDArray[Any]]:
    """What the strategy and the attackers go on from, as part of their run's state."""
    attack = {} if world.attack is None else world.attack.state()
    return {**{_STRATEGY + name: value for name, value in strategy.state().items()}, **attack}


def restore(strategy: AsynchronousStrategy | Strategy, world: World, state: State) -> None:
    """Let them go on from their part of a run's state."""
    names = [name for name in state if name.startswith(_STRATEGY)]
    strategy.restore({name.removeprefix(_STRATEGY): state[name] for name in names})
    if world.attack is not None:
        world.attack.restore(state)
