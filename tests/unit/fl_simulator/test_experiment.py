"""An experiment's file: which runs it is, what goes over what, and that a mistake is told by file and key."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fl_simulator.config.experiment import Experiment, merged, override, overrides_of, read_experiment, scenario_toml
from fl_simulator.config.scenario import read_scenario
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.errors import ScenarioError
from fl_simulator.strategies import STRATEGIES, decentralised_names

ROOT = Path(__file__).parents[3]

TABLE = """
name = "some/table"
title = "Two rows, two columns"
participation = [1.0, 0.5]
seeds = [3, 4]

[base]
data = { name = "digits", pixels = "unit" }
run.rounds = 20
training.epochs = 2

[[settings]]
label = "even"
partition.clients = 8

[[settings]]
label = "Shards (2)"
partition = { name = "shards", clients = 6 }
training.epochs = 3

[[methods]]
label = "FedAvg"
strategy.name = "fedavg"

[[methods]]
label = "DAG"
strategy.selector = { name = "top-k", k = 4 }
training.epochs = 5
"""


def experiment(folder: Path, text: str, *, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """What a file says; its pixels are ``unit`` unless it says so itself."""
    file = folder / "file.toml"
    file.write_text(text, "utf-8")
    return read_experiment(file, overrides=merged({"data": {"pixels": "unit"}}, overrides or {}))


def test_a_file_says_how_pixels_are_scaled(tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_text("[run]\nrounds = 2\n", "utf-8")
    with pytest.raises(ScenarioError, match='pixels = "unit" or "standardised"'):
        read_experiment(file)
    file.write_text('[data]\npixels = "standardised"\n', "utf-8")
    assert read_experiment(file).runs[0].scenario.data.pixels == "standardised"


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ScenarioError) as error:
        experiment(folder, text)
    name = f"{folder / 'file.toml'}: "
    assert str(error.value).startswith(name)
    return str(error.value).removeprefix(name)


# -- which runs ---------------------------------------------------------------------------------------


def test_every_setting_runs_with_every_participation_method_and_seed(tmp_path: Path) -> None:
    table = experiment(tmp_path, TABLE)
    assert (table.name, table.title) == ("some/table", "Two rows, two columns")
    labels = [(each.label.setting, each.label.participation, each.label.method, each.label.seed) for each in table.runs]
    assert labels == [
        (setting, participation, method, seed)
        for setting in ("even", "Shards (2)")
        for participation in (1.0, 0.5)
        for method in ("FedAvg", "DAG")
        for seed in (3, 4)
    ]
    assert all(each.label.experiment == "some/table" and each.label.rounds == 20 for each in table.runs)
    assert all(
        (each.scenario.run.seed, each.scenario.run.participation) == (each.label.seed, each.label.participation)
        for each in table.runs
    )


def test_a_method_goes_over_its_setting_and_that_over_the_base(tmp_path: Path) -> None:
    runs = {(run.label.setting, run.label.method): run.scenario for run in experiment(tmp_path, TABLE).runs}
    epochs = {key: scenario.training.epochs for key, scenario in runs.items()}
    assert epochs == {
        ("even", "FedAvg"): 2,
        ("even", "DAG"): 5,
        ("Shards (2)", "FedAvg"): 3,
        ("Shards (2)", "DAG"): 5,
    }
    assert runs["even", "DAG"].strategy.params["selector.k"] == 4
    assert {key[0]: scenario.partition.name for key, scenario in runs.items()} == {
        "even": "iid",
        "Shards (2)": "shards",
    }


def test_every_run_has_a_folder_of_its_own_that_says_which_it_is(tmp_path: Path) -> None:
    folders = [run.label.folder_name for run in experiment(tmp_path, TABLE).runs]
    assert len(set(folders)) == len(folders) == 16
    assert folders[0] == "even-1-fedavg-seed-3"
    assert folders[-1] == "shards-2-0.5-dag-seed-4"


def test_a_file_of_sections_alone_is_one_run_called_by_data_model_and_method(tmp_path: Path) -> None:
    (run,) = experiment(tmp_path, '[model]\nname = "mlp"\n[run]\nseed = 7\nrounds = 2\n').runs
    assert (run.label.setting, run.label.method, run.label.seed, run.label.rounds) == ("digits-mlp", "dag-acfl", 7, 2)


def test_without_a_name_the_files_own_becomes_a_folders(tmp_path: Path) -> None:
    file = tmp_path / "my table.v2.toml"
    file.write_text('[run]\nrounds = 2\n[data]\npixels = "unit"\n')
    assert read_experiment(file).name == "my-table-v2"


def test_a_base_may_lack_what_each_setting_says(tmp_path: Path) -> None:
    table = experiment(
        tmp_path,
        '[base]\npartition.kind = "II"\n[[settings]]\nlabel = "x"\npartition.name = "superclass"\n',
    )
    assert table.runs[0].scenario.partition.params["kind"] == "II"


def test_another_partition_strategy_or_topology_begins_with_its_defaults(tmp_path: Path) -> None:
    table = experiment(
        tmp_path,
        '[base]\npartition = { name = "shards", clients = 100, shards = 1 }\nmodel = { name = "mlp", similarity_layers = "all" }\n'
        'topology = { name = "k-regular", k = 6 }\nstrategy = { name = "decdiff", s = 2.0 }\n'
        '[[methods]]\nlabel = "one node"\npartition = { name = "iid", clients = 1 }\nmodel.name = "lr"\n'
        '[[methods]]\nlabel = "ring"\npartition.clients = 50\ntopology.name = "ring"\nstrategy.name = "cfa"\n',
    )
    one, ring = (run.scenario for run in table.runs)
    assert one.partition.params == {"clients": 1, "samples": 0}
    assert one.model.similarity_layers == "all"  # a model's name changes nothing beside it
    assert one.topology is not None
    assert one.topology.params == {"k": 6}
    assert (ring.partition.params["clients"], ring.partition.params["shards"]) == (50, 1)
    assert ring.topology is not None
    assert (ring.topology.name, ring.topology.params) == ("ring", {})
    assert ring.strategy.name == "cfa"


def test_graph_that_methods_share_is_not_said_to_one_that_knows_none(tmp_path: Path) -> None:
    shared = '[base]\ntopology.name = "ring"\n[[settings]]\nlabel = "p"\ntopology.links_up = 0.5\n'
    table = experiment(
        tmp_path,
        shared + '[[methods]]\nlabel = "FED"\nstrategy.name = "fedavg"\n'
        '[[methods]]\nlabel = "CFA"\nstrategy.name = "cfa"\n',
    )
    fed, cfa = (run.scenario for run in table.runs)
    assert fed.topology is None
    assert cfa.topology is not None
    assert cfa.topology.links.links_up == 0.5
    with pytest.raises(ScenarioError, match="knows no graph"):
        experiment(tmp_path, '[[methods]]\nlabel = "FED"\nstrategy.name = "fedavg"\ntopology.name = "ring"\n')


SHIPPED = [
    file
    for file in sorted((ROOT / "experiments").rglob("*.toml"))
    if "rows" not in tomllib.loads(file.read_text("utf-8"))  # a paper's printed table
]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_experiments_are_sound_and_lie_where_their_name_says(file: Path) -> None:
    table = read_experiment(file)
    assert table.runs
    assert table.name == file.relative_to(ROOT / "experiments").with_suffix("").as_posix()


# -- overrides ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("run.rounds=20", {"run": {"rounds": 20}}),
        (" run.rounds = 20 ", {"run": {"rounds": 20}}),
        ("run.participation=0.5", {"run": {"participation": 0.5}}),
        ("run.ledger=false", {"run": {"ledger": False}}),
        ("strategy.name=fedavg", {"strategy": {"name": "fedavg"}}),
        ('strategy.name="fedavg"', {"strategy": {"name": "fedavg"}}),
        ("partition.clients=10,10", {"partition": {"clients": "10,10"}}),
        ("strategy.selector.rule=literal", {"strategy": {"selector.rule": "literal"}}),
        ('strategy.selector={name="top-k",k=2}', {"strategy": {"selector": "top-k", "selector.k": 2}}),
        ("data.name=a=b", {"data": {"name": "a=b"}}),
        ("data.name=", {"data": {"name": ""}}),
    ],
)
def test_an_override_is_toml_or_else_text(said: str, meant: dict[str, Any]) -> None:
    assert override(said) == meant


@pytest.mark.parametrize("said", ["", "rounds=3", "run.rounds", "run=3", "run.=3", "rum.rounds=3", "=3"])
def test_what_is_no_override_is_told_the_form_and_the_sections(said: str) -> None:
    with pytest.raises(ScenarioError, match=r"is not section\.key=value with a section of data, partition"):
        override(said)


def test_overrides_go_over_methods_and_settings(tmp_path: Path) -> None:
    changed = experiment(tmp_path, TABLE, overrides=overrides_of(["training.epochs=9", "run.rounds=2"]))
    assert {run.scenario.training.epochs for run in changed.runs} == {9}
    assert {run.label.rounds for run in changed.runs} == {2}


def test_what_an_override_says_of_a_strategy_is_said_to_the_methods_whose_strategy_takes_it(tmp_path: Path) -> None:
    table = experiment(tmp_path, TABLE, overrides=overrides_of(["strategy.selector=largest-gap"]))
    chosen = {run.label.method: run.scenario.strategy.params.get("selector") for run in table.runs}
    assert chosen == {"FedAvg": None, "DAG": "largest-gap"}
    with pytest.raises(ScenarioError, match=r"even, FedAvg: strategy 'fedavg' has no parameter 'selectr'"):
        experiment(tmp_path, TABLE, overrides=overrides_of(["strategy.selectr=largest-gap"]))


def test_an_override_of_seed_or_participation_stands_instead_of_the_list(tmp_path: Path) -> None:
    changed = experiment(tmp_path, TABLE, overrides=overrides_of(["run.seed=9"]))
    assert len(changed.runs) == 8
    assert {run.label.seed for run in changed.runs} == {9}
    changed = experiment(tmp_path, TABLE, overrides=overrides_of(["run.participation=0.25"]))
    assert len(changed.runs) == 8
    assert {run.scenario.run.participation for run in changed.runs} == {0.25}


def test_overrides_of_a_part_may_stand_in_any_order() -> None:
    said = ["strategy.selector.k=4", "strategy.selector=top-k", "run.rounds=2", "run.rounds=3"]
    scenario = read_scenario(merged(overrides_of(said)))
    assert scenario == read_scenario(merged(overrides_of(reversed(said[:2])), overrides_of(["run.rounds=3"])))
    assert (scenario.strategy.params["selector"], scenario.strategy.params["selector.k"]) == ("top-k", 4)


BEAST = {"strategy": {"selector": {"name": "beast", "rule": "literal"}}}


@pytest.mark.parametrize(
    ("over", "selector", "rule"),
    [
        ({"selector": {"min_tips": 4}}, "beast", "literal"),
        ({"selector.min_tips": 4}, "beast", "literal"),
        ({"selector": "beast"}, "beast", "literal"),
        ({"selector": "top-k"}, "top-k", None),
        ({"selector": {"name": "top-k", "k": 3}}, "top-k", None),
        ({"selector": "top-k", "selector.k": 3}, "top-k", None),
        ({"selector.rule": "robust"}, "beast", "robust"),
    ],
)
@pytest.mark.parametrize("below", [BEAST, {"strategy": {"selector": "beast", "selector.rule": "literal"}}])
def test_a_parameter_of_a_part_changes_it_and_another_part_begins_with_its_defaults(
    below: dict[str, Any], over: dict[str, Any], selector: str, rule: str | None
) -> None:
    params = read_scenario(merged(below, {"strategy": over})).strategy.params
    assert (params["selector"], params.get("selector.rule")) == (selector, rule)


def test_a_parameter_over_a_part_that_is_only_named_keeps_the_name() -> None:
    params = read_scenario(
        merged({"strategy": {"selector": "least-squares"}}, {"strategy": {"selector": {"min_update_similarity": 0.25}}})
    ).strategy.params
    assert (params["selector"], params["selector.min_update_similarity"]) == ("least-squares", 0.25)


def test_merging_changes_no_layer() -> None:
    layers: list[dict[str, Any]] = [{"run": {"rounds": 1}, **BEAST}, {"strategy": {"selector": {"rule": "robust"}}}]
    merged(*layers)
    assert layers == [{"run": {"rounds": 1}, **BEAST}, {"strategy": {"selector": {"rule": "robust"}}}]
    assert BEAST == {"strategy": {"selector": {"name": "beast", "rule": "literal"}}}


# -- mistakes -----------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"missing\.toml: No such file"):
        read_experiment(tmp_path / "missing.toml")
    with pytest.raises(ScenarioError, match="Is a directory"):
        read_experiment(tmp_path)
    assert "not TOML" in refused(tmp_path, "run = ")
    (tmp_path / "file.toml").write_bytes(b"\xff")
    with pytest.raises(ScenarioError, match="not TOML"):
        read_experiment(tmp_path / "file.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('nmae = "x"\n', "unknown key 'nmae'; there are name, title"),
        ("name = 3\n", "name is text, not 3"),
        ('title = ["x"]\nname = "x"\n', "title is text"),
        ('seeds = 3\nname = "x"\n', "seeds is a list, not 3"),
        ('participation = 0.5\nname = "x"\n', "participation is a list"),
        ('seeds = ["x"]\n', "[run]: seed must be int, not str"),
        ("seeds = [-1]\n", "[run]: seed must be at least 0"),
        ("participation = [0.0]\n", "[run]: participation must be above 0"),
        ('base = 3\nname = "x"\n', "[base] is a table"),
        ('methods = "x"\n', "methods is a list"),
        ("methods = [3]\n", "each of [[methods]] is a table with a label"),
        ('[[methods]]\nstrategy.name = "fedavg"\n', "each of [[methods]] is a table with a label"),
        ('[[settings]]\nlabel = ""\n', "each of [[settings]] is a table with a label"),
        ("[[settings]]\nlabel = 4\n", "each of [[settings]] is a table with a label"),
        ("[base]\nrun.rouns = 3\n", "[run] has no parameter 'rouns'"),
        ("[base]\nrum.rounds = 3\n", "unknown section [rum]"),
        ("[base]\nrun = 3\n", "[run] is a table, not 3"),
        ('[base]\nrun = 3\n[[methods]]\nlabel = "m"\nrun.rounds = 3\n', "[run] is a table, not 3"),
        ('[[methods]]\nlabel = "Mine"\nstrategy.nmae = "x"\n', "Mine: strategy 'dag-acfl' has no parameter 'nmae'"),
        ('[[settings]]\nlabel = "A row"\nrun.rounds = "3"\n', "A row: [run]: rounds must be int"),
        ('[[settings]]\nlabel = "A row"\nrun.rounds = [3]\n', "A row: [run]: rounds is [3]"),
        ("[base]\nrun.rounds = 2020-01-01\n", "[run]: rounds is datetime.date"),
        ("[base]\ntraining.learning_rate = inf\n", "[training]: learning_rate must be finite"),
    ],
)
def test_a_mistake_is_told_by_its_key_and_whose_it_is(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text)


@pytest.mark.parametrize("name", ["../elsewhere", "/absolute", "a//b", "a/", "", "a b", "..", "ä"])
def test_a_name_that_could_lead_out_of_the_folder_of_results_is_refused(tmp_path: Path, name: str) -> None:
    assert f"name is {name!r}" in refused(tmp_path, f'name = "{name}"\n')


@pytest.mark.parametrize(
    "text",
    [
        "seeds = [1, 1]\n",
        "participation = [0.5, 0.5]\n",
        '[[methods]]\nlabel = "A (1)"\n[[methods]]\nlabel = "a 1"\n',
        '[[settings]]\nlabel = "x"\n[[settings]]\nlabel = "x"\n',
    ],
)
def test_two_runs_of_one_name_are_refused(tmp_path: Path, text: str) -> None:
    assert "two runs would be called" in refused(tmp_path, text)


# -- there and back -----------------------------------------------------------------------------------


@example(path="\x7f", rate=5e-324, rounds=1, ledger=True)
@given(
    path=st.text(st.characters(exclude_categories=["Cs"])),
    rate=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    rounds=st.integers(1, 1_000_000),
    ledger=st.booleans(),
)
def test_any_value_survives_the_file(*, path: str, rate: float, rounds: int, ledger: bool) -> None:
    scenario = read_scenario(
        {
            "run": {"rounds": rounds, "ledger": ledger},
            "training": {"learning_rate": rate},
            "asynchronous": {"availability": {"name": "trace", "path": path}},
        }
    )
    text = scenario_toml(scenario)
    assert read_scenario(tomllib.loads(text)) == scenario
    assert scenario_toml(read_scenario(merged(tomllib.loads(text)))) == text


@pytest.mark.parametrize("section", ["partition", "strategy"])
def test_every_registered_name_with_its_defaults_survives_its_file(section: str, tmp_path: Path) -> None:
    for name in PARTITIONERS if section == "partition" else STRATEGIES:
        graph = {"topology": {"name": "ring"}} if name in decentralised_names() else {}
        scenario = read_scenario({section: {"name": name}, **graph})
        (run,) = experiment(tmp_path, scenario_toml(scenario)).runs
        assert run.scenario == scenario
        assert run.label.folder_name.count(name) == (section == "strategy")


def test_a_runs_own_scenario_can_be_changed_from_the_command_line(tmp_path: Path) -> None:
    text = scenario_toml(read_scenario(BEAST))
    (run,) = experiment(tmp_path, text, overrides=overrides_of(["strategy.selector.rule=robust", "run.seed=5"])).runs
    expected = read_scenario({"strategy": {"selector": {"rule": "robust"}}, "run": {"seed": 5}})
    assert run.scenario == expected
