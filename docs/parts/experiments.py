"""The generated parts of pages about experiments: tables that were made of committed results."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from docs.parts.kept import EXPERIMENTS, ROOT


def experiment_report(name: str, *, pictures: bool = True, depth: int = 2) -> str:
    """An experiment's tables and pictures; a line that says so where it was not run yet.

    ``depth`` is how many folders the page lies below the project's.
    """
    folder = EXPERIMENTS / name
    file = folder / "report.md"
    if not file.exists():
        return f"Not run yet: `make experiments PART={folder.name}`.\n"
    return file.read_text("utf-8") + (_pictures(folder, "*.png", depth) if pictures else "")


def kept_table(name: str) -> str:
    """The table of an experiment that has a program of its own."""
    return (EXPERIMENTS / name / "table.md").read_text("utf-8")


def table_two(rows: str) -> str:
    """These rows of [DAG-ACFL] Table II, ours and the reported ones."""
    return experiment_report(f"dag-acfl/table_2_{rows}", pictures=False).partition("**Costs.**")[0]


def costs() -> str:
    """[DAG-ACFL] Tables III and IV, beside what was measured."""
    text = experiment_report("dag-acfl/table_2_mlp_type_ii", pictures=False)
    return text[text.index("| method | a round") :]


def full_size(folder: str) -> str:
    """What a paper's experiments at full size would take, of those that ``experiments.full_size`` has worked out."""
    lines = (EXPERIMENTS / "full_size.md").read_text("utf-8").splitlines()
    return "\n".join([*lines[:2], *(line for line in lines if line.startswith(f"| {folder}/"))]) + "\n"


def numerical_model() -> str:
    """What the numerical model of uncoordinated initialisation came to beside [Gain], and its pictures."""
    folder = EXPERIMENTS / "uncoordinated_initialisation"
    text = (folder / "numerical.md").read_text("utf-8")
    reported, exponents = text[text.index("| quantity") :].split("\n## ", maxsplit=2)[:2]
    tables = f"{reported.strip()}\n\n{exponents.partition(chr(10))[2].strip()}\n"
    return tables + _pictures(folder, "numerical_*.png")


def _pictures(folder: Path, pattern: str, depth: int = 2) -> str:
    """Links to the pictures of a folder, their names as what they show."""

    def shows(file: Path) -> str:
        if file.stem.startswith("curves-"):
            return "Curves over rounds, by method"
        return _SHOWN.get(file.stem, file.stem)

    files = sorted(folder.glob(pattern))
    return "".join(f"\n![{shows(file)}]({'../' * depth}{file.relative_to(ROOT).as_posix()})\n" for file in files)


_SHOWN: Final = {
    "found": "Adjusted Rand index of each run over its clients' separation, in units of what is needed",
    "diagram": "Phase diagram: adjusted Rand index by clusters, samples, part drawn from own labels alone, and rule",
    "effects": "Gains without rounds over the ratio of speeds, nobody away, by how long a round waits; 95 % intervals",
    "differences": "Newest updates less tips: accuracy, the worst tenth; seeds, mean, 95 % interval; scales differ",
    "methods": "Methods less the oracle: accuracy, the worst tenth; means, 95 % intervals; hollow: given the number",
    "gain": "What the virtual teacher adds, over the local epochs between two averages",
    "nodes": "Each node's accuracy at the end",
    "labels": "Labels of each node",
    "scaled-loss": "Test loss over scaled time",
    "loss": "Test loss over rounds",
    "loss-over-samples": "Test loss over samples that a node has passed; dashed, the least of a central system",
    "changes": "What aggregation and training change",
    "cosine": "Cosine between what training and what aggregation change",
    "numerical_5c": "Numerical model: standard deviations of parameters (Fig. 5c)",
    "numerical_6": "Averaging compresses parameters: nodes grow alike, and each node's parameters, too (Fig. 6)",
    "numerical_8a": "‖v_steady‖ over the number of nodes, by family (Fig. 8a)",
    "numerical_8b": "‖v_steady‖ of configuration models (Fig. 8b)",
    "numerical_8c": "‖v_steady‖ after rewiring (Fig. 8c)",
    "numerical_mixing": "Mixing times",
    "numerical_stabilisation": "Rounds until σ_an is flat",
}
"""What a picture shows, by its name."""


def _blocks(folder: str, names: Mapping[str, str]) -> dict[str, Callable[[], str]]:
    return {f"results-{block}": partial(experiment_report, f"{folder}/{name}") for block, name in names.items()}


CANDIDATES: Final = {"results-candidates": partial(experiment_report, "findings/candidates", pictures=False)}
PRIVACY: Final = {"results-privacy": partial(kept_table, "privacy")}
DAG_ACFL: Final[Mapping[str, Callable[[], str]]] = {
    "results-table-two-lr": partial(table_two, "lr"),
    "results-table-two-mlp-type-ii": partial(table_two, "mlp_type_ii"),
    "results-table-two-mlp-type-i": partial(table_two, "mlp_type_i"),
    "results-costs": costs,
    "results-dag-acfl-full-size": partial(full_size, "dag-acfl"),
    **{
        f"results-{block}": partial(experiment_report, f"dag-acfl/{name}", pictures=False)
        for block, name in {
            "cnn-mnist": "cnn_mnist_scaled",
            "cnn-cifar": "cnn_cifar_scaled",
            "all-images": "all_images",
            "joining": "joining",
            "selectors": "selectors",
            "asynchronous": "asynchronous",
            "scale": "scale",
        }.items()
    },
}
DECDIFF: Final[Mapping[str, Callable[[], str]]] = {
    **_blocks(
        "decdiff",
        {
            "decdiff-mnist": "table_2_mnist_small",
            "decdiff-fashion": "table_2_fashion_small",
            "decdiff-rate": "learning_rate",
            "decdiff-pixels": "unit_pixels",
            "decdiff-disruption": "disruption",
            "decdiff-teacher": "virtual_teacher",
        },
    ),
    "results-decdiff-full-size": partial(full_size, "decdiff"),
}
INITIALISATION: Final[Mapping[str, Callable[[], str]]] = {
    "results-initialisation-full-size": partial(full_size, "uncoordinated_initialisation"),
    **_blocks(
        "uncoordinated_initialisation",
        {
            "initialisation-plateau": "plateau_small",
            "initialisation-barabasi-albert": "plateau_barabasi_albert_small",
            "initialisation-adamw": "plateau_adamw",
            "initialisation-links": "links",
            "initialisation-nodes-up": "nodes_up",
            "initialisation-changes": "changes",
            "initialisation-estimates": "estimates",
            "initialisation-degrees": "degrees",
            "initialisation-samples": "samples",
            "initialisation-nodes": "nodes",
            "initialisation-epochs": "epochs",
            "initialisation-total": "total_data",
        },
    ),
    "results-initialisation-numerical": numerical_model,
}
CLIQUES: Final[Mapping[str, Callable[[], str]]] = {
    **_blocks(
        "d_cliques",
        {
            "cliques-mnist": "mnist_100",
            "cliques-thousand": "mnist_1000",
            "cliques-joined": "interclique",
            "cliques-topologies": "topologies",
            "cliques-removed": "cliques_removed",
            "cliques-iid": "iid",
            "cliques-momentum": "momentum",
            "cliques-pixels": "pixels",
            "cliques-first": "first_models",
            "cliques-cifar": "cifar10_100_small",
        },
    ),
    "results-cliques-full-size": partial(full_size, "d_cliques"),
}
CLUSTERED: Final = {
    f"results-clustered-{name.replace('_', '-')}": partial(experiment_report, f"clustered/{name}")
    for name in ("shifts", "other_data", "untouched", "conditions", "few_samples")
}
FINDINGS: Final = {
    f"results-{name.replace('_', '-')}": partial(experiment_report, f"findings/{name}", depth=1)
    for name in ("phase", "phase_anew", "freshness", "tips_or_newest")
}
ATTACKS: Final[Mapping[str, Callable[[], str]]] = {
    f"attacks-{name.replace('_', '-')}": partial(experiment_report, f"attacks/{name}", pictures=False)
    for name in (
        "undisturbed",
        "one_in_nine",
        "a_fifth",
        "two_fifths",
        "plain_means",
        "skewed",
        "small_clusters",
        "mnist",
        "quarantine",
        "refusing",
        "as_its_paper",
        "peers",
        "over_http",
    )
}
