"""Which labels each client has: DAG-ACFL's Figure 6 (DAG-ACFL, Sec. IV-A), for any population."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from fl_simulator.engine.population import Population
from fl_simulator.plots.style import DPI, FAINT, SOFT, cluster_colour, label_colours, new_figure, set_titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAP: Final = 1.5
"""Between clusters, in bars."""
_LEFT_INCHES: Final = 0.85
_MOST_TICKS: Final = 30
_LEGEND_ROWS: Final = 16
_WORDS_INCHES: Final = 1.0
"""A narrower cluster bears its number only; and only if it is as wide as ``_NUMBER_INCHES``."""
_NUMBER_INCHES: Final = 0.2


def draw_label_distribution(population: Population, path: Path, *, title: str = "") -> "Figure":
    """A bar for each client, stacked by label, clients in the order of their clusters.

    Args:
        population: Whose samples, to train and to test on together, are counted.
        path: Picture to write; its suffix says the format, PNG or any other that matplotlib writes.
        title: Of the picture; by default how many clients and clusters there are.

    Returns:
        The figure as written. Its axes have one container of bars for each label, in the order of labels, and each
        container one bar for each client, in the order of the picture.

    Raises:
        ReportExtraMissingError: matplotlib is not installed.
    """
    order = np.argsort(population.clusters, kind="stable")
    clusters = population.clusters[order]
    counts = population.label_counts[order]  # (C, labels)
    places = np.arange(len(order)) + _GAP * np.cumsum(np.diff(clusters, prepend=clusters[0]) > 0)
    columns = -(-population.num_classes // _LEGEND_ROWS)
    bars_inches = float(np.clip(0.1 * (places[-1] + 1), 6.0, 22.0))
    width, height = _LEFT_INCHES + bars_inches + columns * 0.7 + 0.2, 4.8
    figure, axes = new_figure(width=width, height=height)
    bottom = np.zeros(len(order), dtype=np.int64)
    for label, colour in enumerate(label_colours(population.num_classes)):
        axes.bar(places, counts[:, label], bottom=bottom, width=0.84, color=colour, lw=0, label=str(label))
        bottom += counts[:, label]
    axes.set_xlim(-1, places[-1] + 1)
    axes.set_ylim(0, 1.04 * max(int(bottom.max()), 1))
    axes.set_ylabel("samples", color=SOFT)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    shown = slice(None, None, -(-len(order) // _MOST_TICKS))
    axes.set_xticks(places[shown], [str(client) for client in order[shown]], fontsize=8)
    _mark_clusters(axes, places, clusters, inches_per_bar=bars_inches / (places[-1] + 2))
    axes.legend(
        title="label",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.02),
        ncols=columns,
        frameon=False,
        fontsize=9,
        labelcolor=SOFT,
        reverse=columns == 1,  # as the bars are stacked
    ).get_title().set_color(SOFT)
    set_titles(
        figure,
        title=title or f"Labels of {_counted(len(order), 'client')} in {_counted(population.num_clusters, 'cluster')}",
        subtitle="A bar for each client: its samples, to train and test on, by label. Clients stand by true cluster.",
    )
    figure.subplots_adjust(
        left=_LEFT_INCHES / width,
        right=(_LEFT_INCHES + bars_inches) / width,
        top=1 - 0.85 / height,
        bottom=0.8 / height,
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def _mark_clusters(
    axes: "Axes", places: NDArray[np.float64], clusters: NDArray[np.int64], *, inches_per_bar: float
) -> None:
    """A line in its colour under each cluster, with its number, as far as there is room."""
    below = axes.get_xaxis_transform()
    for cluster in np.unique(clusters).tolist():
        mine = places[clusters == cluster]
        start, end, colour = float(mine[0]) - 0.42, float(mine[-1]) + 0.42, cluster_colour(cluster)
        axes.plot(
            [start, end], [-0.09, -0.09], color=colour, lw=3.5, solid_capstyle="butt", transform=below, clip_on=False
        )
        inches = (end - start) * inches_per_bar
        if inches < _NUMBER_INCHES:
            continue
        words = f"cluster {cluster}" if inches >= _WORDS_INCHES else str(cluster)
        if inches >= 2 * _WORDS_INCHES:
            words += f", {_counted(len(mine), 'client')}"
        axes.text(
            (start + end) / 2,
            -0.115,
            words,
            color=colour,
            fontsize=10,
            fontweight="bold",
            ha="center",
            va="top",
            transform=below,
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
