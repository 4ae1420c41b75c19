"""docs/simulator.md: its examples run, and it names all there is."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from fl_core.parameters import rules_of
from fl_simulator.config.experiment import override, read_experiment
from fl_simulator.config.scenario import Named, Scenario
from fl_simulator.data import DATA_SETS, load_digits
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.engine.conditions import AVAILABILITIES, DISTRIBUTIONS, MembershipParams, WorkParams
from fl_simulator.engine.evaluation import Schedule
from fl_simulator.engine.population import gather
from fl_simulator.graphs.links import Links
from fl_simulator.graphs.topology import TOPOLOGIES
from fl_simulator.models.catalogue import MODELS
from fl_simulator.run import folder as results
from fl_simulator.strategies import STRATEGIES, Strategy
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from tests.docs.test_docs import ROOT, code_blocks, commands_written
from tests.simulations import make_world

PAGE = ROOT / "docs" / "simulator.md"
TEXT = PAGE.read_text("utf-8")


def executed(word: str) -> dict[str, Any]:
    """The names that the page's one block of Python with this word in it defines."""
    (block,) = [each for each in code_blocks(PAGE, "python") if word in each]
    names: dict[str, Any] = {"__name__": "docs_simulator"}
    exec(compile(block, PAGE.name, "exec"), names)
    return names


def rows(title: str, text: str = TEXT) -> dict[str, str]:
    """The table that follows a rule's bold name: what stands in each row, by its first cell."""
    part = text.partition(f"**`{title}`.** ")[2]
    assert part, title
    return dict(
        re.findall(r"^\| `([\w.]+)` \| (.*) \|$", part.partition("\n**`")[0].partition("<!-- end")[0], re.MULTILINE)
    )


def test_it_is_linked_where_people_look_for_it() -> None:
    assert "(docs/simulator.md)" in (ROOT / "README.md").read_text("utf-8")
    assert "(simulator.md)" in (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_every_key_of_a_scenario_is_in_the_table_of_its_section() -> None:
    for name, kind in get_type_hints(Scenario).items():
        if kind is Named or not isinstance(kind, type):
            continue
        part = TEXT.partition(f"`[{name}]`: ")[2].partition("\n\n`[")[0]
        for key, rule in rules_of(kind).items():
            assert re.search(rf"^\| `{key}` \| .* \| {re.escape(rule.doc)} \|$", part, re.MULTILINE), key


@pytest.mark.parametrize("name", PARTITIONERS)
def test_every_partitioner_has_its_parameters(name: str) -> None:
    rules = rules_of(PARTITIONERS.params_type(name))
    found = rows(name)
    assert found.keys() == rules.keys()
    assert all(found[key].endswith(rule.doc) for key, rule in rules.items())


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_has_its_parameters_and_says_what_it_is(name: str) -> None:
    kind = STRATEGIES.params_type(name)
    rules = rules_of(type(kind().own) if hasattr(kind, "read") else kind)
    found = rows(name)
    assert found.keys() == rules.keys()
    assert all(found[key].endswith(rule.doc) for key, rule in rules.items())


@pytest.mark.parametrize("name", ASYNCHRONOUS_STRATEGIES)
def test_every_strategy_without_rounds_has_its_parameters(name: str) -> None:
    kind = ASYNCHRONOUS_STRATEGIES.params_type(name)
    rules = rules_of(type(kind().own) if hasattr(kind, "read") else kind)
    part = TEXT.partition("## Virtual time")[2]
    found = rows(name, part)
    assert found.keys() == rules.keys()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_has_its_parameters(name: str) -> None:
    rules = rules_of(TOPOLOGIES.params_type(name))
    found = rows(name, TEXT.partition("<!-- generated: topologies -->")[2])
    assert found.keys() == rules.keys()
    assert all(found[key].endswith(rule.doc) for key, rule in rules.items())


def test_every_key_of_links_is_in_a_table() -> None:
    for key, rule in rules_of(Links).items():
        assert re.search(rf"^\| `{key}` \| .* \| {re.escape(rule.doc)} \|$", TEXT, re.MULTILINE), key


def test_every_key_of_virtual_time_is_in_its_tables() -> None:
    part = TEXT.partition("<!-- generated: virtual-time -->")[2].partition("<!-- end -->")[0]
    kinds = (
        Schedule,
        MembershipParams,
        WorkParams,
        *DISTRIBUTIONS.values(),
        *(kind for kind, _ in AVAILABILITIES.values()),
    )
    for kind in kinds:
        for key, rule in rules_of(kind).items():
            assert re.search(rf"^\| `{key}` \| .* \| {re.escape(rule.doc)} \|$", part, re.MULTILINE), key
    assert all(f"`{name}`" in part for name in (*DISTRIBUTIONS, *AVAILABILITIES))


def test_every_published_method_names_its_paper() -> None:
    bounds = {"centralised", "local-only", "oracle"}
    for name in STRATEGIES.keys() - bounds:
        said = TEXT.partition(f"**`{name}`.** ")[2].partition("\n")[0]
        assert re.search(r"\b20[12]\d\b|Alg\. 1", said), name


def test_every_model_and_data_set_is_named() -> None:
    for name in (*MODELS, *DATA_SETS):
        assert re.search(rf"^\| `{name}` \| ", TEXT, re.MULTILINE), name


def test_every_file_of_a_runs_folder_is_named_and_no_other() -> None:
    part = TEXT.partition("## A run's folder")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w.]+)` \|", part, re.MULTILINE)) == set(results.RUN_FILES)


def test_experiments_in_the_page_are_sound(tmp_path: Path) -> None:
    runs = []
    for block in code_blocks(PAGE, "toml"):
        file = tmp_path / "file.toml"
        file.write_text(block)
        runs.append(len(read_experiment(file, overrides={"data": {"pixels": "unit"}}).runs))  # of fragments, too
    assert runs == [2 * 2 * 3 * 3, 1, 1, 1], (
        "settings, participations, methods, seeds; a recipe; one on a graph; one in virtual time"
    )


def simulations() -> Iterator[list[str]]:
    for words in commands_written(PAGE):
        if words[0] == "simulate":
            yield words[1:]


def test_commands_in_the_page_name_experiments_runs_and_keys_that_exist() -> None:
    found = list(simulations())
    assert found
    for words in found:
        for place, word in enumerate(words):
            if word == "--set" and "section.key" not in words[place + 1]:
                override(words[place + 1])
        if words and words[0].startswith("experiments/"):
            assert read_experiment(ROOT / words[0]).runs


def test_the_ledger_that_the_page_verifies_is_of_a_run_of_its_first_experiment() -> None:
    (path,) = [words[2] for words in commands_written(PAGE) if words[:2] == ["ledger", "verify"] and len(words) > 2]
    names = [run.label.folder_name for run in read_experiment(ROOT / "experiments" / "digits.toml").runs]
    assert Path(path).parent.name in names
    assert Path(path).name == results.LEDGER
    assert shlex.quote(path) == path


def test_the_strategy_in_the_page_keeps_the_rules_of_strategies() -> None:
    names = executed("class FedMedian")
    made = [names["FedMedian"](names["FedMedianParams"](), make_world()) for _ in range(2)]
    everybody = np.arange(6)
    assert all(isinstance(each, Strategy) for each in made)
    first, second = made
    first.round(0, everybody)
    second.restore(first.state())
    for each in made:
        traffic = each.round(1, np.array([0, 2, 3]))
        assert traffic.up == traffic.down > 0
    models = [each.personal(everybody).models for each in made]
    assert np.array_equal(*models)
    assert not np.array_equal(models[0][0], make_world().initial_model())
    assert models[0].dtype == np.float32


def test_the_partitioner_in_the_page_keeps_the_rules_of_partitioners() -> None:
    names = executed("def label_each")
    images, labels = load_digits()
    shares = names["label_each"](names["LabelEachParams"](), labels, train_fraction=0.8, rng=np.random.default_rng(0))
    population = gather(images, labels, shares, num_classes=10)
    assert population.num_clients == population.num_clusters == 10
    assert population.num_examples.tolist() == [80] * 10
    assert [sorted(set(labels[share.train].tolist())) for share in shares] == [[label] for label in range(10)]


def test_the_simulation_in_python_runs_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    executed("load_digits()")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    accuracies = [float(line.split()[1]) for line in lines]
    assert accuracies[-1] > accuracies[0]
