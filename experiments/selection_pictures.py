"""What a selector saw: DAG-ACFL's Figures 4 and 5 (DAG-ACFL, Sec. III-E).

A sequence here is one client's similarities to the tips on offer, from the highest to the lowest, as a selection's
evidence has them: in Figure 4 the cosines of models (Eq. 5), in Figure 5 those of updates, which our rule ``robust``
looks at.
"""

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from fl_core.types import Vector64
from fl_simulator.plots.style import (
    CLUSTER_COLOURS,
    DPI,
    FAINT,
    INK,
    SOFT,
    cluster_colour,
    new_figure,
    new_panels,
    set_titles,
)
from fl_simulator.run.folder import CHOICES
from fl_simulator.strategies.protocol import Choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_UPDATES: Final = "cosine of updates"
"""What the rule ``robust`` ranks by: of model minus genesis model."""


def read_choices(path: Path) -> tuple[list[Choice], NDArray[np.int64]] | None:
    """The selections of the last round of a run's folder, and each client's true cluster; None: none were kept."""
    if not (path / CHOICES).exists():
        return None
    told = json.loads((path / CHOICES).read_text("utf-8"))
    kinds = {"client": int, "offered": _numbers, "taken": _numbers}
    choices = [Choice(**{name: kinds.get(name, np.array)(each[name]) for name in each}) for each in told["choices"]]
    return choices, np.array(told["clusters"])


def _numbers(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def draw_similarities(similarities: Vector64, clusters: NDArray[np.int64], path: Path, *, cut: int) -> "Figure":
    """The sequence as a heat map, and above it the superclasses of the tips' authors (Fig. 4).

    Args:
        similarities: Descending, shape ``(n,)``, at least one.
        clusters: Of the tips' authors, shape ``(n,)``.
        path: Picture to write.
        cut: How many of the first were taken; drawn as a line.

    Returns:
        The figure as written: the clusters' axes, the heat map's, the scale's.

    Raises:
        ReportExtraMissingError: matplotlib is not installed.
    """
    figure, (strip, heat) = new_panels((0.5, 1.0), width=11.0, height=3.3)
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=0.8 / width, right=1 - 0.95 / width, top=1 - 0.85 / height, bottom=0.6 / height, hspace=0.08
    )
    _draw_strip(strip, clusters)
    image = heat.imshow(
        similarities[None], cmap="cividis", aspect="auto", extent=(0, len(similarities), 0, 1), interpolation="nearest"
    )
    heat.set_yticks([])
    heat.set_ylabel("cosine", color=SOFT, rotation=0, ha="right", va="center")
    _label_tips(heat)
    for axes in (strip, heat):
        axes.axvline(cut, color=INK, lw=2.2, label="cut")
    scale = figure.add_axes((1 - 0.8 / width, 0.6 / height, 0.14 / width, 1 - 1.45 / height))
    figure.colorbar(image, cax=scale)
    scale.tick_params(colors=SOFT, length=0, labelsize=9)
    for spine in scale.spines.values():
        spine.set_visible(False)
    set_titles(
        figure,
        title=f"Cosine of one client's model and the models of {len(similarities)} tips (Eq. 5)",
        subtitle="Above: superclasses of the tips' authors, which the selector does not know. "
        f"Line: the first {cut} were taken.",
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def draw_change_points(similarities: Vector64, probabilities: Vector64, path: Path, *, cut: int) -> "Figure":
    """The sequence as a line, and as bars how probable a change point is at each place (Fig. 5).

    Args:
        similarities: Descending, shape ``(n,)``, at least one.
        probabilities: Entry i: that a new segment begins at element i, in [0, 1]; shape ``(n,)``, or shorter where
            only the head of the sequence was looked at.
        path: Picture to write.
        cut: How many of the first were taken; drawn as a line.

    Returns:
        The figure as written. The line of similarities is labelled ``cosine of updates``, the bars ``probability``.

    Raises:
        ReportExtraMissingError: matplotlib is not installed.
    """
    figure, axes = new_figure(width=11.0, height=4.4)
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left=0.8 / width, right=1 - 0.25 / width, top=1 - 0.85 / height, bottom=0.6 / height)
    axes.bar(
        range(len(probabilities)),
        probabilities,
        width=0.86,
        color=CLUSTER_COLOURS[0],
        lw=0,
        label="probability",
        zorder=2,
    )
    axes.plot(
        range(len(similarities)),
        similarities,
        color=CLUSTER_COLOURS[1],
        lw=2.2,
        marker="o",
        ms=3,
        label=_UPDATES,
        zorder=3,
    )
    axes.axvline(cut - 0.5, color=INK, lw=1.4, ls=(0, (1, 1.6)), label=f"the first {cut} were taken", zorder=1)
    low = min(0.0, float(similarities.min()))
    axes.set_ylim(low - 0.02 if low < 0 else 0.0, 1.04)
    axes.set_xlim(-1, len(similarities))
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    _label_tips(axes)
    axes.set_ylabel("cosine, probability", color=SOFT)
    axes.legend(loc="best", frameon=False, fontsize=9.5, labelcolor=SOFT)
    set_titles(
        figure,
        title=f"Where the {_UPDATES} of {len(similarities)} tips changes",
        subtitle=f"Line: {_UPDATES}. Bars: probability that a new segment begins here, by BEAST.",
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def _label_tips(axes: "Axes") -> None:
    """Tips go across, and they are whole."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    axes.set_xlabel("tips, from the most similar on", color=SOFT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _draw_strip(axes: "Axes", clusters: NDArray[np.int64]) -> None:
    """A coloured cell for each tip, and the number of its cluster in the middle of each run of equal ones."""
    start = 0
    for cluster, members in groupby(clusters.tolist()):
        count = len(list(members))
        axes.axvspan(start, start + count, color=cluster_colour(cluster), lw=0, label=f"cluster {cluster}")
        if count * 60 >= len(clusters):  # narrower than a digit otherwise
            axes.text(
                start + count / 2,
                0.5,
                str(cluster),
                color="white",
                fontsize=10,
                fontweight="bold",
                ha="center",
                va="center",
            )
        start += count
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylabel("superclass", color=SOFT, rotation=0, ha="right", va="center")
