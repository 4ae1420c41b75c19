"""The demo's two pictures: how accuracy rose, and the DAG that came of it.

Clusters keep one colour in terminal and pictures; the colours are those that Okabe and Ito chose to be
told apart with any eyes.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dag_acfl.demo.figures import MethodFigure
from dag_acfl.demo.progress import Progress
from fl_core.dag.transaction import Transaction
from fl_core.types import TxId

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6D00", "#5B5B5B")
"""One per cluster; they repeat after eight."""
_INK, _SOFT, _FAINT, _FOREIGN = "#1b1f24", "#6b7280", "#e5e7eb", "#111111"
_DPI: Final = 160


def colour_of(cluster: int) -> str:
    """A cluster's colour as ``#rrggbb``."""
    return COLOURS[cluster % len(COLOURS)]


def plot_accuracy(path: Path, progress: Progress, *, labels: Sequence[str], methods: Sequence[MethodFigure]) -> None:
    """Test accuracy of ω_agg over each client's updates; the baselines as lines at their final value.

    Args:
        path: PNG file to write.
        progress: All updates of all clients.
        labels: Each cluster's name.
        methods: Local-only, FedAvg, and DAG-ACFL last.
    """
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    figure, axes = _figure(width=9.0, height=5.2)
    clusters = progress.clusters
    series = [[update.accuracy for update in updates] for updates in progress.of_client]
    for client, values in enumerate(series):
        axes.plot(range(1, len(values) + 1), values, color=colour_of(clusters[client]), lw=0.8, alpha=0.28)
    ends: list[tuple[float, str, str]] = []
    for cluster, label in enumerate(labels):
        members = [values for values, own in zip(series, clusters, strict=True) if own == cluster and values]
        if not members:
            continue
        length = min(map(len, members))
        mean = np.mean([values[:length] for values in members], axis=0)
        axes.plot(range(1, length + 1), mean, color=colour_of(cluster), lw=2.4, solid_capstyle="round")
        ends.append((float(mean[-1]), label, colour_of(cluster)))
    last = max((len(values) for values in series), default=1)
    for method, style in zip(methods[:-1], ((0, (5, 2)), (0, (1, 1.6))), strict=False):
        axes.axhline(method.mean, color=_SOFT, lw=1.4, ls=style, zorder=1)
        axes.text(
            last,
            method.mean - 0.008,
            f"{method.name} {method.mean:.2f}",
            color=_SOFT,
            fontsize=9.5,
            va="top",
            ha="right",
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )
    low = min([*(min(values) for values in series if values), *(method.mean for method in methods)])
    floor = max(0.0, np.floor(low * 10) / 10 - 0.02)
    for height, (_, label, colour) in zip(
        _spread([end[0] for end in ends], gap=0.055 * (1.02 - floor)), ends, strict=True
    ):
        axes.text(last + 0.18, height, label, color=colour, fontsize=10, va="center", fontweight="bold")
    axes.set_xlim(0.8, last + 0.1)
    axes.set_ylim(floor, 1.01)
    axes.set_xticks(range(1, last + 1, max(1, last // 12)))
    axes.set_xlabel("updates of a client", color=_SOFT)
    axes.set_ylabel("accuracy on its own test set", color=_SOFT)
    axes.grid(axis="y", color=_FAINT, lw=0.8)
    ours = methods[-1]
    _titles(
        figure,
        "Accuracy: " + ", ".join(f"{method.name} {method.mean:.2f}" for method in (ours, *methods[:-1])),
        "The average that each client was given, before training on it. Bold: mean of a cluster. "
        "Dashed: baselines, same epochs.",
    )
    figure.subplots_adjust(left=0.075, right=0.885, top=0.85, bottom=0.115)
    figure.savefig(path, dpi=_DPI, facecolor="white")


def plot_dag(
    path: Path, updates: Sequence[Transaction], progress: Progress, *, genesis: TxId, labels: Sequence[str]
) -> None:
    """Every update on its client's lane, in the ledger's order, with a line to each parent.

    Args:
        path: PNG file to write.
        updates: All transactions but genesis, in the ledger's order.
        progress: Says whose they are.
        genesis: The first transaction's id.
        labels: Each cluster's name.
    """
    from matplotlib.collections import LineCollection  # noqa: PLC0415

    figure, axes = _figure(width=11.0, height=6.2)
    clusters, client_of = progress.clusters, progress.client_of
    order = sorted(range(len(clusters)), key=lambda client: (clusters[client], client))
    lane = {client: float(-(place + 0.8 * clusters[client])) for place, client in enumerate(order)}
    position: dict[TxId, tuple[float, float]] = {
        update.id: (float(number), lane[client_of[update.id]]) for number, update in enumerate(updates, start=1)
    }
    middle = (max(lane.values()) + min(lane.values())) / 2
    position[genesis] = (-0.02 * len(updates) - 1.5, middle)
    inside: list[Any] = []
    inside_colours: list[str] = []
    foreign: list[Any] = []
    origin: list[Any] = []
    for update in updates:
        own = clusters[client_of[update.id]]
        for parent in update.header.parents:
            edge = (position[update.id], position[parent])
            if parent == genesis:
                origin.append(edge)
            elif clusters[client_of[parent]] == own:
                inside.append(edge)
                inside_colours.append(colour_of(own))
            else:
                foreign.append(edge)
    end = len(updates) + 1.5
    for cluster, label in enumerate(labels):
        lanes = [lane[client] for client in order if clusters[client] == cluster]
        if not lanes:
            continue
        axes.axhspan(min(lanes) - 0.6, max(lanes) + 0.6, color=colour_of(cluster), alpha=0.07, lw=0)
        axes.text(
            end + 0.01 * end,
            float(np.mean(lanes)),
            label,
            color=colour_of(cluster),
            fontsize=11,
            fontweight="bold",
            va="center",
        )
    axes.add_collection(LineCollection(origin, colors=_SOFT, linewidths=0.5, alpha=0.35, zorder=1))
    axes.add_collection(LineCollection(inside, colors=inside_colours, linewidths=0.7, alpha=0.5, zorder=2))
    axes.add_collection(LineCollection(foreign, colors=_FOREIGN, linewidths=1.1, alpha=0.9, zorder=3))
    size = float(np.clip(9000 / (len(updates) + 40), 14, 60))
    axes.scatter(
        [position[update.id][0] for update in updates],
        [position[update.id][1] for update in updates],
        c=[colour_of(clusters[client_of[update.id]]) for update in updates],
        s=size,
        edgecolors="white",
        linewidths=0.7,
        zorder=4,
    )
    axes.scatter(*position[genesis], c=_INK, s=70, marker="s", zorder=4)
    axes.annotate(
        "genesis", position[genesis], xytext=(0, -14), textcoords="offset points", ha="center", color=_INK, fontsize=9
    )
    axes.set_xlim(position[genesis][0] - 0.035 * end, end)
    axes.set_ylim(min(lane.values()) - 1, max(lane.values()) + 1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("updates, in the order in which the ledger admitted them", color=_SOFT)
    crossing = "no line crosses clusters"
    if foreign:
        crossing = f"{len(foreign)} line{'s cross' if len(foreign) > 1 else ' crosses'} clusters (black)"
    _titles(
        figure,
        f"{len(updates)} updates of {len(clusters)} clients: who learnt from whom",
        "One lane a client, coloured by true cluster, which nobody was told; a line leads to each approved "
        f"model; {crossing}.",
    )
    figure.subplots_adjust(left=0.02, right=0.935, top=0.875, bottom=0.085)
    figure.savefig(path, dpi=_DPI, facecolor="white")


def _figure(*, width: float, height: float) -> "tuple[Figure, Axes]":
    # Not pyplot: no global state, no display.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_FAINT)
    axes.tick_params(colors=_SOFT, length=0, labelsize=9.5)
    return figure, axes


def _titles(figure: "Figure", title: str, subtitle: str) -> None:
    figure.text(0.02, 0.955, title, fontsize=14, fontweight="bold", color=_INK, va="center")
    figure.text(0.02, 0.905, subtitle, fontsize=9.5, color=_SOFT, va="center")


def _spread(heights: Sequence[float], *, gap: float) -> list[float]:
    """Heights for labels, in the given order, at least ``gap`` apart and as near to theirs as that allows."""
    order = np.argsort(heights)
    placed = np.array(heights, dtype=float)
    for _ in range(200):
        moved = False
        for low, high in pairwise(order):
            overlap = gap - (placed[high] - placed[low])
            if overlap > 1e-9:
                placed[low] -= overlap / 2
                placed[high] += overlap / 2
                moved = True
        if not moved:
            break
    return [float(value) for value in placed]
