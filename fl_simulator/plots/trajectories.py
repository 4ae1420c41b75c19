"""How test loss went in all settings of an experiment together, such as graphs of 8 to 64 nodes (Uncoordinated
initialisation, Fig. 3, 4, 7 and 9), and whether curves become one over t / n^mu.

In these pictures a setting has a colour and a method its dashes, the first of them none; of one setting alone, methods
have the colours that they have everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fl_simulator.errors import SimulationError
from fl_simulator.plots.series import (
    Band,
    Series,
    draw_bands,
    label_across,
    make_logarithmic,
    name_ends,
    over_seeds,
    require_drawn,
    space,
    subtitle_of_seeds,
)
from fl_simulator.plots.style import CLUSTER_COLOURS, DPI, INK, SOFT, new_figure, set_titles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def place_of(setting: int, method: int) -> int:
    """The place of a series whose colour says the setting and whose dashes say the method."""
    return setting % len(CLUSTER_COLOURS) + method * len(CLUSTER_COLOURS)


def draw_trajectories(
    series: Sequence[Series],
    path: Path,
    *,
    batches: Mapping[str, float] | None = None,
    limits: Sequence[tuple[float, Series]] = (),
    highest: float = 0.0,
    title: str = "",
) -> "Figure":
    """Mean test loss over nodes, all settings and methods in one panel.

    Args:
        series: One for each setting and method, with a place of ``place_of``.
        path: Picture to write.
        batches: Of each series' name the batches that a node trains on in a round: what goes across is then their
            number, the paper's "wall-clock equivalent". Without, rounds go across.
        limits: Losses that are dashed lines across, in a series' colour: a central system's least, say.
        highest: Where the axis of loss ends; 0: at the greatest loss.
        title: Of the picture.

    Returns:
        The figure as written; a limit's line is labelled with the series' name and `` limit``.

    Raises:
        MatplotlibMissingError: matplotlib is not installed.
        SimulationError: No run has a loss.
    """
    figure, axes = new_figure(width=9.5, height=5.2)
    space(figure, series)
    bands = [(each, over_seeds(each, "loss")) for each in series]
    if batches:
        bands = [
            (each, None if band is None else replace(band, across=(band.across + 1) * batches.get(each.name, 1.0)))
            for each, band in bands
        ]
    ends = draw_bands(axes, bands)
    require_drawn(ends, "loss")
    for value, look in limits:
        axes.axhline(value, color=look.colour, lw=1.0, ls=(0, (6, 3)), zorder=1, label=f"{look.name} limit")
    make_logarithmic(axes, highest=highest)
    name_ends(axes, ends)
    axes.set_ylabel("test loss", color=SOFT)
    if batches:
        axes.set_xlabel("batches that a node has trained on", color=SOFT)
        axes.set_xscale("log")
    else:
        label_across(axes, "round")
    dashed = " Dashed across: a central system's least." if limits else ""
    set_titles(
        figure,
        title=title or "Test loss",
        subtitle=f"Mean over nodes.{dashed} {subtitle_of_seeds(series)}",
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def draw_collapse(
    series: Sequence[tuple[Series, int]],
    path: Path,
    *,
    exponent: float,
    threshold: float | None = None,
    title: str = "",
) -> "Figure":
    """The same of one method over t / n^mu, t counted from 1: curves of all sizes become one where t scales so.

    It ends where the first of them does.

    Args:
        series: One for each setting, with how many nodes it has.
        path: Picture to write.
        exponent: mu.
        threshold: The loss below which the plateau is over: a line across.
        title: Of the picture.

    Returns:
        The figure as written.

    Raises:
        MatplotlibMissingError: matplotlib is not installed.
        SimulationError: No run has a loss, or the exponent is no number.
    """
    if not np.isfinite(exponent):
        raise SimulationError(f"rounds cannot be scaled with an exponent of {exponent}")
    figure, axes = new_figure(width=9.5, height=5.2)
    looks = [each for each, _ in series]
    space(figure, looks)
    scaled = [(each, _scaled(over_seeds(each, "loss"), nodes**exponent)) for each, nodes in series]
    common = min((band.across[-1] for _, band in scaled if band is not None), default=0.0)
    ends = draw_bands(axes, [(each, _up_to(band, common)) for each, band in scaled])
    require_drawn(ends, "loss")
    if threshold is not None:
        axes.axhline(threshold, color=INK, lw=0.9, ls=(0, (1, 1.6)), zorder=1, label="threshold")
    make_logarithmic(axes)
    name_ends(axes, ends)
    axes.set_ylabel("test loss", color=SOFT)
    axes.set_xlabel(f"rounds / n^{exponent:.2f}", color=SOFT)
    dotted = "" if threshold is None else f" Dotted: {threshold:.3f}, where the plateau ends."
    set_titles(
        figure,
        title=title or "Test loss over scaled time",
        subtitle=f"Mean over nodes.{dotted} {subtitle_of_seeds(looks)}",
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def least_loss(series: Series) -> float | None:
    """The least mean test loss of any evaluated round, averaged over seeds; None where a seed has none."""
    least = [
        min((record.loss for record in run if record.loss is not None and np.isfinite(record.loss)), default=None)
        for run in series.runs
    ]
    known = [each for each in least if each is not None]
    return float(np.mean(known)) if known and len(known) == len(least) else None


def _scaled(band: Band | None, factor: float) -> Band | None:
    return None if band is None else replace(band, across=(band.across + 1) / factor)


def _up_to(band: Band | None, last: float) -> Band | None:
    if band is None:
        return None
    kept = band.across <= last
    return Band(band.across[kept], band.mean[kept], band.low[kept], band.high[kept])
