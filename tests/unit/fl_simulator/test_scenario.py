"""What a scenario may say, and that a mistake is told by its section and key."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_simulator.config.scenario import DIGITS, SECTIONS, Run, Scenario, Training, flattened, read_scenario
from fl_simulator.data.catalogue import DATA_SETS
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.errors import ScenarioError
from fl_simulator.graphs.links import Links
from fl_simulator.strategies import STRATEGIES, decentralised_names


def message(content: Mapping[str, Any]) -> str:
    with pytest.raises(ScenarioError) as refused:
        read_scenario(content)
    return str(refused.value)


def test_an_empty_scenario_is_dag_acfl_on_digits_shared_out_evenly() -> None:
    scenario = read_scenario({})
    assert scenario.data.name == DIGITS
    assert (scenario.partition.name, scenario.strategy.name) == ("iid", "dag-acfl")
    assert (scenario.training.epochs, scenario.training.batch_size, scenario.training.learning_rate) == (1, 10, 0.05)


def test_what_is_said_replaces_the_default_of_that_key_alone() -> None:
    scenario = read_scenario({"run": {"rounds": 3}, "partition": {"name": "shards", "clients": 7}})
    assert scenario.run == Run(rounds=3)
    assert scenario.partition.params == {"clients": 7, "shards": 2, "shard_samples": 0, "balanced": False}
    assert scenario.training == Training()


def test_sections_are_those_of_a_scenario() -> None:
    assert tuple(each.name for each in fields(Scenario)) == SECTIONS
    text = message({"trainning": {"epochs": 1}})
    assert "[trainning]" in text
    assert all(section in text for section in SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_that_is_no_table_is_named(section: str) -> None:
    assert message({section: 3}) == f"[{section}] is a table, not 3"


@pytest.mark.parametrize(
    ("section", "table", "words"),
    [
        ("data", {"name": 3}, "[data]: name must be str, not int"),
        ("data", {"name": "emnis"}, "unknown data set 'emnis'; known: cifar-10, digits, "),
        ("run", {"rounds": "3"}, "[run]: rounds must be int, not str"),
        ("run", {"ledger": 1}, "[run]: ledger must be bool, not int"),
        ("run", {"seed": 2**31}, "[run]: seed must be at most 2147483647, not 2147483648"),
        ("training", {"learning_rate": 0}, "[training]: learning_rate must be above 0.0, not 0.0"),
        ("model", {"nmae": "lr"}, "[model] has no parameter 'nmae'; known: name, similarity_layers, init"),
        ("partition", {"name": "shards", "sedd": 1}, "partition 'shards' has no parameter 'sedd'"),
        ("strategy", {"name": "ifca", "sedd": 1}, "strategy 'ifca' has no parameter 'sedd'"),
    ],
)
def test_a_mistake_is_named_with_its_section_and_key(section: str, table: dict[str, Any], words: str) -> None:
    assert message({section: table}).startswith(words)


@pytest.mark.parametrize("value", [[1, 2], None, {"x": [1]}, object()])
@pytest.mark.parametrize("section", ["run", "strategy"])
def test_a_value_that_is_no_scalar_is_named_with_its_section(section: str, value: object) -> None:
    assert message({section: {"thing": value}}).startswith(f"[{section}]: thing")


@pytest.mark.parametrize(
    ("section", "registry"), [("partition", sorted(PARTITIONERS)), ("strategy", sorted(STRATEGIES))]
)
def test_an_unknown_partition_or_strategy_is_told_all_there_are(section: str, registry: list[str]) -> None:
    text = message({section: {"name": "nonesuch"}})
    assert "nonesuch" in text
    assert all(name in text for name in registry)
    assert message({section: {"name": 5}}) == f"[{section}]: name must be str, not int"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"selector": {"name": "top-k", "rule": "robust"}}, "selector 'top-k' has no parameter 'rule'"),
        ({"selector": {"rule": "rubust"}}, "rule must be one of"),
        ({"selector": "nonesuch"}, "nonesuch"),
        ({"aggregator": {"name": "krum", "byzantine": -1}}, "byzantine must be at least"),
        ({"bounds": {"max_parents": 0}}, "max_parents"),
        ({"bounds": {"max_paronts": 3}}, "max_paronts"),
        ({"selecter": {"rule": "robust"}}, "no part 'selecter'"),
        ({"weights": {"factor": 3.5}}, "weights 'examples': factor must be an integer in [1, 2147483648], not 3.5"),
        ({"freshness": {"window": 60}}, "freshness 'time' has no parameter 'window'; known: window_s"),
        ({"gossip_delay": -1.0}, "gossip_delay must be at least"),
    ],
)
def test_mistakes_in_parts_of_dag_acfl_are_named(table: dict[str, Any], words: str) -> None:
    assert words in message({"strategy": table})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"duration": 3.0}, "[asynchronous] has no parameter 'duration'"),
        ({"duration_s": 0.0}, "[asynchronous]: duration_s must be above 0"),
        ({"speed": "unifrom"}, "unknown distribution 'unifrom'"),
        ({"speed": {"mean": 1.0}}, "speed 'constant' has no parameter 'mean'"),
        ({"availability": "sometimes"}, "known: alternating, always, trace"),
        ({"membership": "all"}, "no parameter 'membership'"),
        ({"membership": {"join_from_s": 700.0}}, "join_from_s must not be above join_until_s"),
        ({"speed": {"name": "uniform", "ratio": 0.5}}, "ratio must be at least 1"),
        ({"speed": {"typical": 0.0}}, "[asynchronous]: speed: typical must be above 0"),
        ({"availability": {"name": "alternating", "on": 3.0}}, "availability 'alternating' has no parameter 'on'"),
        ({"membership": {"joining": 2.0}}, "membership: joining must be at most 1"),
        ({"work": {"failures": 1.0}}, "work: failures must be below 1"),
    ],
)
def test_mistakes_in_virtual_time_are_named(table: dict[str, Any], words: str) -> None:
    assert words in message({"asynchronous": table})


def test_a_method_without_rounds_needs_virtual_time() -> None:
    assert "fedasync" in message({"strategy": {"name": "fedasync"}})
    timed = read_scenario({"strategy": {"name": "fedasync"}, "asynchronous": {"duration_s": 90.0}})
    assert (timed.strategy.name, timed.num_intervals) == ("fedasync", 2)
    assert read_scenario(timed.sections()) == timed
    assert "knows no rounds" in message({"strategy": {"name": "fedasync"}, "asynchronous": {"in_rounds": True}})


def test_every_data_set_may_be_named_without_being_here() -> None:
    for name in (DIGITS, *DATA_SETS):
        assert read_scenario({"data": {"name": name}}).data.name == name


def test_tables_in_tables_are_keys_with_dots_and_a_parts_name_is_the_part() -> None:
    assert flattened({"selector": {"name": "beast", "rule": "robust"}, "servers": 2}) == {
        "selector": "beast",
        "selector.rule": "robust",
        "servers": 2,
    }
    nested = read_scenario({"strategy": {"selector": {"name": "top-k", "k": 3}}})
    assert nested == read_scenario({"strategy": {"selector": "top-k", "selector.k": 3}})
    assert nested.strategy.params["selector.k"] == 3


_names = st.text("abcde", min_size=1, max_size=3)
_scalars = st.one_of(st.text("ab. é", max_size=3), st.integers(), st.booleans(), st.floats(allow_nan=False))
_tables = st.recursive(
    st.dictionaries(_names, _scalars, max_size=3), lambda inner: st.dictionaries(_names, inner, max_size=3)
)


@given(_tables)
def test_flattening_keeps_every_value_and_once_is_as_good_as_twice(table: dict[str, Any]) -> None:
    def leaves(value: Any) -> int:
        return sum(leaves(each) for each in value.values()) if isinstance(value, dict) else 1

    flat = flattened(table)
    assert len(flat) == leaves(table)
    assert not any(isinstance(value, dict) for value in flat.values())
    assert flattened(flat) == flat


def test_a_scenarios_sections_hold_every_default_and_make_it_again() -> None:
    scenario = read_scenario({"run": {"rounds": 3}, "strategy": {"name": "ifca", "clusters": 4}})
    sections = scenario.sections()
    assert sections["run"] == asdict(Run(rounds=3))
    assert sections["strategy"]["clusters"] == 4
    assert tuple(sections) == tuple(
        section for section in SECTIONS if section not in {"asynchronous", "attack", "client", "topology"}
    )
    assert read_scenario(sections) == scenario


RING = {"name": "ring"}
IN_ROUNDS = {"in_rounds": True}
ON_A_RING = {"strategy": {"name": "decavg"}, "topology": RING}


def test_a_topology_has_parameters_of_its_own_and_links_that_may_fail() -> None:
    topology = read_scenario({**ON_A_RING, "topology": {"name": "barabasi-albert", "m": 5, "links_up": 0.5}}).topology
    assert topology is not None
    assert (topology.name, topology.params) == ("barabasi-albert", {"m": 5})
    assert topology.links == Links(links_up=0.5)


def test_a_scenario_with_a_topology_writes_it_out_and_reads_it_again() -> None:
    scenario = read_scenario({"strategy": {"name": "decavg"}, "topology": {**RING, "nodes_up": 1, "heaviest": 2}})
    assert scenario.sections()["topology"] == {
        "name": "ring",
        "links_up": 1.0,
        "nodes_up": 1.0,
        "lightest": 1.0,
        "heaviest": 2.0,
    }
    assert read_scenario(scenario.sections()) == scenario


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({}, "[topology] needs a name, one of barabasi-albert, complete"),
        ({"name": "nonesuch"}, "nonesuch"),
        ({"name": 5}, "[topology]: name must be str"),
        ({**RING, "links_upp": 0.5}, "topology 'ring' has no parameter 'links_upp'"),
        ({**RING, "links_up": 0}, "[topology]: links_up must be above 0"),
        ({**RING, "nodes_up": 1.5}, "[topology]: nodes_up must be at most 1"),
        ({**RING, "lightest": 2.0}, "[topology]: lightest (2.0) must be at most heaviest (1.0)"),
    ],
)
def test_mistakes_in_a_topology_are_named(topology: dict[str, Any], words: str) -> None:
    assert words in message({**ON_A_RING, "topology": topology})


@pytest.mark.parametrize("training", [{"momentum": 0.5}, {"optimizer": "adamw"}])
def test_d_sgd_takes_no_other_steps_than_its_own(training: dict[str, Any]) -> None:
    words = "it has strategy.momentum"
    assert words in message({"strategy": {"name": "d-sgd"}, "topology": RING, "training": training})
    assert read_scenario({**ON_A_RING, "training": training}).training.optimizer in {"sgd", "adamw"}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_has_a_graph_exactly_where_it_needs_one(name: str) -> None:
    strategy = {"strategy": {"name": name}}
    if name in decentralised_names():
        assert f"strategy '{name}' needs a graph: add a section [topology]" in message(strategy)
        assert "virtual time knows servers and no graph" in message(
            {**strategy, "topology": RING, "asynchronous": IN_ROUNDS}
        )
    else:
        assert f"strategy '{name}' knows no graph: leave [topology] out" in message({**strategy, "topology": RING})


def test_a_whole_number_will_do_for_a_bound() -> None:
    scenario = read_scenario({"strategy": {"bounds": {"max_step_growth": 10}}})
    assert scenario.strategy.params["bounds.max_step_growth"] == 10.0


def test_more_evaluations_than_anybody_reads_are_refused() -> None:
    with pytest.raises(ScenarioError, match="evaluate less often"):
        read_scenario({"asynchronous": {"duration_s": 1e300, "evaluate_every_s": 1e-3}})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"run": {"joining": 0.1}, "asynchronous": {}}, "asynchronous.membership.joining"),
        ({"run": {"moving": 0.1}, "asynchronous": {}}, "are for runs in rounds"),
        ({"run": {"moving": 0.1}, "client": {"file": "mine.py", "sites": 4}}, "leave [client] and [attack] out"),
        ({"run": {"moving": 0.1}, "attack": {"name": "noise", "clients": "0"}}, "leave [client] and [attack] out"),
        ({"run": {"moving": 0.1, "move_round": 5, "return_round": 5}}, "return_round is after move_round, or 0"),
    ],
)
def test_clients_join_late_and_move_where_that_means_something(said: dict[str, Any], words: str) -> None:
    assert words in message(said)
