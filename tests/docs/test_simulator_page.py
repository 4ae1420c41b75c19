"""docs/simulator.md: its examples run; its tables are generated from the registries."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_simulator.config.experiment import override, read_experiment
from fl_simulator.data.digits import load_digits
from fl_simulator.engine.population import gather
from fl_simulator.run import folder as results
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import Strategy
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


def test_every_published_method_names_its_paper() -> None:
    bounds = {"centralised", "local-only", "oracle"}
    for name in STRATEGIES.keys() - bounds:
        said = TEXT.partition(f"**`{name}`.** ")[2].partition("\n")[0]
        assert re.search(r"\b20[12]\d\b|Alg\. 1", said), name


def test_every_file_of_a_runs_folder_is_named_and_no_other() -> None:
    part = TEXT.partition("## A run's folder")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w.]+)` \|", part, re.MULTILINE)) == set(results.RUN_FILES)


def test_experiments_in_the_page_are_sound(tmp_path: Path) -> None:
    runs = []
    for block in code_blocks(PAGE, "toml"):
        file = tmp_path / "file.toml"
        file.write_text(block)
        overrides = {} if "[client]" in block else {"data": {"pixels": "unit"}}  # of fragments, too
        runs.append(len(read_experiment(file, overrides=overrides).runs))
    assert runs == [2 * 2 * 3 * 3, 1, 1, 1, 1], (
        "settings, participations, methods, seeds; a recipe; one on a graph; one in virtual time; one of an own file"
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
