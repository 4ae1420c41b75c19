"""[D-Cliques] on MNIST: accuracy, spread over nodes, edges and messages beside what the paper reports.

    python -m experiments.d_cliques.report              # all experiments of this folder
    python -m experiments.d_cliques.report mnist_100    # one of them

Where ``build/simulations`` has finished runs of an experiment, their ``summary.csv`` (a row for each run),
``curves.csv`` and pictures are written anew into ``experiments/results/d_cliques/<experiment>/``; then ``report.md``
is made of the CSV files that are there.
"""

from pathlib import Path

import pandas as pd

from experiments.reporting import (
    Played,
    describe_runs,
    difference_table,
    graph_table,
    keep_results,
    moments_table,
    node_table,
    read_graph_facts,
    read_reported,
    update_reports,
)
from fl_simulator.plots.style import DPI
from fl_simulator.report import (
    RUN,
    accuracy_table,
    draw_curves,
    to_markdown,
)

HERE = Path(__file__).resolve().parent
EXPERIMENTS = (
    "mnist_100",
    "mnist_1000",
    "interclique",
    "topologies",
    "cliques_removed",
    "iid",
    "momentum",
    "pixels",
    "first_models",
    "cifar10_100_small",
    "cifar10_100",
)
WITH_GRAPHS = ("mnist_100", "mnist_1000", "interclique")
REPORTED = {"mnist_100": "accuracy", "cifar10_100": "accuracy_cifar10"}
"""Where the paper's accuracy of central training stands beside ours: at its scale, and once."""
KEYS = ["setting", "method"]
NEARLY_LEVEL = ("mnist_100", "topologies", "cliques_removed", "first_models")
SHOWN_FROM = 0.88
"""Where the paper's pictures of these four begin, too: at 80 to 89 %."""
REFERENCES = ("D-Cliques", "fully connected", "fully connected, one first model")
"""The first of these that an experiment has is what all others are compared with."""


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    rounds, folder = played.rounds, played.kept
    keep_results(rounds, played.summary.join(read_graph_facts(played), on=list(RUN)), folder)
    for place, (setting, mine) in enumerate(rounds.groupby("setting", sort=False), start=1):
        path = folder / f"curves-{place}.png"
        if folder.name in NEARLY_LEVEL:
            draw_nearly_level(mine, path, title=f"{setting}: mean over nodes")
            continue
        figures = ("accuracy", "worst_client", "best_client")
        draw_curves(mine, path, figures=figures, title=f"{setting}: mean, worst and best node")


def draw_nearly_level(rounds: pd.DataFrame, path: Path, *, title: str) -> None:
    """Accuracy from where methods differ by thousandths, without those that never come there, as in the paper."""
    best = rounds.groupby("method").accuracy.transform("max")
    seen = rounds[best > SHOWN_FROM]
    figure = draw_curves(seen if len(seen) else rounds, path, figures=["accuracy"], title=title)
    if len(seen):
        figure.axes[0].set_ylim(SHOWN_FROM, best.max() + 0.001)
    figure.set_size_inches(9.5, 5.2)
    figure.savefig(path, dpi=DPI, facecolor="white")


def tables(folder: Path) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    name = folder.name
    summary = pd.read_csv(folder / "summary.csv")
    reference = next((each for each in REFERENCES if each in set(summary.method)), None)
    paper = read_reported(HERE, REPORTED[name]) if name in REPORTED else None
    parts = [
        f"{describe_runs(summary)} Each run's value is the mean over its nodes."
        + (" Below it: [D-Cliques] Sec. 2.2, central training." if paper is not None else ""),
        to_markdown(accuracy_table(summary, paper)),
        *moments_table(summary),
        *(difference_table(summary, reference) if reference else []),
        *node_table(summary),
    ]
    if name in WITH_GRAPHS:
        beside = read_reported(HERE, "edges").set_index(KEYS)[["edges_per_node", "messages_per_node"]]
        graphs = graph_table(summary).join(beside.set_axis(["edges reported", "messages reported"], axis="columns"))
        order = ["edges", "edges reported", "messages", "messages reported", "gini"]
        parts += [
            "**Graphs.** Edges of a node, messages it sends in a round, beside [D-Cliques] Sec. 5; Gini index.",
            to_markdown(graphs[order].reset_index(), digits=2),
        ]
    return parts


if __name__ == "__main__":
    update_reports(HERE.name, EXPERIMENTS, refresh=refresh, tables=tables)
