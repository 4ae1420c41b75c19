"""Lines over rounds or virtual time: one for each method, with a band over seeds.

What every picture of rounds does alike: seeds are averaged, lines get colours that all eyes tell apart, a dash pattern
of their own beyond eight, and their names at their ends, where nobody must look for them in a legend.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fl_simulator.errors import SimulationError
from fl_simulator.plots.style import CLUSTER_COLOURS, FAINT, SOFT
from fl_simulator.run.record import RoundRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Over: TypeAlias = Literal["round", "virtual_time_s"]
"""What goes across."""

_DASHES: Final = ("-", (0, (5, 1.5)), (0, (1, 1.2)))
_ACROSS: Final = {"round": "round", "virtual_time_s": "virtual time in seconds"}
_LINE_INCHES: Final = 0.18
"""From name to name."""
_LEAD_INCHES: Final = 0.32
"""From a line's end to its name."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line.

    Attributes:
        name: Written at its end.
        runs: The rounds of each seed's run.
        place: Decides colour and dashes; the same in every picture in which it appears.
    """

    name: str
    runs: tuple[Sequence[RoundRecord], ...]
    place: int

    @property
    def colour(self) -> str:
        """As ``#rrggbb``."""
        return CLUSTER_COLOURS[self.place % len(CLUSTER_COLOURS)]

    @property
    def dashes(self) -> Any:
        """A line style of matplotlib."""
        return _DASHES[self.place // len(CLUSTER_COLOURS) % len(_DASHES)]


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """A figure over seeds.

    Attributes:
        across: Rounds from 0 or virtual seconds, shape ``(n,)``, ascending.
        mean: Over seeds, shape ``(n,)``; NaN where a seed's figure is not finite.
        low: The least seed's, shape ``(n,)``.
        high: The greatest seed's, shape ``(n,)``.
    """

    across: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def over_seeds(series: Series, figure: str, *, over: Over = "round", first_round: int = 0) -> Band | None:
    """One figure of a line's runs, at the rounds that all of them have.

    Over virtual time, where seeds differ in when a round ends, values between two rounds are interpolated, and the line
    ends where the first run ends.

    Args:
        series: The line.
        figure: A member of ``RoundRecord``.
        over: What goes across.
        first_round: Rounds before it are left out.

    Returns:
        None when a run has no such figure at all, no round is common to all, or none has a finite figure of all: a
        training that diverged leaves nothing to draw.
    """
    points = [
        np.array(
            [
                (getattr(record, over), getattr(record, figure))
                for record in run
                if record.round >= first_round and getattr(record, figure) is not None
            ],
            dtype=np.float64,
        ).reshape(-1, 2)
        for run in series.runs
    ]
    if not points or not all(len(each) for each in points):
        return None
    places = [each[:, 0] for each in points]
    across = places[0]
    for each in places[1:]:
        across = np.intersect1d(across, each) if over == "round" else np.union1d(across, each)
    across = across[(across >= max(each[0] for each in places)) & (across <= min(each[-1] for each in places))]
    if not len(across):
        return None
    values = np.stack([np.interp(across, each[:, 0], each[:, 1]) for each in points])  # (seeds, n)
    values[~np.isfinite(values)] = np.nan
    if np.isnan(values).any(axis=0).all():
        return None
    return Band(across, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


@dataclass(frozen=True, slots=True)
class End:
    """Where a line ends, and which."""

    height: float
    series: Series


def draw_series(
    axes: "Axes", series: Sequence[Series], figure: str, *, over: Over = "round", first_round: int = 0
) -> list[End]:
    """Draw a line and a band for each series that has the figure; where the lines end, for ``name_ends``.

    The line's and the band's ``get_label`` is the series' name, the band's with `` band`` behind it. Later lines are
    thinner, so that of lines that cover one another all are seen.
    """
    return draw_bands(axes, [(each, over_seeds(each, figure, over=over, first_round=first_round)) for each in series])


def draw_bands(axes: "Axes", bands: Sequence[tuple[Series, Band | None]]) -> list[End]:
    """The same of bands that are made already; nothing is drawn of a series without one."""
    ends: list[End] = []
    for order, (each, band) in enumerate(bands):
        if band is None:
            continue
        if len(each.runs) > 1:
            axes.fill_between(
                band.across, band.low, band.high, color=each.colour, alpha=0.16, lw=0, label=f"{each.name} band"
            )
        draw_line(axes, each, band, width=3.2 - 1.8 * order / max(len(bands) - 1, 1))
        known = band.mean[np.isfinite(band.mean)]
        if len(known):
            ends.append(End(float(known[-1]), each))
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.0)
    return ends


def draw_line(axes: "Axes", series: Series, band: Band, *, width: float) -> None:
    """A band's mean, in the series' colour and dashes."""
    axes.plot(
        band.across,
        band.mean,
        color=series.colour,
        ls=series.dashes,
        lw=width,
        marker="o" if len(band.across) == 1 else "",  # one evaluation makes no line
        ms=4,
        label=series.name,
    )


def name_ends(axes: "Axes", ends: Sequence[End]) -> None:
    """Write the lines' names beside the right edge, led to from the lines' ends; limits must be final."""
    # Where the axis has logarithms, heights go by them; a linear one's transformation changes nothing.
    low, high, *ours = axes.yaxis.get_transform().transform(np.array([*axes.get_ylim(), *(end.height for end in ends)]))
    width_inches, height_inches = axes.bbox.width / axes.figure.dpi, axes.bbox.height / axes.figure.dpi
    heights = [float(np.clip((height - low) / (high - low), 0.0, 1.0)) for height in ours]
    lead = _LEAD_INCHES / width_inches
    for begin, place, end in zip(heights, spread(heights, gap=_LINE_INCHES / height_inches), ends, strict=True):
        colour = end.series.colour
        axes.plot(
            [1.004, 1 + 0.85 * lead, 1 + 0.97 * lead],
            [begin, place, place],
            color=colour,
            ls=end.series.dashes,
            lw=0.9,
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.text(
            1 + 1.1 * lead,
            place,
            end.series.name,
            color=colour,
            fontsize=9.5,
            fontweight="bold",
            va="center",
            transform=axes.transAxes,
        )


def make_logarithmic(axes: "Axes", *, highest: float = 0.0) -> None:
    """Give the upright axis logarithms, with plain numbers beside it, however few powers of ten it spans.

    Args:
        axes: What is drawn is drawn already.
        highest: Where it ends; 0: at the greatest value.

    Where nothing is above 0, it stays as it is: a spread of one node, say.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415

    if not any((np.asarray(line.get_ydata(), dtype=np.float64) > 0).any() for line in axes.lines):
        return
    axes.set_yscale("log")
    if highest:
        axes.set_ylim(top=highest)
    low, high = axes.get_ylim()
    decades = np.log10(high / low)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 4 else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def label_across(axes: "Axes", over: Over) -> None:
    """Say what goes across; rounds are whole."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    axes.set_xlabel(_ACROSS[over], color=SOFT)
    if over == "round":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def subtitle_of_seeds(series: Sequence[Series]) -> str:
    """What line and band are."""
    counts = sorted({len(each.runs) for each in series})
    if counts == [1]:
        return "One seed."
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean of {seeds} seeds; band: lowest to highest."


def require_drawn(ends: Sequence[End], figure: str) -> None:
    """Nothing to draw is an error, not an empty picture.

    Raises:
        SimulationError: No run has the figure.
    """
    if not ends:
        raise SimulationError(f"none of these runs has a figure for {figure}")


def space(figure: "Figure", series: Sequence[Series]) -> None:
    """Margins in inches: titles above, names at the right."""
    width, height = figure.get_size_inches()
    right = _LEAD_INCHES + 0.2 + 0.088 * max(len(each.name) for each in series)
    figure.subplots_adjust(
        left=0.8 / width, right=1 - right / width, top=1 - 0.85 / height, bottom=0.6 / height, hspace=0.16
    )


def spread(heights: Sequence[float], *, gap: float) -> list[float]:
    """Heights in [0, 1] at least ``gap`` apart, in the same order from below, and near to the given ones.

    Equal heights come to stand in the order in which they are given, from above. Where there is no room for all, the
    gap is what room there is.
    """
    gap = min(gap, 1 / max(len(heights) - 1, 1))
    order = sorted(range(len(heights)), key=lambda place: (heights[place], -place))
    groups: list[list[int]] = []  # neighbours that touch move together, about the mean of what they wanted
    starts: list[float] = []
    for each in order:
        groups.append([each])
        starts.append(heights[each])
        while len(groups) > 1 and starts[-2] + gap * len(groups[-2]) > starts[-1]:
            last = groups.pop()
            starts.pop()
            groups[-1] += last
            starts[-1] = sum(heights[member] - gap * step for step, member in enumerate(groups[-1])) / len(groups[-1])
    placed = [start + gap * step for start, group in zip(starts, groups, strict=True) for step in range(len(group))]
    most = len(placed) - 1
    kept = [min(max(height, gap * step), 1 - gap * (most - step)) for step, height in enumerate(placed)]
    return [height for _, height in sorted(zip(order, kept, strict=True))]
