"""An experiment: a table of runs, as data.

    name = "dag-acfl/table_2_lr"
    title = "DAG-ACFL, Table II: MNIST rows"
    participation = [1.0, 0.5]            # optional: the rows' other half
    seeds = [0, 1, 2]                     # optional

    [base]                                # what all runs have in common; see ``scenario``
    data = { name = "mnist", pixels = "unit" }
    run.rounds = 200

    [[settings]]                          # rows
    label = "MNIST(type I)-LR"
    partition.kind = "I"

    [[methods]]                           # columns
    label = "DAG-ACFL"
    strategy.name = "dag-acfl"

Every setting is run with every participation, method and seed. A method's tables go over the setting's, which go over
the base's; whoever names another part (``strategy.selector = "top-k"``), or another partition, strategy or topology,
begins with its defaults, whoever says a parameter of one (``strategy.selector.k = 5``) changes that. A method without a
graph stands beside others on one: the base's or the setting's ``[topology]`` is not said to it; nor is a parameter of
``[strategy]`` that the command line says, and only other methods' strategies have. A file of a scenario's sections
alone, such as a run's ``scenario.toml``, is one run.
"""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from fl_core.errors import ConfigurationError
from fl_core.registry import written_params
from fl_core.types import JsonScalar
from fl_simulator.config.scenario import PIXELS, SECTIONS, Scenario, flat_section, flattened, read_scenario
from fl_simulator.errors import ScenarioError
from fl_simulator.run.record import RunLabel
from fl_simulator.strategies import STRATEGIES, needs_graph
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES

_KEYS: Final = ("name", "title", "participation", "seeds", "base", "settings", "methods")
_CHOSEN: Final = frozenset({"attack", "partition", "strategy", "topology"})
"""Sections whose name decides which parameters they have."""
_PIXELS: Final = " or ".join(f'"{each}"' for each in PIXELS)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of an experiment."""

    label: RunLabel
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table of runs.

    Attributes:
        name: Letters, digits, ``_``, ``-`` and ``/``: results go to a folder of this name.
        title: For people.
        runs: All of them, in the file's order; seeds change fastest.
    """

    name: str
    title: str
    runs: tuple[PlannedRun, ...]


def read_experiment(file: Path, *, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read and check an experiment's file.

    Args:
        file: TOML.
        overrides: Sections that go over everything, such as ``{"run": {"rounds": 20}}``; a seed or a participation
            in them stands instead of the file's list.

    Raises:
        ScenarioError: It cannot be read, or says something that cannot be; the message names file and key.
    """
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ScenarioError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{file}: not TOML: {error}") from error
    try:
        if content.keys() <= set(SECTIONS):  # one scenario, as a run's folder holds it
            content = {"base": content}
        return _experiment(content, file, overrides or {})
    except ScenarioError as error:
        raise ScenarioError(f"{file}: {error}") from error


def client_experiment(file: Path, *, sites: int, overrides: Mapping[str, Any]) -> Experiment:
    """A person's own client file: its sites alone, with FedAvg and with DAG-ACFL, in rounds.

    Args:
        file: The client's file, or the folder of a Flower app, of which one epoch is a train message.
        sites: How many of its sites.
        overrides: As of ``read_experiment``; ``client.set.NAME`` is a further argument of its ``trainer()``.
    """
    try:
        texts = _texts_of_app(file) if file.is_dir() else [file]
        digest = hashlib.sha256(b"".join(each.read_bytes() for each in texts)).hexdigest()
    except OSError as error:
        raise ScenarioError(f"{file}: {error.strerror}; write one with: dag-acfl client init {file}") from error
    client = {"file": str(file.resolve()), "sites": sites, "digest": digest}
    epochs = 1 if file.is_dir() else 3
    methods = (("local-only", "local-only"), ("FedAvg", "fedavg"), ("DAG-ACFL", "dag-acfl"))
    content = {
        "title": f"{file.name}, {sites} sites",
        "base": {
            "client": client,
            "training": {"epochs": epochs, "initial_epochs": epochs},
            "run": {"rounds": 20, "evaluate_every": 1, "checkpoint_every": 1},
        },
        "methods": [{"label": label, "strategy": {"name": name}} for label, name in methods],
    }
    return _experiment(content, file, overrides)


def _texts_of_app(folder: Path) -> list[Path]:
    """A Flower app's modules and its pyproject.toml; a virtual environment in its folder is no part of it."""
    texts = [folder / "pyproject.toml"]
    for where, folders, files in os.walk(folder):
        folders[:] = [
            each for each in folders if not each.startswith(".") and not Path(where, each, "pyvenv.cfg").exists()
        ]
        texts += [Path(where, each) for each in files if each.endswith(".py")]
    return sorted(texts)


def _experiment(content: Mapping[str, Any], file: Path, overrides: Mapping[str, Any]) -> Experiment:
    if unknown := sorted(content.keys() - set(_KEYS)):
        raise ScenarioError(f"unknown key {unknown[0]!r}; there are {', '.join(_KEYS)}")
    name = _value(content, "name", re.sub(r"[^A-Za-z0-9_-]+", "-", file.stem))
    if _NAME.fullmatch(name) is None:
        raise ScenarioError(f"name is {name!r}; it names a folder: letters, digits, '_', '-', and '/' between")
    runs = tuple(_runs(name, content, overrides))
    known: set[str] = set()
    for run in runs:
        if (folder := run.label.folder_name) in known:
            raise ScenarioError(f"two runs would be called {folder}; labels, participations and seeds must differ")
        known.add(folder)
    return Experiment(name, _value(content, "title", name), runs)


def _runs(name: str, content: Mapping[str, Any], overrides: Mapping[str, Any]) -> Iterator[PlannedRun]:
    base, said = _value(content, "base", {}), overrides.get("run", {})
    shares = ("participation" not in said and _value(content, "participation", [])) or [None]
    seeds = ("seed" not in said and _value(content, "seeds", [])) or [None]
    settings, methods = _labelled(content, "settings"), _labelled(content, "methods")
    said_of_strategies = {key.partition(".")[0] for key in overrides.get("strategy", {})}
    if said_of_strategies:  # what no strategy of the file takes is refused; what some take is not said to the others
        tables_of = (
            merged(base, setting, method, overrides) for (_, setting), (_, method) in product(settings, methods)
        )
        said_of_strategies &= set[str]().union(*map(_parameters, tables_of))
    for (setting_label, setting), share, (method_label, method), seed in product(settings, shares, methods, seeds):
        own = {"participation": share, "seed": seed}
        run = {"run": {key: value for key, value in own.items() if value is not None}}
        try:
            tables = merged(base, setting, method, run, overrides)
            if method_label and "topology" not in method and _knows_no_graph(tables):
                tables.pop("topology", None)
            if said_of_strategies:
                left_out = said_of_strategies - _parameters(tables)
                said_here = tables["strategy"].items()
                tables["strategy"] = {key: value for key, value in said_here if key.partition(".")[0] not in left_out}
            scenario = read_scenario(tables)
            if scenario.client is None and "pixels" not in tables.get("data", {}):
                raise ScenarioError(f"[data]: say how pixels are scaled: pixels = {_PIXELS}")
        except (ScenarioError, ConfigurationError) as error:
            where = ", ".join(label for label in (setting_label, method_label) if label)
            raise ScenarioError(f"{where}: {error}" if where else str(error)) from error
        label = RunLabel(
            experiment=name,
            setting=setting_label or _setting_of(scenario),
            participation=scenario.run.participation,
            method=method_label or scenario.strategy.name,
            seed=scenario.run.seed,
            rounds=scenario.num_intervals,
        )
        yield PlannedRun(label, scenario)


def _setting_of(scenario: Scenario) -> str:
    """What a setting without a label is called."""
    if scenario.client is not None:
        return f"{Path(scenario.client.file).stem}-{scenario.client.sites}-sites"
    return f"{scenario.data.name}-{scenario.model.name}"


def _knows_no_graph(tables: Mapping[str, Any]) -> bool:
    strategy = tables.get("strategy")
    name = strategy.get("name") if isinstance(strategy, Mapping) else None
    return isinstance(name, str) and name in STRATEGIES and not needs_graph(name)


def _parameters(tables: Mapping[str, Any]) -> set[str]:
    """What may be said of a scenario's strategy; of one that there is not, its name alone."""
    strategy = tables.get("strategy")
    name = str(strategy.get("name", "dag-acfl")) if isinstance(strategy, Mapping) else "dag-acfl"
    found = {"name"}
    for registry in (STRATEGIES, ASYNCHRONOUS_STRATEGIES):
        with suppress(ConfigurationError):
            found |= {key.partition(".")[0] for key in written_params(registry.read_params(name, {}))}
    return found


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Sections over one another, the later ones on top; each as ``flattened`` has it.

    Files, the command line and a run's ``scenario.toml`` spell the same thing differently, with tables in tables or
    dots in keys. Another part (``selector = "top-k"``) takes the parameters of the one below away.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for section, table in layer.items():
            if not isinstance(table, Mapping):
                result[section] = table  # wrong, and refused by its name where the scenario is read
            elif isinstance(below := result.setdefault(section, {}), dict):
                flat = flat_section(section, table)
                if section in _CHOSEN and "name" in flat and below.get("name", flat["name"]) != flat["name"]:
                    below.clear()
                for key in sorted(flat):  # a part before its parameters
                    if below.get(key, flat[key]) != flat[key]:
                        for parameter in [each for each in below if each.startswith(f"{key}.")]:
                            del below[parameter]
                    below[key] = flat[key]
    return result


def override(said: str) -> dict[str, Any]:
    """``run.rounds=20`` as a table; the value is TOML, or text where it is none."""
    path, equals, value = said.partition("=")
    section, dot, key = path.strip().partition(".")
    if not (equals and dot and key and section in SECTIONS):
        raise ScenarioError(f"{said!r} is not section.key=value with a section of {', '.join(SECTIONS)}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return {section: flattened({key: parsed})}


def overrides_of(said: Iterable[str]) -> dict[str, Any]:
    """Several overrides as one layer, in which a part's name and its parameters may stand in any order."""
    layer: dict[str, Any] = {}
    for each in said:
        for section, table in override(each).items():
            layer.setdefault(section, {}).update(table)
    return layer


def scenario_toml(scenario: Scenario) -> str:
    """The scenario as TOML, every default written out; ``read_experiment`` reads it again."""
    tables = [
        f"[{section}]\n" + "".join(f"{_key(key)} = {_literal(value)}\n" for key, value in table.items())
        for section, table in scenario.sections().items()
    ]
    return "\n".join(tables)


def _key(name: str) -> str:
    return json.dumps(name) if "." in name else name


def _literal(value: JsonScalar) -> str:
    # JSON's scalars are TOML's, but for one character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_VALUE_WORDS: Final[Mapping[type, str]] = {str: "text", list: "a list", dict: "a table"}


def _value(content: Mapping[str, Any], key: str, default: Any) -> Any:
    """What a key says; it is of its default's type."""
    value = content.get(key, default)
    if type(value) is not type(default):
        where = f"[{key}]" if isinstance(default, dict) else key
        raise ScenarioError(f"{where} is {_VALUE_WORDS[type(default)]}, not {value!r}")
    return value


def _labelled(content: Mapping[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for entry in _value(content, key, []):
        if not isinstance(entry, dict) or not isinstance(label := entry.get("label"), str) or not label:
            raise ScenarioError(f'each of [[{key}]] is a table with a label, such as label = "MNIST(type I)-LR"')
        found.append((label, {section: table for section, table in entry.items() if section != "label"}))
    return found or [("", {})]
