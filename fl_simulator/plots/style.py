"""What all pictures share: colours, a bare figure, a title; and that matplotlib is loaded only to draw.

matplotlib comes with the extra ``report``. Figures are drawn with Agg, without pyplot: no display, no global state.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from fl_simulator.errors import ReportExtraMissingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK: Final = "#1b1f24"
SOFT: Final = "#6b7280"
FAINT: Final = "#e5e7eb"
DPI: Final = 160
CLUSTER_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6D00", "#5B5B5B")
"""One for each cluster, as the demo has them; they repeat after eight."""
LABEL_COLOURS: Final = (
    "#332288",
    "#88CCEE",
    "#CC6677",
    "#117733",
    "#DDCC77",
    "#AA4499",
    "#882255",
    "#44AA99",
    "#999933",
    "#BBBBBB",
)
"""Of up to ten labels: Paul Tol's muted colours, dark and light in turn."""


def cluster_colour(cluster: int) -> str:
    return CLUSTER_COLOURS[cluster % len(CLUSTER_COLOURS)]


def label_colours(count: int) -> list[str]:
    """A colour for each of so many labels, as ``#rrggbb``; of more than ten, neighbours are hard to tell apart."""
    if count <= len(LABEL_COLOURS):
        return list(LABEL_COLOURS[:count])
    from matplotlib import colormaps  # noqa: PLC0415
    from matplotlib.colors import to_hex  # noqa: PLC0415

    return [to_hex(colour) for colour in colormaps["turbo"](np.linspace(0.02, 0.98, count))]


def new_figure(*, width: float, height: float) -> "tuple[Figure, Axes]":
    """An empty figure of this size in inches, and its axes."""
    figure, (axes,) = new_panels((1.0,), width=width, height=height)
    return figure, axes


def new_panels(heights: Sequence[float], *, width: float, height: float) -> "tuple[Figure, list[Axes]]":
    """An empty figure of this size in inches, with axes above one another that share what goes across."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ReportExtraMissingError("pictures need matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights))[:, 0]
    for axes in panels:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(FAINT)
        axes.tick_params(colors=SOFT, length=0, labelsize=9.5)
    return figure, list(panels)


def set_titles(figure: "Figure", *, title: str, subtitle: str) -> None:
    """Both at the top left, in inches from there, so that they look the same in a figure of any size."""
    width, height = figure.get_size_inches()
    figure.text(0.25 / width, 1 - 0.25 / height, title, fontsize=14, fontweight="bold", color=INK, va="center")
    figure.text(0.25 / width, 1 - 0.53 / height, subtitle, fontsize=9.5, color=SOFT, va="center")
