"""A trial's two pictures: how the figure rose, and the DAG that came of it. Clusters have the terminal's colours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dag_acfl.trial.progress import Progress
from fl_core.dag.transaction import Transaction
from fl_core.types import TxId
from fl_simulator.plots.style import DPI, FAINT, INK, SOFT, cluster_colour, new_figure, set_titles

_FOREIGN: Final = "#111111"


def plot_curves(
    path: Path, progress: Progress, *, kinds: Sequence[str], methods: Sequence[Mapping[str, Any]], figure: str
) -> None:
    """Accuracy or loss of ω_agg over each client's updates; the baselines as lines at their final value."""
    picture, axes = new_figure(width=9.0, height=5.2)
    clusters = np.array(progress.clusters)
    length = min(map(len, progress.of_client))
    given = np.array([[update.figure for update in updates[:length]] for updates in progress.of_client])
    found = np.hstack([given, np.array(methods[-1]["values"])[:, None]])
    numbers = range(1, length + 2)
    for client, values in enumerate(found):
        axes.plot(numbers, values, color=cluster_colour(clusters[client]), lw=0.8, alpha=0.28)
    for cluster in np.unique(clusters).tolist():
        mean = found[clusters == cluster].mean(axis=0)
        axes.plot(numbers, mean, color=cluster_colour(cluster), lw=2.4, solid_capstyle="round", label=kinds[cluster])
    *baselines, ours = (
        {**method, "shown": f"{method['name']} {method['mean']:.2f}".replace("nan", "not finite")} for method in methods
    )
    for method, dashes in zip(baselines, ((0, (5, 2)), (0, (1, 1.6))), strict=True):
        axes.axhline(method["mean"], color=SOFT, lw=1.4, ls=dashes, zorder=1, label=method["shown"])
    if figure == "accuracy":
        floor = max(0.0, np.floor(np.nanmin([*found.flat, *(method["mean"] for method in methods)]) * 10) / 10 - 0.02)
        axes.set_ylim(floor, 1.01)
    axes.set_xlim(0.8, length + 1.1)
    axes.set_xticks(range(1, length + 2, max(1, length // 12)))
    axes.set_xlabel("selections of a client", color=SOFT)
    axes.set_ylabel(f"{figure} on its own test set", color=SOFT)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9.5, labelcolor=SOFT)
    set_titles(
        picture,
        title=f"{figure.capitalize()}: " + ", ".join(method["shown"] for method in (ours, *baselines)),
        subtitle="The average that each client was given, before training on it. Bold: mean of a cluster. "
        "Dashed: baselines, same epochs.",
    )
    picture.subplots_adjust(left=0.075, right=0.82, top=0.85, bottom=0.115)
    picture.savefig(path, dpi=DPI, facecolor="white")


def plot_dag(
    path: Path,
    updates: Sequence[Transaction],
    progress: Progress,
    *,
    genesis: TxId,
    kinds: Sequence[str],
    known: bool,
) -> None:
    """Every update on its client's lane, in the ledger's order, with a line to each parent."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415

    figure, axes = new_figure(width=11.0, height=6.2)
    clusters, client_of = progress.clusters, progress.client_of
    order = sorted(range(len(clusters)), key=lambda client: (clusters[client], client))
    lane = {client: float(-(place + 0.8 * clusters[client])) for place, client in enumerate(order)}
    position: dict[TxId, tuple[float, float]] = {
        update.id: (float(number), lane[client_of[update.id]]) for number, update in enumerate(updates, start=1)
    }
    position[genesis] = (-0.02 * len(updates) - 1.5, (max(lane.values()) + min(lane.values())) / 2)
    end = len(updates) + 1.5
    for cluster in sorted(set(clusters)):
        lanes = [lane[client] for client in order if clusters[client] == cluster]
        colour = cluster_colour(cluster)
        axes.axhspan(min(lanes) - 0.6, max(lanes) + 0.6, color=colour, alpha=0.07, lw=0)
        axes.text(
            1.01 * end,
            float(np.mean(lanes)),
            kinds[cluster],
            color=colour,
            fontsize=11,
            fontweight="bold",
            va="center",
        )
    colours = {update.id: cluster_colour(clusters[client_of[update.id]]) for update in updates}
    edges = [(update.id, parent) for update in updates for parent in update.header.parents]
    origin = [edge for edge in edges if edge[1] == genesis]
    inside = [edge for edge in edges if edge[1] != genesis and colours[edge[0]] == colours[edge[1]]]
    foreign = [edge for edge in edges if edge[1] != genesis and colours[edge[0]] != colours[edge[1]]]
    for drawn, shade, width, opacity in (
        (origin, [SOFT], 0.5, 0.35),
        (inside, [colours[child] for child, _ in inside], 0.7, 0.5),
        (foreign, [_FOREIGN], 1.1, 0.9),
    ):
        lines = [(position[child], position[parent]) for child, parent in drawn]
        axes.add_collection(LineCollection(lines, colors=shade, linewidths=width, alpha=opacity, zorder=2))
    axes.scatter(
        [position[update.id][0] for update in updates],
        [position[update.id][1] for update in updates],
        c=[colours[update.id] for update in updates],
        s=float(np.clip(9000 / (len(updates) + 40), 14, 60)),
        edgecolors="white",
        linewidths=0.7,
        zorder=4,
    )
    axes.scatter(*position[genesis], c=INK, s=70, marker="s", zorder=4)
    axes.annotate(
        "genesis", position[genesis], xytext=(0, -14), textcoords="offset points", ha="center", color=INK, fontsize=9
    )
    axes.set_xlim(position[genesis][0] - 0.035 * end, end)
    axes.set_ylim(min(lane.values()) - 1, max(lane.values()) + 1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("updates, in the order in which the ledger admitted them", color=SOFT)
    group = "true cluster, which nobody was told" if known else "the group that was found"
    crossing = "no line crosses clusters"
    if foreign:
        crossing = f"{len(foreign)} line{'s cross' if len(foreign) > 1 else ' crosses'} clusters (black)"
    set_titles(
        figure,
        title=f"{len(updates)} updates of {len(clusters)} clients: who learnt from whom",
        subtitle=f"One lane a client, coloured by {group}; a line leads to each approved model; {crossing}.",
    )
    figure.subplots_adjust(left=0.02, right=0.935, top=0.875, bottom=0.085)
    figure.savefig(path, dpi=DPI, facecolor="white")
