"""docs/simulator.md: its examples run; its tables are generated from the registries."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from fl_simulator.config.experiment import override, read_experiment
from fl_simulator.run import folder as results
from fl_simulator.strategies import STRATEGIES
from tests.docs.test_docs import ROOT, code_blocks, commands_written

PAGE = ROOT / "docs" / "simulator.md"
TEXT = PAGE.read_text("utf-8")


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
    assert runs == [2 * 2 * 3 * 3, 1, 1, 1, 1, 1], (
        "settings, participations, methods, seeds; a recipe; one on a graph; one in virtual time, under attack, of an own file"
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
