"""The demo's two pictures: how accuracy rose, and the DAG that came of it.

Clusters keep one colour in terminal and pictures; the colours are those that Okabe and Ito chose to be
told apart with any eyes.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dag_acfl.demo.events import Published
from dag_acfl.demo.figures import MethodFigure, Site
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


def plot_accuracy(
    path: Path,
    *,
    published: Sequence[Published],
    clusters: Sequence[int],
    labels: Sequence[str],
    methods: Sequence[MethodFigure],
) -> None:
    """Test accuracy of ω_agg over each client's transactions; the baselines as lines at their final value.

    Args:
        path: PNG file to write.
        published: All rounds of all clients.
        clusters: Each client's true cluster.
        labels: Each cluster's name.
        methods: Local-only, FedAvg, and DAG-ACFL last.
    """
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    figure, axes = _figure(width=9.0, height=5.2)
    series = _series(published, len(clusters))
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
    axes.set_xlabel("transactions of a client", color=_SOFT)
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
    path: Path, *, genesis: TxId, sites: Sequence[Site], clusters: Sequence[int], labels: Sequence[str]
) -> None:
    """Every transaction on its client's lane, in the ledger's order, with a line to each parent.

    Args:
        path: PNG file to write.
        genesis: The first transaction's id.
        sites: All others, in the ledger's order.
        clusters: Each client's true cluster.
        labels: Each cluster's name.
    """
    from matplotlib.collections import LineCollection  # noqa: PLC0415

    figure, axes = _figure(width=11.0, height=6.2)
    order = sorted(range(len(clusters)), key=lambda client: (clusters[client], client))
    lane = {client: float(-(place + 0.8 * clusters[client])) for place, client in enumerate(order)}
    position: dict[TxId, tuple[float, float]] = {
        site.id: (float(number), lane[site.client]) for number, site in enumerate(sites, start=1)
    }
    client_of: Mapping[TxId, int] = {site.id: site.client for site in sites}
    middle = (max(lane.values()) + min(lane.values())) / 2
    position[genesis] = (-0.02 * len(sites) - 1.5, middle)
    inside: list[Any] = []
    inside_colours: list[str] = []
    foreign: list[Any] = []
    origin: list[Any] = []
    for site in sites:
        for parent in site.header.parents:
            edge = (position[site.id], position[parent])
            if parent == genesis:
                origin.append(edge)
            elif clusters[client_of[parent]] == clusters[site.client]:
                inside.append(edge)
                inside_colours.append(colour_of(clusters[site.client]))
            else:
                foreign.append(edge)
    end = len(sites) + 1.5
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
    size = float(np.clip(9000 / (len(sites) + 40), 14, 60))
    axes.scatter(
        [position[site.id][0] for site in sites],
        [position[site.id][1] for site in sites],
        c=[colour_of(clusters[site.client]) for site in sites],
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
    axes.set_xlabel("transactions, in the order in which the ledger admitted them", color=_SOFT)
    crossing = "no line crosses clusters"
    if foreign:
        crossing = f"{len(foreign)} line{'s cross' if len(foreign) > 1 else ' crosses'} clusters (black)"
    _titles(
        figure,
        f"{len(sites)} transactions of {len(clusters)} clients: who learnt from whom",
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


def _series(published: Sequence[Published], num_clients: int) -> list[list[float]]:
    series: list[list[float]] = [[] for _ in range(num_clients)]
    for each in sorted(published, key=lambda event: event.number):
        series[each.client].append(each.accuracy)
    return series


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
