"""Write the parts of docs/ that the code decides: `make docs`. With `--check` write nothing, fail when one is stale.

docs/settings.md             from ledger_server.settings
docs/conformance/v1.json     from docs/vectors.py
docs/openapi.json            from the routes, as a server's /openapi.json
docs/protocol.md, docs/faults.md, docs/selection.md, docs/simulator.md, docs/results.md, docs/decentralised.md
                             the blocks between <!-- generated: NAME --> and <!-- end -->
"""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, get_type_hints

import typer
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from fastapi.routing import APIRoute
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from dag_acfl.cli import app
from docs.vectors import conformance_vectors
from fl_core.aggregation import FedAvgParams, KrumParams, MedianParams, MultiKrumParams, TrimmedMeanParams
from fl_core.errors import ERRORS_BY_CODE
from fl_core.parameters import Rule, rules_of
from fl_core.selection import BeastParams, LargestGapParams, LeastSquaresParams, TopKParams
from fl_core.topology import TOPOLOGIES, build_topology
from fl_simulator.data import DATA_SETS
from fl_simulator.engine.conditions import AVAILABILITIES, DISTRIBUTIONS, MembershipParams, WorkParams
from fl_simulator.engine.moments import Schedule
from fl_simulator.links import Links
from fl_simulator.models.catalogue import MODELS
from fl_simulator.partition import PARTITIONERS, build_partitioner
from fl_simulator.report_plan import REPORT_PARTS
from fl_simulator.scenario import DIGITS, Named, Scenario
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from ledger_server.api.errors import CATALOGUE
from ledger_server.app import api_routes, openapi_document
from ledger_server.edge.access import access_of
from ledger_server.edge.problem_types import PROBLEM_TYPES
from ledger_server.settings import ENV_PREFIX, Settings

DOCS: Final = Path(__file__).resolve().parent
ROOT: Final = DOCS.parent
_BLOCK: Final = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_SETTINGS_INTRODUCTION: Final = f"""\
Each is looked for in this order: an option of `dag-acfl serve`, the environment (`{ENV_PREFIX}…`), `.env`,
`dag-acfl.toml` in the working folder, the default. `dag-acfl serve --print-config` shows the outcome. What the
members of a ledger must agree on is not here but in its genesis document (docs/protocol.md).
"""

_COMMANDS_INTRODUCTION: Final = """\
Exit codes: 0 done, 1 it failed (one line says what, and how to mend it), 2 the command was written wrongly, 130 Ctrl-C.
`--debug`, or `DAG_ACFL_DEBUG=1`, shows a failure's traceback.
"""


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# -- settings -------------------------------------------------------------------------------------


def settings_page() -> str:
    """The whole of docs/settings.md."""
    parts = [
        "# Settings of a ledger server\n",
        "<!-- Written by `make docs` from ledger_server/settings.py; change it there. -->\n",
        _SETTINGS_INTRODUCTION,
        table(("`dag-acfl.toml`", "environment", "default", "bounds", "what it decides"), _settings_rows(Settings, "")),
    ]
    for name, field in Settings.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            parts.append(f"## `[{name}]`: {inspect.cleandoc(group.__doc__ or '')}\n")
            parts.append(
                table(
                    ("`dag-acfl.toml`", "environment", "default", "bounds", "what it decides"),
                    _settings_rows(group, f"{name}__"),
                )
            )
    return "\n".join(parts)


def _settings_rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            variable = f"`{ENV_PREFIX}{(prefix + name).upper()}`"
            yield f"`{name}`", variable, _default(field), _bounds(field), field.description or ""


def _default(field: FieldInfo) -> str:
    value = field.get_default()
    if value is None or value == ():
        return "none"
    if isinstance(value, SecretStr):
        return "secret"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"`{value}` ({value >> 20} MiB)"
    return f"`{value}`"


def _bounds(field: FieldInfo) -> str:
    said = []
    for rule in _constraints(field):
        match rule:
            case Ge(ge=low):
                said.append(f"≥ {low}")
            case Gt(gt=low):
                said.append(f"> {low}")
            case Le(le=high):
                said.append(f"≤ {high}")
            case Lt(lt=high):
                said.append(f"< {high}")
            case MinLen(min_length=low):
                said.append(f"length ≥ {low}")
            case MaxLen(max_length=high):
                said.append(f"length ≤ {high}")
            case _:
                pass
    return ", ".join(said)


def _constraints(field: FieldInfo) -> Iterator[object]:
    for item in field.metadata:
        if isinstance(item, FieldInfo):
            yield from _constraints(item)
        else:
            yield item


# -- commands -------------------------------------------------------------------------------------


def commands() -> dict[str, Any]:
    """Every command that does something, by its words: ``ledger init``; typer may bring a click of its own."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, each in getattr(command, "commands", {}).items():
            yield from below(each, (*words, name))
        if not hasattr(command, "commands"):
            yield " ".join(words), command

    return dict(below(typer.main.get_command(app), ()))


def commands_page() -> str:
    """The whole of docs/commands.md."""
    parts = [
        "# The command `dag-acfl`\n",
        "<!-- Written by `make docs` from dag_acfl/commands/; change it there. -->\n",
        _COMMANDS_INTRODUCTION,
    ]
    for words, command in commands().items():
        parts.append(f"## `dag-acfl {words}`\n")
        parts.append(inspect.cleandoc(command.help or "").replace("\n\nExample: ", "\n\n    ") + "\n")
        rows = [(_spelling(each), _help_of(each)) for each in command.params if each.name != "help"]
        if rows:
            parts.append(table(("argument or option", "meaning"), iter(rows)))
    return "\n".join(parts)


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    names = " / ".join((*parameter.opts, *parameter.secondary_opts))
    return f"`{names}`" + (" (required)" if parameter.required else "")


def _help_of(parameter: Any) -> str:
    said, default = parameter.help or "", parameter.default
    plain = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    return f"{said} Default: `{default}`." if plain and "Default" not in said else said


# -- protocol -------------------------------------------------------------------------------------


def problems_table() -> str:
    """Every code that the API can answer with."""

    def rows() -> Iterator[tuple[str, ...]]:
        for code, kind in sorted(CATALOGUE.items(), key=lambda item: (item[1].status, item[0])):
            error = ERRORS_BY_CODE.get(code)
            meaning = inspect.cleandoc(error.__doc__ or "").partition("\n\n")[0] if error else f"{kind.title}."
            if code == "error":
                meaning = "A failure of no better known kind."
            yield f"`{code}`", str(kind.status), meaning

    return table(("code", "status", "meaning"), rows())


def edge_problems_table() -> str:
    """Every code that the server's edge gives before the ledger is asked."""
    rows = ((f"`{code}`", str(kind.status), kind.meaning) for code, kind in PROBLEM_TYPES.items())
    return table(("code", "status", "meaning"), rows)


def routes_table() -> str:
    """Every route of the API."""

    def rows() -> Iterator[tuple[str, ...]]:
        for (path, methods), route in routes().items():
            said = route.summary or inspect.cleandoc(route.endpoint.__doc__ or "").partition("\n")[0].rstrip(".")
            yield f"`{methods} {path}`", access_of(route).value, said

    return table(("route", "access", "what it answers"), rows())


def routes() -> dict[tuple[str, str], APIRoute]:
    """The API's routes in order, by path and methods; HEAD stands with its GET."""
    heads = {route.path for route in _all_routes() if route.methods == {"HEAD"}}
    return {
        (route.path, " ".join(sorted(route.methods or ())) + (" HEAD" if route.path in heads else "")): route
        for route in _all_routes()
        if route.methods != {"HEAD"}
    }


def _all_routes() -> Iterator[APIRoute]:
    yield from api_routes()


def selector_tables() -> str:
    """The parameters of each selector."""
    return _component_tables(
        {
            "beast": BeastParams,
            "largest-gap": LargestGapParams,
            "least-squares": LeastSquaresParams,
            "top-k": TopKParams,
        }
    )


def aggregator_tables() -> str:
    """The parameters of each aggregator."""
    return _component_tables(
        {
            "fedavg": FedAvgParams,
            "median": MedianParams,
            "trimmed-mean": TrimmedMeanParams,
            "krum": KrumParams,
            "multi-krum": MultiKrumParams,
        }
    )


def _component_tables(components: Mapping[str, type[Any]]) -> str:
    head = ("parameter", "default", "range", "meaning")
    parts = []
    for name, params in components.items():
        rows = list(_parameter_rows(params))
        parts.append(f"`{name}`:\n\n{table(head, iter(rows))}" if rows else f"`{name}` has no parameters.\n")
    return "\n".join(parts)


def _parameter_rows(params: type[Any]) -> Iterator[tuple[str, ...]]:
    defaults = params()
    for name, rule in rules_of(params).items():
        value = getattr(defaults, name)
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        yield f"`{name}`", f"`{shown}`" if shown else "none", _range(rule), rule.doc


def _range(rule: Rule) -> str:
    if rule.choices:
        return ", ".join(f"`{choice}`" for choice in rule.choices)
    bounds = (("≥", rule.at_least), (">", rule.above), ("≤", rule.at_most), ("<", rule.below))
    return ", ".join(
        f"{sign} {int(bound) if bound == int(bound) else bound}" for sign, bound in bounds if bound is not None
    )


# -- simulator ------------------------------------------------------------------------------------


def scenario_tables() -> str:
    """The sections of a scenario that every run has."""
    head = ("key", "default", "range", "meaning")
    parts = [
        f"`[{name}]`: {_first_sentence(kind.__doc__)}\n\n{table(head, _parameter_rows(kind))}"
        for name, kind in get_type_hints(Scenario).items()
        if isinstance(kind, type) and kind is not Named  # what is not has tables of its own
    ]
    return "\n".join(parts)


def models_table() -> str:
    """What can be trained."""
    rows = (
        (f"`{name}`", model.title, ", ".join(f"`{each}`" for each in model.last_layers))
        for name, model in MODELS.items()
    )
    return table(("model", "what it is", "what is compared where `compared` is `last`"), rows)


def data_sets_table() -> str:
    """Which samples there are."""
    rows = [(f"`{DIGITS}`", "8 x 8 digits of scikit-learn, which come with the package")]
    rows += [(f"`{name}`", each.title) for name, each in DATA_SETS.items()]
    return table(("data set", "what it is"), iter(rows))


def partition_tables() -> str:
    """Each partitioner with its parameters."""
    kinds = {name: build_partitioner(name, {}) for name in PARTITIONERS}
    return "\n".join(_named_table(name, type(each), type(each.params)) for name, each in kinds.items())


def strategy_tables() -> str:
    """Each strategy with its source and its parameters."""
    return "\n".join(_named_table(name, made, kind) for name, (kind, made) in sorted(STRATEGIES.items()))


def topology_tables() -> str:
    """Each topology with its parameters."""
    kinds: dict[str, Any] = {name: build_topology(name, {}) for name in TOPOLOGIES}
    return "\n".join(_named_table(name, type(each), type(each.params)) for name, each in sorted(kinds.items()))


def links_table() -> str:
    """What ``[topology]`` says beside the topology."""
    return table(("key", "default", "range", "meaning"), _parameter_rows(Links))


def report_tables() -> str:
    """What ``[report]`` may ask for; ``batches`` is a table by settings, and has no row."""
    head = ("key", "default", "range", "meaning")
    parts = [
        f"`[report.{name}]`: {_first_sentence(kind.__doc__)}\n\n{table(head, _parameter_rows(kind))}"
        for name, kind in REPORT_PARTS.items()
    ]
    return "\n".join(parts)


def asynchronous_strategy_tables() -> str:
    """Each strategy without rounds, with its source and its parameters."""
    rules = sorted(ASYNCHRONOUS_STRATEGIES.items())
    return "\n".join(_named_table(name, made, kind) for name, (kind, made) in rules)


def virtual_time_tables() -> str:
    """The table ``[asynchronous]`` and its parts."""
    head = ("key", "default", "range", "meaning")
    parts = [f"`[asynchronous]`: {_first_sentence(Schedule.__doc__)}\n\n{table(head, _parameter_rows(Schedule))}"]
    parts.append(
        "`speed` (samples a second), `up` and `down` (bytes a second) and `latency` (seconds) each name a distribution"
        " over clients, and have its parameters:\n"
    )
    parts += [_part_table(name, kind) for name, kind in DISTRIBUTIONS.items()]
    parts.append("`availability` names when clients can be reached:\n")
    parts += [_part_table(name, kind) for name, (kind, _) in AVAILABILITIES.items()]
    for name, kind in (("membership", MembershipParams), ("work", WorkParams)):
        parts.append(f"`{name}`: {_first_sentence(kind.__doc__)}\n\n{table(head, _parameter_rows(kind))}")
    return "\n".join(parts)


def _part_table(name: str, kind: type[Any]) -> str:
    rows = list(_parameter_rows(kind))
    head = ("parameter", "default", "range", "meaning")
    return f"`{name}`:\n\n{table(head, iter(rows))}" if rows else f"`{name}` has no parameters.\n"


def _named_table(name: str, made: Any, params: type[Any]) -> str:
    """A rule by its module's first paragraph, which names the source, and its parameters."""
    module = inspect.getmodule(made)
    said = " ".join((inspect.getdoc(module) or "").partition("\n\n")[0].replace("``", "`").split())
    own, more = params, ""
    if hasattr(params, "read"):  # one of parts: its own parameters, and where to find the parts'
        own = type(params().own)
        more = "\nAnd those of its parts: `selector`, `aggregator`, `policy`; see below.\n"
    rows = list(_parameter_rows(own))
    parameters = table(("parameter", "default", "range", "meaning"), iter(rows)) if rows else "No parameters.\n"
    return f"**`{name}`.** {said}\n\n{parameters}{more}"


def _first_sentence(doc: str | None) -> str:
    return inspect.cleandoc(doc or "").partition("\n\n")[0]


# -- fault runs -----------------------------------------------------------------------------------

FAULT_RESULTS: Final = DOCS.parent / "benchmarks" / "results"
_FAULT_ORDER: Final = (
    "kill",
    "crash_sites",
    "power_loss",
    "disk",
    "postgresql",
    "cursor",
    "partitions",
    "lossy",
    "late_joiner",
    "bad_peers",
    "hospital",
    "simulation",
)


def faults_table() -> str:
    """What the full fault runs came to, from the files that they wrote."""
    reports = {part: _fault_report(part) for part in _FAULT_ORDER}
    rows = (
        (
            f"`{part}`",
            f"{report['what']}; size {report['size']:,}",
            f"{_total(report['figures'], 'acknowledged'):,}",
            f"{sum(_total(report['figures'], count) for count in ('lost', 'unexpected', 'partial'))}",
            ("yes: " if report["is_sound"] else "**no**: ") + report["must_hold"],
        )
        for part, report in reports.items()
        if report is not None
    )
    return table(("part", "what was done", "acknowledged", "lost, unexpected or partial", "holds"), rows)


def planted_bugs_table() -> str:
    """Which planted bug was found by which part."""
    report = _fault_report("planted_bugs")
    bugs = {} if report is None else {name: bug for name, bug in report["figures"].items() if isinstance(bug, dict)}
    rows = (
        (f"`{name}`", bug["part"], "yes" if bug["is_caught"] else "**no**", (bug["found"] or [""])[0][:90])
        for name, bug in bugs.items()
    )
    return table(("bug", "part", "found", "as"), rows)


def _fault_report(part: str) -> dict[str, Any] | None:
    file = FAULT_RESULTS / f"faults_{part}.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def _total(figures: Any, count: str) -> int:
    """A count of a judged history, summed over all that a report holds; a canary's losses are meant to be."""
    if not isinstance(figures, dict):
        return 0
    if isinstance(figures.get("acknowledged"), int):
        return int(figures.get(count, 0))
    return sum(_total(each, count) for name, each in figures.items() if not name.startswith("canary"))


# -- selection rules ------------------------------------------------------------------------------

SELECTION_RESULTS: Final = DOCS.parent / "benchmarks" / "results" / "change_points.json"


def table_two() -> str:
    """Table II, ours and the paper's: a row for each method, a column for each setting."""
    report = json.loads((_KEPT_REPORTS / "dag-acfl" / "table_2" / "report.json").read_text("utf-8"))
    cells = {(cell["setting"], cell["participation"], cell["method"]): cell for cell in report["cells"]}
    settings = list(dict.fromkeys((setting, share) for setting, share, _ in cells))

    def shown(cell: Mapping[str, Any]) -> str:
        if not cell["seeds"]:
            return "-"
        spread = "" if cell["std"] is None else f" ± {cell['std']:.4f}"
        ours = f"{cell['mean']:.4f}{spread} ({len(cell['seeds'])})"
        return f"**{ours}**" if cell["is_best"] else ours

    def both(method: str, key: tuple[str, float]) -> str:
        cell = cells[*key, method]
        return shown(cell) if cell["printed"] is None else f"{shown(cell)}<br>{cell['printed']:.4f}"

    heads = ("method", *(f"{setting.removeprefix('MNIST')}, γ {share:g}" for setting, share in settings))
    rows = ((method, *(both(method, key) for key in settings)) for method in report["methods"])
    return table(heads, iter(rows))


def experiment_report(name: str, *sections: str) -> str:
    """Accuracies, and these sections, of what ``make experiments`` kept of an experiment."""
    report = (_KEPT_REPORTS / name / "report.md").read_text("utf-8")
    first, *others = re.split(r"\n(?=\*\*[A-Z])", report.partition("\n")[2].partition("\nMissing:")[0])
    chosen = [part for part in others if part.startswith(tuple(f"**{section}" for section in sections))]
    return "\n\n".join(part.strip() for part in [first, *chosen]) + "\n"


def experiment_with_pictures(name: str, *sections: str) -> str:
    """As ``experiment_report``, with the pictures that were kept; a line that says so where nothing was kept yet."""
    folder = _KEPT_REPORTS / name
    if not (folder / "report.md").exists():
        return f"Not run yet: `make experiments PART={folder.name}`.\n"
    return experiment_report(name, *sections) + _pictures(folder, "*.png")


def numerical_model() -> str:
    """What the numerical model of uncoordinated initialisation came to beside the paper, and its pictures."""
    folder = _KEPT_REPORTS / "uncoordinated_initialisation"
    file = folder / "numerical.md"
    if not file.exists():
        return "Not run yet: `make experiments PART=numerical`.\n"
    _, first, exponents, *_ = re.split(r"^(?=\| quantity)|^(?=## )", file.read_text("utf-8"), flags=re.MULTILINE)
    tables = f"{first.strip()}\n\n{exponents.partition(chr(10))[2].strip()}\n"
    return tables + _pictures(folder, "numerical_*.png")


def _pictures(folder: Path, pattern: str) -> str:
    """Links to the pictures of a folder, their names as what they show."""

    def shows(file: Path) -> str:
        return next((said for ending, said in _SHOWN.items() if file.stem.endswith(ending)), file.stem)

    files = sorted(folder.glob(pattern))
    return "".join(f"\n![{shows(file)}](../{file.relative_to(ROOT).as_posix()})\n" for file in files)


_SHOWN: Final = {
    "-node-curves": "Accuracy over rounds: mean, least and greatest of all nodes",
    "-nodes": "Each node's accuracy at the end",
    "-labels": "Labels of each node",
    "-trajectories": "Test loss over rounds",
    "-collapse": "Test loss over scaled time",
    "-deviations": "Standard deviations of parameters, across nodes and within one",
    "-changes": "What aggregation and training change",
    "_5c": "Numerical model: standard deviations of parameters (Fig. 5c)",
    "_8a": "‖v_steady‖ over the number of nodes, by family (Fig. 8a)",
    "_8b": "‖v_steady‖ of configuration models (Fig. 8b)",
    "_8c": "‖v_steady‖ after rewiring (Fig. 8c)",
    "_mixing": "Mixing times",
    "_stabilisation": "Rounds until σ_an is flat",
}
"""What a picture shows, by how its name ends."""

_KEPT_REPORTS: Final = ROOT / "experiments" / "results"


def selection_rules_table() -> str:
    """What each rule took of sequences whose truth is known: right, and foreign where it is not 0."""
    rules = _selection_facts()["rules"]
    kinds = list(next(iter(rules.values())))
    rows = ((rule, *(_right_and_foreign(by_kind[kind]) for kind in kinds)) for rule, by_kind in rules.items())
    return table(("rule", *kinds), rows)


def selection_settings_table() -> str:
    """Per setting of BEAST, and for least squares: how often its cut is the default's, and what a search costs."""
    facts = _selection_facts()
    names = facts["settings"]
    rows = (
        (
            name,
            _percent(facts["same cut as the default"][name]),
            _percent(by_kind["weak"]["same"]),
            _percent(by_kind["weak"]["right"]),
            *(_milliseconds(facts["milliseconds"].get(name, {}).get(length)) for length in ("10", "90", "1000")),
        )
        for name, by_kind in names.items()
    )
    head = ("samples x chains", "same cut", "… weak", "right, weak", "ms, n 10", "ms, n 90", "ms, n 1000")
    return table(head, rows)


def selection_times_table() -> str:
    """Milliseconds of one search by length."""
    milliseconds = _selection_facts()["milliseconds"]
    lengths = list(next(iter(milliseconds.values())))
    names = [name for name in milliseconds if " x " not in name or "default" in name]
    rows = (
        (
            f"BEAST, {name}" if " x " in name else name,
            *(_milliseconds(milliseconds[name].get(length)) for length in lengths),
        )
        for name in names
    )
    return table(("search", *(f"n {length}" for length in lengths)), rows)


def _selection_facts() -> dict[str, Any]:
    return dict(json.loads(SELECTION_RESULTS.read_text("utf-8"))["facts"])


def _right_and_foreign(figures: Mapping[str, float]) -> str:
    foreign = f" ({_percent(figures['foreign'])})" if figures["foreign"] else ""
    return _percent(figures["right"]) + foreign


def _percent(share: float) -> str:
    return f"{share * 100:.1f}"


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 1 else f"{value:.1f}"


_TABLES_OF_NODES: Final = ("Nodes", "Gains", "Characteristic times", "Graphs")

BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "routes": routes_table,
    "problems": problems_table,
    "edge-problems": edge_problems_table,
    "selectors": selector_tables,
    "aggregators": aggregator_tables,
    "faults": faults_table,
    "planted-bugs": planted_bugs_table,
    "scenario": scenario_tables,
    "data-sets": data_sets_table,
    "models": models_table,
    "partitions": partition_tables,
    "strategies": strategy_tables,
    "asynchronous-strategies": asynchronous_strategy_tables,
    "virtual-time": virtual_time_tables,
    "results-table-two": table_two,
    "results-cnn-mnist": partial(experiment_report, "dag-acfl/cnn_mnist_scaled", "Clusters"),
    "results-all-images": partial(experiment_report, "dag-acfl/all_images"),
    "results-joining": partial(experiment_report, "dag-acfl/joining", "Clusters"),
    "results-selectors": partial(experiment_report, "dag-acfl/selectors", "Clusters", "This machine"),
    "results-asynchronous": partial(experiment_report, "asynchronous", "Virtual time"),
    "results-scale": partial(experiment_report, "dag-acfl/scale", "This machine"),
    **{
        f"results-{block}": partial(experiment_with_pictures, name, *sections)
        for block, (name, *sections) in {
            "decdiff-mnist": ("decdiff/table_2_mnist_small", *_TABLES_OF_NODES),
            "decdiff-fashion": ("decdiff/table_2_fashion_small", *_TABLES_OF_NODES),
            "decdiff-disruption": ("decdiff/disruption", "Nodes"),
            "initialisation-plateau": ("uncoordinated_initialisation/plateau_small", "Plateau"),
            "initialisation-barabasi-albert": (
                "uncoordinated_initialisation/plateau_barabasi_albert_small",
                "Plateau",
            ),
            "initialisation-adamw": ("uncoordinated_initialisation/plateau_adamw", "Plateau"),
            "initialisation-links": ("uncoordinated_initialisation/links",),
            "initialisation-nodes-up": ("uncoordinated_initialisation/nodes_up",),
            "initialisation-changes": ("uncoordinated_initialisation/changes",),
            "initialisation-estimates": ("uncoordinated_initialisation/estimates", "Plateau"),
            "initialisation-exponents": ("uncoordinated_initialisation/estimates_exponent", "Plateau"),
            "initialisation-degrees": ("uncoordinated_initialisation/degrees",),
            "initialisation-samples": ("uncoordinated_initialisation/samples",),
            "initialisation-nodes": ("uncoordinated_initialisation/nodes",),
            "initialisation-epochs": ("uncoordinated_initialisation/epochs",),
            "cliques-mnist": ("d_cliques/mnist_100", "Nodes", "Graphs"),
            "cliques-thousand": ("d_cliques/mnist_1000", "Nodes", "Graphs"),
            "cliques-joined": ("d_cliques/interclique", "Nodes", "Graphs"),
            "cliques-topologies": ("d_cliques/topologies", "Nodes"),
            "cliques-removed": ("d_cliques/cliques_removed", "Nodes"),
            "cliques-iid": ("d_cliques/iid", "Nodes"),
        }.items()
    },
    "results-initialisation-numerical": numerical_model,
    "topologies": topology_tables,
    "links": links_table,
    "report-plan": report_tables,
    "selection-rules": selection_rules_table,
    "selection-settings": selection_settings_table,
    "selection-times": selection_times_table,
}


def with_blocks(text: str) -> str:
    """A page with its generated blocks written anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]]()}\n{match[3]}", text)


def pages() -> dict[Path, str]:
    """Every generated file and what it must hold."""
    blocks_in = ("protocol.md", "faults.md", "results.md", "decentralised.md", "selection.md", "simulator.md")
    with_generated_blocks = [DOCS / name for name in blocks_in]
    vectors = json.dumps(conformance_vectors(), indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    return {
        DOCS / "settings.md": settings_page(),
        DOCS / "commands.md": commands_page(),
        DOCS / "conformance" / "v1.json": vectors,
        DOCS / "openapi.json": json.dumps(openapi_document(), indent=1, ensure_ascii=True) + "\n",
        **{page: with_blocks(page.read_text("utf-8")) for page in with_generated_blocks},
    }


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description="Write the generated parts of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a part is stale")
    check = parser.parse_args().check
    stale = [(page, text) for page, text in pages().items() if not page.exists() or page.read_text("utf-8") != text]
    for page, text in stale:
        if not check:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, "utf-8")
        print(f"{'stale' if check else 'written'}: {page.relative_to(DOCS.parent)}")
    if check and stale:
        sys.exit("run `make docs` and commit what it writes")


if __name__ == "__main__":
    main()
