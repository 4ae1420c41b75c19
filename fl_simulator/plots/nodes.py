"""How nodes differ: each node's accuracy at the end (DecDiff, Fig. 6), and the mean over nodes with the least and the
greatest over rounds (D-Cliques, Fig. 1 and after).

Both are drawn from what every node had at each evaluated round, which runs keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fl_simulator.errors import SimulationError
from fl_simulator.plots.series import (
    Band,
    End,
    Series,
    draw_line,
    label_across,
    make_logarithmic,
    name_ends,
    require_drawn,
    space,
)
from fl_simulator.plots.style import DPI, FAINT, INK, SOFT, new_figure, new_panels, set_titles
from fl_simulator.run.record import ClientFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STRIP: Final = 0.32
"""Half a strip's width, where methods are 1 apart."""
_METHOD_INCHES: Final = 1.05


@dataclass(frozen=True, slots=True)
class NodeSeries:
    """One method's nodes.

    Attributes:
        series: Its name and look.
        nodes: Figures of every node of each seed's run, at all evaluated rounds.
    """

    series: Series
    nodes: tuple[ClientFigures, ...]


def nodes_over_rounds(nodes: Sequence[ClientFigures], figure: Literal["accuracy", "loss"]) -> Band | None:
    """Mean over nodes and seeds, and the least and the greatest node of any seed, at rounds that all seeds have.

    Args:
        nodes: Of each seed, at all evaluated rounds; nodes that were not evaluated are left out.
        figure: Which.

    Returns:
        None without a round in common.
    """
    kept = [(each.rounds, getattr(each, figure)) for each in nodes if each.rounds is not None and len(each.rounds)]
    if not kept:
        return None
    rounds = kept[0][0]
    for those, _ in kept[1:]:
        rounds = np.intersect1d(rounds, those)
    rows: list[NDArray[np.float64]] = [found[np.isin(those, rounds)].astype(np.float64) for those, found in kept]
    values = np.concatenate(rows, axis=1)  # (rounds, nodes of all seeds)
    values[~np.isfinite(values)] = np.nan
    judged = ~np.isnan(values).all(axis=1)
    if not judged.any():
        return None
    values = values[judged]
    return Band(
        rounds[judged].astype(np.float64),
        np.nanmean(values, axis=1),
        np.nanmin(values, axis=1),
        np.nanmax(values, axis=1),
    )


def draw_node_curves(series: Sequence[NodeSeries], path: Path, *, lowest: float = 0.0, title: str = "") -> "Figure":
    """Accuracy above, loss below: a bold line for the mean over nodes, thin ones for the least and the greatest node.

    Args:
        series: One for each method.
        path: Picture to write.
        lowest: Where the axis of accuracy begins, if that leaves something to see; 0: at the lowest.
        title: Of the picture.

    Returns:
        The figure as written: accuracy's axes, then loss's. A method's lines are labelled with its name, and with
        `` least`` and `` greatest`` behind it.

    Raises:
        MatplotlibMissingError: matplotlib is not installed.
        SimulationError: No run has kept its nodes' figures.
    """
    figure, (accuracy, loss) = new_panels((1.5, 1.0), width=9.5, height=7.2)
    space(figure, [each.series for each in series])
    ends = _draw_nodes(accuracy, series, "accuracy")
    require_drawn(ends, "nodes' accuracy")
    bottom = _begin_at(accuracy, lowest)
    name_ends(accuracy, [end for end in ends if end.height >= bottom])
    losses = _draw_nodes(loss, series, "loss")
    make_logarithmic(loss)
    name_ends(loss, losses)
    accuracy.set_ylabel("accuracy", color=SOFT)
    loss.set_ylabel("loss", color=SOFT)
    label_across(loss, "round")
    set_titles(
        figure,
        title=title or "Accuracy and loss of nodes",
        subtitle=f"Bold: mean over nodes; thin: the least and the greatest node. {_seeds_of(series)}",
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def draw_node_accuracy(series: Sequence[NodeSeries], path: Path, *, lowest: float = 0.0, title: str = "") -> "Figure":
    """A dot for each node at its accuracy in the last evaluated round, a strip and a box for each method (Fig. 6).

    Args:
        series: One for each method.
        path: Picture to write.
        lowest: Where the axis of accuracy begins, if that leaves something to see; 0: at the lowest.
        title: Of the picture.

    Returns:
        The figure as written; a method's dots are a collection with its name for a label.

    Raises:
        MatplotlibMissingError: matplotlib is not installed.
        SimulationError: No run has kept its nodes' figures.
    """
    width = max(8.5, 1.2 + _METHOD_INCHES * len(series))
    figure, axes = new_figure(width=width, height=4.8)
    drawn = 0
    for place, each in enumerate(series):
        last = [nodes.accuracy[-1] for nodes in each.nodes if len(nodes.accuracy)]
        values = np.concatenate(last).astype(np.float64) if last else np.empty(0)
        values = np.sort(values[np.isfinite(values)])
        if not len(values):
            continue
        drawn += 1
        axes.boxplot(
            values,
            positions=[place],
            widths=2 * _STRIP + 0.12,
            showfliers=False,
            boxprops={"color": SOFT, "lw": 1.0},
            whiskerprops={"color": SOFT, "lw": 1.0},
            capprops={"color": SOFT, "lw": 1.0},
            medianprops={"color": INK, "lw": 1.6},
            zorder=3,
        )
        axes.scatter(
            place + strip(values),
            values,
            s=13,
            color=each.series.colour,
            alpha=0.6,
            lw=0,
            label=each.series.name,
            zorder=2,
        )
    if not drawn:
        raise SimulationError("none of these runs has kept its nodes' accuracy")
    names = [_broken(each.series.name) for each in series]
    axes.set_xticks(range(len(series)), names)
    for label, each in zip(axes.get_xticklabels(), series, strict=True):
        label.set_color(each.series.colour)
        label.set_fontweight("bold")
    axes.set_xlim(-0.6, len(series) - 0.4)
    _begin_at(axes, lowest)
    axes.set_ylabel("accuracy", color=SOFT)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    lines = max(name.count("\n") for name in names)
    figure.subplots_adjust(
        left=0.8 / width, right=1 - 0.2 / width, top=1 - 0.85 / 4.8, bottom=(0.45 + 0.16 * lines) / 4.8
    )
    set_titles(
        figure,
        title=title or "Accuracy of each node at the end",
        subtitle=f"A dot for each node; box: quartiles and median. {_seeds_of(series)}",
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def strip(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each of these dots stands from the middle of its strip, so that near ones stand apart.

    Multiples of the golden section, which fill an interval evenly however many there are, in the order of the values:
    nothing is drawn by chance.

    Args:
        values: Ascending, shape ``(n,)``.
    """
    golden = (np.sqrt(5.0) - 1) / 2
    offsets: NDArray[np.float64] = _STRIP * (2 * np.mod(0.5 + golden * np.arange(len(values)), 1.0) - 1)
    return offsets


def _draw_nodes(axes: "Axes", series: Sequence[NodeSeries], figure: Literal["accuracy", "loss"]) -> list[End]:
    ends: list[End] = []
    for order, each in enumerate(series):
        band = nodes_over_rounds(each.nodes, figure)
        if band is None:
            continue
        look = each.series
        for edge, word in ((band.low, "least"), (band.high, "greatest")):
            axes.plot(
                band.across, edge, color=look.colour, ls=look.dashes, lw=0.7, alpha=0.75, label=f"{look.name} {word}"
            )
        draw_line(axes, look, band, width=3.0 - 1.2 * order / max(len(series) - 1, 1))
        ends.append(End(float(band.mean[-1]), look))
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.0)
    return ends


def _begin_at(axes: "Axes", lowest: float) -> float:
    """Let the upright axis begin there, unless nothing would be seen; where it begins."""
    _, top = axes.get_ylim()
    if 0 < lowest < top:
        axes.set_ylim(bottom=lowest)
    return float(axes.get_ylim()[0])


def _seeds_of(series: Sequence[NodeSeries]) -> str:
    counts = sorted({len(each.nodes) for each in series})
    if counts == [1]:
        return "One seed."
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Nodes of {seeds} seeds together."


def _broken(name: str) -> str:
    """A long name on two lines or more."""
    lines = [""]
    for word in name.split():
        if lines[-1] and len(lines[-1]) + len(word) >= 12:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
