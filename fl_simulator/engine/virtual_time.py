"""A run in virtual time, made of what a scenario says of it: the table ``[asynchronous]``.

    [asynchronous]                duration_s = 3600, evaluate_every_s = 60, in_rounds = false, …  (``Schedule``)
    [asynchronous.speed]          name = "uniform", typical = 500.0, ratio = 10.0                 (``ConditionsParams``)
    [asynchronous.availability]   name = "alternating", on_s = 600.0, off_s = 300.0

A method of ``ASYNCHRONOUS_STRATEGIES`` needs no rounds, one of ``STRATEGIES`` does; DAG-ACFL is in both and goes
without, unless ``in_rounds`` is set.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from fl_core.errors import ParameterError
from fl_core.parameters import read_parameters, rules_of
from fl_core.types import JsonScalar
from fl_simulator.engine.asynchronous import AsynchronousRun
from fl_simulator.engine.conditions import Conditions, ConditionsParams
from fl_simulator.engine.evaluation import Schedule, TimedRun
from fl_simulator.engine.timed_rounds import TimedRounds
from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """What the table says."""

    schedule: Schedule = field(default_factory=Schedule)
    conditions: ConditionsParams = field(default_factory=ConditionsParams)

    @classmethod
    def read(cls, given: Mapping[str, JsonScalar], *, owner: str = "[asynchronous]") -> Self:
        """Check a table, tables in it flattened to keys with dots.

        Raises:
            UnknownNameError, ParameterError: It says something that cannot be.
        """
        own = rules_of(Schedule)
        return cls(
            read_parameters(Schedule, {key: value for key, value in given.items() if key in own}, owner=owner),
            ConditionsParams.read({key: value for key, value in given.items() if key not in own}, owner=owner),
        )

    def write(self) -> dict[str, JsonScalar]:
        """What ``read`` makes this of, defaults written out."""
        return {**asdict(self.schedule), **self.conditions.write()}


def needs_rounds(strategy: str, virtual_time: VirtualTime) -> bool:
    """Whether a method is run in rounds.

    Raises:
        ParameterError: It knows no rounds, and is to be run in rounds.
    """
    if virtual_time.schedule.in_rounds and strategy not in STRATEGIES and strategy in ASYNCHRONOUS_STRATEGIES:
        raise ParameterError(f"[asynchronous]: {strategy} knows no rounds; leave in_rounds out")
    return virtual_time.schedule.in_rounds or strategy not in ASYNCHRONOUS_STRATEGIES


def timed_strategy_parameters(name: str, params: Mapping[str, JsonScalar], virtual_time: VirtualTime) -> Any:
    """The parameters of a method in virtual time, checked.

    Raises:
        UnknownNameError, ParameterError: There is no such method, or it has no such parameters.
    """
    if needs_rounds(name, virtual_time):
        return STRATEGIES.read_params(name, params)
    return ASYNCHRONOUS_STRATEGIES.read_params(name, params)


def build_timed_run(
    name: str,
    params: Mapping[str, JsonScalar],
    world: World,
    virtual_time: VirtualTime,
    *,
    participation: float = 1.0,
) -> TimedRun:
    """A method's run in virtual time, at its beginning.

    Args:
        name: Of the method.
        params: Its parameters.
        world: The run's surroundings.
        virtual_time: Schedule and conditions.
        participation: Share of clients that a round wants; a method without rounds has ``Schedule.concurrency``.

    Raises:
        UnknownNameError, ParameterError, ScenarioError: The run cannot be.
    """
    conditions = Conditions(virtual_time.conditions, world.seeds, world.num_clients)
    if needs_rounds(name, virtual_time):
        strategy = STRATEGIES.build(name, params, world)
        return TimedRounds(world, strategy, conditions, virtual_time.schedule, participation=participation)
    return AsynchronousRun(world, ASYNCHRONOUS_STRATEGIES.build(name, params, world), conditions, virtual_time.schedule)
