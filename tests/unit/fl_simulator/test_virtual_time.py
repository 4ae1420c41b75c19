"""What a scenario says of virtual time, and which engine a method gets."""

import tomllib

import pytest

from fl_core.errors import ConfigurationError
from fl_core.parameters import rules_of
from fl_core.types import JsonScalar
from fl_simulator.config.scenario import flattened, read_scenario
from fl_simulator.config.virtual_time import VirtualTime, strategy_registry
from fl_simulator.engine.asynchronous import AsynchronousRun
from fl_simulator.engine.conditions import Alternating, Constant, Uniform
from fl_simulator.engine.evaluation import Engine, Schedule
from fl_simulator.engine.timed_rounds import TimedRounds
from fl_simulator.run.play import build_engine
from fl_simulator.strategies import STRATEGIES, decentralised_names
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from tests.simulations import make_world

TABLE = """
[asynchronous]
duration_s = 1800
evaluate_every_s = 20.0

[asynchronous.speed]
name = "uniform"
typical = 500.0
ratio = 10

[asynchronous.availability]
name = "alternating"
on_s = 300

[asynchronous.membership]
joining = 0.2

[asynchronous.work]
failures = 0.01
"""


def read(**said: JsonScalar) -> VirtualTime:
    return VirtualTime.read(said)


def test_a_table_is_read_whole() -> None:
    read_table = VirtualTime.read(flattened(tomllib.loads(TABLE)["asynchronous"]))
    assert read_table.schedule == Schedule(duration_s=1800.0, evaluate_every_s=20.0)
    assert read_table.conditions.speed == Uniform(typical=500.0, ratio=10.0)
    assert read_table.conditions.up == Constant(1.25e6)
    assert read_table.conditions.availability == Alternating(on_s=300.0)
    assert read_table.conditions.membership.joining == 0.2
    assert read_table.conditions.work.failures == 0.01


@pytest.mark.parametrize("table", ["[asynchronous]", TABLE])
def test_what_is_written_out_is_read_as_the_same(table: str) -> None:
    read_table = VirtualTime.read(flattened(tomllib.loads(table)["asynchronous"]))
    said = read_table.write()
    assert VirtualTime.read(said) == read_table
    assert set(rules_of(Schedule)) < set(said)
    assert {"speed", "speed.typical", "up.typical", "availability", "membership.leaving", "work.jitter"} < set(said)


def test_the_last_evaluation_is_the_end() -> None:
    schedule = Schedule(duration_s=50.0, evaluate_every_s=20.0)
    assert [schedule.time_of(number) for number in range(schedule.num_evaluations)] == [20.0, 40.0, 50.0]
    assert Schedule(duration_s=40.0, evaluate_every_s=20.0).num_evaluations == 2
    assert Schedule(duration_s=10.0, evaluate_every_s=20.0).num_evaluations == 1
    assert Schedule(duration_s=0.3, evaluate_every_s=0.1).num_evaluations == 3  # 0.3 / 0.1 is 2.9999999999999996
    assert Schedule(duration_s=1.1, evaluate_every_s=0.1).num_evaluations == 11  # 1.1 / 0.1 is 11.000000000000002


def built(name: str, **said: JsonScalar) -> Engine:
    return build_engine(read_scenario({"strategy": {"name": name}, "asynchronous": said}), make_world())


@pytest.mark.parametrize("name", sorted({*STRATEGIES, *ASYNCHRONOUS_STRATEGIES} - {*decentralised_names()}))
def test_a_method_goes_without_rounds_where_it_can(name: str) -> None:
    made = built(name, duration_s=0.2, evaluate_every_s=0.1)
    assert isinstance(made, AsynchronousRun if name in ASYNCHRONOUS_STRATEGIES else TimedRounds)
    assert made.strategy.name == name
    assert [interval.number for interval in made.play()] == [0, 1]


def test_dag_acfl_is_run_in_rounds_where_that_is_wished() -> None:
    assert isinstance(built("dag-acfl", in_rounds=True), TimedRounds)


def test_what_knows_no_rounds_is_not_run_in_rounds() -> None:
    with pytest.raises(ConfigurationError, match="fedbuff knows no rounds"):
        strategy_registry("fedbuff", read(in_rounds=True))


def test_parameters_are_checked_as_those_of_the_engine_that_will_run_them() -> None:
    assert strategy_registry("fedbuff", read()).read_params("fedbuff", {"buffer": 3}).buffer == 3
    for name, words in (("fedbuff", "'colour'"), ("fedavg", "'colour'"), ("nothing", "nothing")):
        with pytest.raises(ConfigurationError, match=words):
            strategy_registry(name, read()).read_params(name, {"colour": 1})


def test_a_class_of_ones_own_needs_rounds_or_not_as_its_methods_say() -> None:
    assert strategy_registry("fl_simulator.strategies.fedavg:FedAvg", read()) is STRATEGIES
    place = "fl_simulator.strategies.asynchronous.fedbuff:FedBuff"
    assert strategy_registry(place, read()) is ASYNCHRONOUS_STRATEGIES
