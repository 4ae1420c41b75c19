"""docs/extend/: its parts are found by ``module:Class`` and as an installed package, run, and keep their contracts."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dag_acfl.__main__ import main
from fl_client import LedgerClient
from fl_core.models import decode_model
from fl_core.registry import Registry
from fl_simulator.config.experiment import overrides_of, read_experiment
from fl_simulator.run.folder import LEDGER, SUMMARY, read_rounds
from tests.builders import LAYOUT, key_from_seed, model
from tests.docs.own_package import GENESIS, MINE, PACKAGE, PAGES, write_modules
from tests.docs.test_docs import ROOT, code_blocks, commands_written

INDEX = PAGES / "index.md"
POINTS = {
    group: f"{name} = {place}"
    for group, points in tomllib.loads(PACKAGE)["project"]["entry-points"].items()
    for name, place in points.items()
}
"""An entry point of each group."""

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the pages' files and mine.toml."""
    write_modules(tmp_path)
    (tmp_path / "mine.toml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pages' files, installed as pip installs: entry points stand in a folder of metadata."""
    folder = tmp_path_factory.mktemp("site-packages")
    write_modules(folder)
    metadata = folder / "my_parts-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("\n".join(f"[{group}]\n{line}\n" for group, line in POINTS.items()))
    return folder


@pytest.fixture
def importable(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files can be imported in this process, and are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(files))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if (files / f"{name}.py").exists():
            del sys.modules[name]


def environment(installed: Path) -> dict[str, str]:
    """Of a process that finds what is installed there, and nothing in the current folder by itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DAG_ACFL_")}
    return {**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{installed}", "PYTHONSAFEPATH": "1"}


def test_every_group_of_entry_points_is_in_the_table_with_its_page_and_its_contract() -> None:
    import fl_core.aggregation
    import fl_core.selection
    import fl_simulator.attacks
    import fl_simulator.data.catalogue
    import fl_simulator.data.partition
    import fl_simulator.graphs.topology
    import fl_simulator.strategies.asynchronous

    modules = [
        fl_core.aggregation,
        fl_core.selection,
        fl_simulator.attacks,
        fl_simulator.data.catalogue,
        fl_simulator.data.partition,
        fl_simulator.graphs.topology,
        fl_simulator.strategies,
        fl_simulator.strategies.asynchronous,
    ]
    registries = [each for module in modules for each in vars(module).values() if isinstance(each, Registry)]
    groups = {each.group for each in registries if each.group}
    rows = re.findall(r"^\| \[.+?\]\((.+?)\) \|.+?\| (`dag_acfl.+?) \|", INDEX.read_text("utf-8"), re.MULTILINE)
    assert {group for _, said in rows for group in re.findall(r"`(.+?)`", said)} == groups
    assert {page for page, _ in rows} == {each.name for each in PAGES.glob("*.md")} - {"index.md"}


@pytest.mark.usefixtures("importable")
def test_every_simulation_in_the_pages_is_one_that_can_be_run() -> None:
    found = []
    for page in PAGES.glob("*.md"):
        for words in commands_written(page):
            if words[:2] == ["simulate", "mine.toml"]:
                said = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
                if not re.search(r"=(threshold|near-median)$", " ".join(said)):  # of the package
                    (run,) = read_experiment(Path("mine.toml"), overrides=overrides_of(said)).runs
                    found += [value for section in run.scenario.sections().values() for value in section.values()]
    paths = {each for each in found if isinstance(each, str) and ":" in each}
    assert paths == {line.partition(" = ")[2] for line in POINTS.values()}


@pytest.mark.usefixtures("importable")
def test_the_simulation_in_python_runs_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [each for each in code_blocks(PAGES / "data-set.md", "python") if "load_digits()" in each]
    exec(compile(block, "data-set.md", "exec"), {"__name__": "docs_data_set"})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    accuracies = [float(line.split()[1]) for line in lines]
    assert accuracies[-1] > accuracies[0]


METHODS = """
[[methods]]
label = "ledger"
strategy = {{ name = "dag-acfl", selector = "{selector}", aggregator = "{aggregator}" }}

[[methods]]
label = "rounds"
strategy.name = "{strategy}"

[[methods]]
label = "graph"
strategy.name = "decavg"
topology.name = "{topology}"
"""
"""What says all six kinds, with the data set and the partitioner beside it."""


@pytest.mark.usefixtures("files")
def test_parts_of_all_kinds_run_by_their_place_in_a_folder_and_by_their_name_in_a_package(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("near_median", "fed_median", "bars"):
        Path(f"{module}.py").unlink()
    names = {"selector": "threshold:Threshold", "aggregator": "near-median", "strategy": "fed-median"}
    names |= {"topology": "tree:tree", "partition": "label_each:label_each", "data": "bars"}
    base = '[base]\nmodel.name = "mlp"\nrun.rounds = 2\nrun.evaluate_every = 2\n'
    base += f'data = {{ name = "{names["data"]}", pixels = "unit" }}\npartition.name = "{names["partition"]}"\n'
    Path("all.toml").write_text(base + METHODS.format(**names))
    command = [sys.executable, "-m", "dag_acfl", "simulate", "all.toml", "--jobs", "1", "--only", "*"]  # and no report
    subprocess.run(command, env=environment(package), capture_output=True, check=True)
    runs = {folder.parent.name: folder.parent for folder in Path("results/simulations/all").glob(f"*/{SUMMARY}")}
    assert runs.keys() == {f"bars-mlp-1-{method}-seed-0" for method in ("ledger", "rounds", "graph")}
    ledger = runs["bars-mlp-1-ledger-seed-0"]
    assert read_rounds(ledger)[-1].accuracy == 1.0  # each client has one label
    assert main(["ledger", "inspect", str(ledger / LEDGER)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^selector +threshold\b", shown, re.MULTILINE)
    assert re.search(r"^aggregator +near-median\b", shown, re.MULTILINE)


@pytest.mark.usefixtures("importable")
def test_a_server_selects_and_averages_by_installed_parts_and_does_not_start_without_them(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("genesis.toml").write_text(GENESIS)
    Path("first.safetensors").write_bytes(model(1, 1, 1, 1))
    serve = ("serve", "--port", "0")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(package))
        assert main(["ledger", "init", "genesis.toml", "--model", "first.safetensors"]) == 0
    assert "selector  threshold, aggregator near-median" in capsys.readouterr().out
    assert main(serve) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: unknown aggregator 'near-median'; .+ entry points dag_acfl\.aggregators", said)
    with subprocess.Popen(
        [sys.executable, "-m", "dag_acfl", *serve],
        env=environment(package),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().removeprefix("serving on ").strip()
            for seed, learnt in enumerate((2.0, 2.05, 4.0)):
                with LedgerClient(url, key=key_from_seed(seed)) as client:
                    client.publish(model(learnt, 1, 1, 1), parents=[client.genesis().ledger], num_examples=10)
            with LedgerClient(url, key=key_from_seed(9)) as client:
                selection = client.select(model=model(3, 1, 1, 1))
                average = decode_model(LAYOUT, client.download(selection.aggregate.digest))
        finally:
            server.terminate()
    assert (selection.selector, selection.rule, selection.cut) == ("threshold", "threshold", 3)
    near = (2.0 + 2.05 + 2.15) / 3  # 4 is brought to within 0.1 of the median
    assert np.allclose(average["fc.bias"], [near])
