"""How parameters spread and change over rounds: Figure 5 of "Initialisation and network effects in decentralised
federated learning" (its panels a and b; ``fl_simulator.graphs.gain`` has the numerical model of panel c).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fl_simulator.plots.series import (
    Over,
    Series,
    draw_series,
    label_across,
    make_logarithmic,
    name_ends,
    over_seeds,
    require_drawn,
    space,
    subtitle_of_seeds,
)
from fl_simulator.plots.style import DPI, SOFT, new_panels, set_titles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TRAINING: Final = (0, (1, 1.4))


def draw_deviations(series: Sequence[Series], path: Path, *, title: str = "", over: Over = "round") -> "Figure":
    """sigma_an above, the spread of a parameter across nodes, and sigma_ap below, of a node's parameters (Fig. 5b).

    Returns:
        The figure as written: sigma_an's axes, then sigma_ap's; both logarithmic.

    Raises:
        MatplotlibMissingError: matplotlib is not installed.
        SimulationError: No run has the figures.
    """
    figure, (across_nodes, across_parameters) = new_panels((1.0, 1.0), width=9.5, height=6.4)
    space(figure, series)
    for axes, name, words in (
        (across_nodes, "sigma_an", "σ_an"),
        (across_parameters, "sigma_ap", "σ_ap"),
    ):
        ends = draw_series(axes, series, name, over=over)
        require_drawn(ends, name)
        make_logarithmic(axes)
        name_ends(axes, ends)
        axes.set_ylabel(words, color=SOFT)
    label_across(across_parameters, over)
    set_titles(
        figure,
        title=title or "Standard deviations of parameters",
        subtitle=f"Above: a parameter's across nodes; below: a node's across parameters. {subtitle_of_seeds(series)}",
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def draw_changes(series: Sequence[Series], path: Path, *, title: str = "", over: Over = "round") -> "Figure":
    """How far aggregation and training move parameters in a round, and the cosine between the two (Fig. 5a).

    Returns:
        The figure as written: magnitudes, of aggregation as all lines are, of training dotted and labelled with the
        series' name and `` training``, of both together thin and labelled with `` total``; then cosines.

    Raises:
        MatplotlibMissingError: matplotlib is not installed.
        SimulationError: No run has the figures.
    """
    figure, (magnitude, cosine) = new_panels((1.5, 1.0), width=9.5, height=6.4)
    space(figure, series)
    ends = draw_series(magnitude, series, "change_by_aggregation", over=over)
    require_drawn(ends, "change_by_aggregation")
    for each in series:
        for name, words, dashes, width in (
            ("change_by_training", "training", _TRAINING, 1.8),
            ("change_in_total", "total", "-", 0.7),
        ):
            band = over_seeds(each, name, over=over)
            if band is not None:
                label = f"{each.name} {words}"
                magnitude.plot(band.across, band.mean, color=each.colour, ls=dashes, lw=width, label=label)
    make_logarithmic(magnitude)
    name_ends(magnitude, ends)
    ends = draw_series(cosine, series, "change_cosine", over=over)
    cosine.set_ylim(-1.04, 1.04)
    name_ends(cosine, ends)
    magnitude.set_ylabel("change of a node's parameters", color=SOFT)
    cosine.set_ylabel("cosine of the two", color=SOFT)
    label_across(cosine, over)
    set_titles(
        figure,
        title=title or "What aggregation and training change",
        subtitle="Mean magnitude over nodes: by aggregation; dotted, by training; thin, in total. "
        f"{subtitle_of_seeds(series)}",
    )
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure
