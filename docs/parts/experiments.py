"""The generated parts of docs/results.md and docs/decentralised.md: what `make experiments` kept."""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from docs.parts.kept import EXPERIMENTS, ROOT
from docs.parts.markdown import table


def table_two() -> str:
    """Table II, ours and the paper's: a row for each method, a column for each setting."""
    report = _table_two_report()
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


def costs() -> str:
    """Tables III and IV: the formulas of each method, and what was measured, in one setting of Table II."""
    measured = [
        (cell["method"], cell["costs"])
        for cell in _table_two_report()["cells"]
        if (cell["setting"], cell["participation"]) == ("MNIST(type II)-MLP", 1.0) and cell["costs"]
    ]
    rows = (
        (
            method,
            each["communication"],
            _megabytes(each["printed_round_bytes"]),
            _megabytes(each["expected_round_bytes"]),
            _megabytes(each["measured_round_bytes"]),
            _stored(each, "client"),
            _stored(each, "server"),
        )
        for method, each in measured
    )
    head = ("method", "a round, Table III", "= MB", "each transfer once", "measured", "client, Table IV", "server")
    return table(head, rows)


def _stored(costs: Mapping[str, Any], by: str) -> str:
    """The formula and its megabytes; SDAGFL, say, has no server."""
    formula = costs.get(f"{by}_storage")
    return f"{formula} = {_megabytes(costs[f'printed_{by}_bytes'])}" if formula else "-"


def _table_two_report() -> dict[str, Any]:
    return dict(json.loads((EXPERIMENTS / "dag-acfl" / "table_2" / "report.json").read_text("utf-8")))


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}"


def experiment_report(name: str, *sections: str) -> str:
    """Accuracies, and these sections, of what ``make experiments`` kept of an experiment."""
    report = (EXPERIMENTS / name / "report.md").read_text("utf-8")
    first, *others = re.split(r"\n(?=\*\*[A-Z])", report.partition("\n")[2].partition("\nMissing:")[0])
    chosen = [part for part in others if part.startswith(tuple(f"**{section}" for section in sections))]
    return "\n\n".join(part.strip() for part in [first, *chosen]) + "\n"


def experiment_with_pictures(name: str, *sections: str) -> str:
    """As ``experiment_report``, with the pictures that were kept; a line that says so where nothing was kept yet."""
    folder = EXPERIMENTS / name
    if not (folder / "report.md").exists():
        return f"Not run yet: `make experiments PART={folder.name}`.\n"
    return experiment_report(name, *sections) + _pictures(folder, "*.png")


def numerical_model() -> str:
    """What the numerical model of uncoordinated initialisation came to beside the paper, and its pictures."""
    folder = EXPERIMENTS / "uncoordinated_initialisation"
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


BLOCKS_OF_RESULTS: Final[Mapping[str, Callable[[], str]]] = {
    "results-table-two": table_two,
    "results-costs": costs,
    "results-cnn-mnist": partial(experiment_report, "dag-acfl/cnn_mnist_scaled", "Clusters"),
    "results-cnn-cifar": partial(experiment_report, "dag-acfl/cnn_cifar_scaled", "Clusters"),
    "results-all-images": partial(experiment_report, "dag-acfl/all_images"),
    "results-joining": partial(experiment_report, "dag-acfl/joining", "Clusters"),
    "results-selectors": partial(experiment_report, "dag-acfl/selectors", "Clusters", "This machine"),
    "results-asynchronous": partial(experiment_report, "asynchronous", "Virtual time"),
    "results-scale": partial(experiment_report, "dag-acfl/scale", "This machine"),
}

_TABLES_OF_NODES: Final = ("Nodes", "Gains", "Characteristic times", "Graphs")

_ON_GRAPHS: Final = {
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
    "cliques-momentum": ("d_cliques/momentum", "Nodes"),
    "cliques-cifar": ("d_cliques/cifar10_100_small", "Nodes"),
}
"""Of docs/decentralised.md: an experiment, and the tables of its report that the page shows."""

BLOCKS_ON_GRAPHS: Final[Mapping[str, Callable[[], str]]] = {
    "results-initialisation-numerical": numerical_model,
    **{
        f"results-{block}": partial(experiment_with_pictures, name, *sections)
        for block, (name, *sections) in _ON_GRAPHS.items()
    },
}
