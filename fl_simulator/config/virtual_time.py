"""What a scenario says of virtual time: the table ``[asynchronous]``.

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
from fl_core.registry import PartRegistry
from fl_core.types import JsonScalar
from fl_simulator.engine.conditions import ConditionsParams
from fl_simulator.engine.evaluation import Schedule
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """What the table says."""

    schedule: Schedule = field(default_factory=Schedule)
    conditions: ConditionsParams = field(default_factory=ConditionsParams)

    @classmethod
    def read(cls, given: Mapping[str, JsonScalar]) -> Self:
        """Check a table, tables in it flattened to keys with dots."""
        own, owner = rules_of(Schedule), "[asynchronous]"
        return cls(
            read_parameters(Schedule, {key: value for key, value in given.items() if key in own}, owner=owner),
            ConditionsParams.read({key: value for key, value in given.items() if key not in own}, owner=owner),
        )

    def write(self) -> dict[str, JsonScalar]:
        """What ``read`` makes this of, defaults written out."""
        return {**asdict(self.schedule), **self.conditions.write()}


def strategy_registry(name: str, virtual_time: VirtualTime | None) -> PartRegistry[Any]:
    """Where the strategy of that name is found: among those in rounds, or among those that need none."""
    if virtual_time is None or name not in ASYNCHRONOUS_STRATEGIES:
        return STRATEGIES
    if ":" in name and not hasattr(ASYNCHRONOUS_STRATEGIES[name], "start"):  # a class of either kind may be named so
        return STRATEGIES
    if not virtual_time.schedule.in_rounds:
        return ASYNCHRONOUS_STRATEGIES
    if name not in STRATEGIES:
        raise ParameterError(f"[asynchronous]: {name} knows no rounds; leave in_rounds out")
    return STRATEGIES
