"""Runs as pandas tables, and the report that ``dag-acfl simulate`` writes of any experiment.

    rounds = read_results(Path("results/simulations/digits"))      # a row for each round of each run
    summary = summarise_runs(rounds)                               # a row for each finished run
    print(to_markdown(accuracy_table(summary)))                    # methods down, settings across
    draw_curves(rounds, Path("curves.png"))

Tables of a paper are made of the same pieces by ``experiments/<paper>/report.py``. pandas and matplotlib come with the
extra ``report`` and are loaded where they are used.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from textwrap import fill
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from fl_simulator.config.experiment import Experiment
from fl_simulator.errors import ReportExtraMissingError, ResultsError
from fl_simulator.plots.style import CLUSTER_COLOURS, DPI, FAINT, new_panels, set_titles
from fl_simulator.run.folder import LABEL, ROUNDS, SUMMARY, read_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

RUN: Final = ("setting", "participation", "method", "seed")
"""Columns that name a run within its experiment."""
CURVES: Final = ("accuracy", "loss", "worst_client", "modularity", "communities", "satisfaction", "misclassified")
"""Columns that are worth a curve over rounds, where they were measured."""
MOST_POINTS: Final = 50
"""Rounds that ``curves.csv`` keeps of a run."""
_LAST: Final = 5
_ROUNDING: Final = 1e-12
"""Below which a mean of differences is what sums leave of nought."""
_STUDENT_T: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""Its 97.5 % quantile at 1, 2, … degrees of freedom; with more than 20 an interval is a little too wide."""
_DASHES: Final = ("-", (0, (5, 1.5)), (0, (1, 1.2)))


def load_pandas() -> ModuleType:
    """The library."""
    try:
        import pandas as pd  # noqa: PLC0415 - it takes half a second, and only reports need it
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise ReportExtraMissingError("reports need pandas: pip install pandas") from error
    return pd  # type: ignore[no-any-return]


def read_results(folder: Path, experiment: Experiment | None = None) -> "DataFrame":
    """All rounds of all runs in an experiment's folder, unfinished runs' too.

    Args:
        folder: Holds a folder for each run.
        experiment: Gives the order of runs, and leaves out those that are not its own; without it, all by name.

    Returns:
        Columns ``experiment, setting, participation, method, seed, rounds, finished``, then those of ``rounds.csv``
        (see ``RoundRecord``). ``accuracy`` is NaN in rounds without an evaluation. Empty where there is no run.

    Raises:
        ResultsError: A file is damaged.
    """
    return read_tables(folder, ROUNDS, experiment)


def keep_tables(rounds: "DataFrame", summary: "DataFrame", folder: Path) -> None:
    """Write ``summary.csv`` and a thinned ``curves.csv``; pictures of an earlier time go."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in folder.glob("*.png"):
        picture.unlink()
    summary.to_csv(folder / "summary.csv", index=False)
    thin_curves(rounds).to_csv(folder / "curves.csv", index=False)


def read_tables(folder: Path, name: str, experiment: Experiment | None) -> "DataFrame":
    """As ``read_results``, of another file of a run."""
    if experiment is None:
        paths = [label.parent for label in sorted(folder.rglob(LABEL))]
    else:
        named = (folder / run.label.folder_name for run in experiment.runs)
        paths = [path for path in named if (path / LABEL).exists()]
    pd = load_pandas()
    tables = []
    for path in paths:
        label = read_label(path)
        text = (path / name).read_text("utf-8") if (path / name).exists() else ""
        text = text[: text.rfind("\n") + 1]  # a line that is being written, or that a crash tore, is left out
        if not text:
            continue
        try:
            table = pd.read_csv(StringIO(text))
        except ValueError as error:
            raise ResultsError(f"{path / name}: {error}") from error
        told = {**asdict(label), "finished": (path / SUMMARY).exists()}
        for place, (column, value) in enumerate(told.items()):
            table.insert(place, column, value)
        tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def summarise_runs(rounds: "DataFrame") -> "DataFrame":
    """A row for each finished run: all columns of ``rounds.csv`` as they were last measured, and some of the whole run.

    Those are ``accuracy_last_5`` (mean of the last five evaluations: one round alone is noisy), ``best_accuracy``, and
    the sums of ``up_bytes``, ``down_bytes``, ``between_servers_bytes`` and of seconds.
    """
    if rounds.empty:
        return rounds
    by_run = rounds[rounds.finished].groupby(list(RUN), sort=False)
    summary = by_run.last()  # of each column the last value that is not NaN
    accuracy = rounds[rounds.finished].dropna(subset="accuracy").groupby(list(RUN), sort=False).accuracy
    summary.insert(
        summary.columns.get_loc("accuracy") + 1, "accuracy_last_5", accuracy.agg(lambda each: each.tail(_LAST).mean())
    )
    summary.insert(summary.columns.get_loc("accuracy_last_5") + 1, "best_accuracy", accuracy.max())
    sums = [name for name in summary.columns if name.endswith("_bytes") and name not in _SIZES]
    sums += [name for name in summary.columns if name.startswith("seconds_")]
    summary[sums] = by_run[sums].sum()
    summary = summary.drop(columns=["finished", "round"]).reset_index()
    return summary[["experiment", *(name for name in summary.columns if name != "experiment")]]


_SIZES: Final = ("storage_bytes", "peak_memory_bytes")


def mean_and_spread(values: "Series", digits: int = 4) -> str:
    """``0.9723 ± 0.0004 (3)``: mean, sample standard deviation and number of seeds; a dash of none."""
    known = values.dropna()
    if known.empty:
        return "-"
    spread = f" ± {known.std():.{digits}f}" if len(known) > 1 else ""
    return f"{known.mean():.{digits}f}{spread} ({len(known)})"


def accuracy_table(
    summary: "DataFrame", reported: "DataFrame | None" = None, *, column: str = "accuracy"
) -> "DataFrame":
    """Methods down, settings across; each cell is mean ± standard deviation over seeds (how many).

    Args:
        summary: Of ``summarise_runs``.
        reported: A paper's numbers, with columns ``setting, participation, method, accuracy`` and perhaps ``spread``;
            each stands below the measured one.
        column: What is shown.
    """
    paper = {}
    for row in [] if reported is None else reported.to_dict("records"):
        spread = row.get("spread", math.nan)
        text = f"{row['accuracy']:.4f}" + ("" if math.isnan(spread) else f" ± {spread:.4f}")
        paper[row["setting"], float(row["participation"]), row["method"]] = text

    def cell(setting: str, share: float, method: str, runs: "DataFrame") -> str:
        beside = paper.get((setting, float(share), method))
        return mean_and_spread(runs[column]) + (f"<br>{beside}" if beside else "")

    return methods_by_settings(summary, cell)


def methods_by_settings(summary: "DataFrame", cell: "Callable[[str, float, str, DataFrame], str]") -> "DataFrame":
    """Methods down, settings across, with γ where there are several shares; a dash where there are no runs.

    Args:
        summary: Of ``summarise_runs``.
        cell: What is said of a setting, its share, a method and their runs.
    """
    cells: dict[str, dict[str, str]] = {}
    for (setting, share, method), runs in summary.groupby(list(RUN[:3]), sort=False):
        cells.setdefault(method, {})[_heading(setting, share, summary)] = cell(setting, share, method, runs)
    table = load_pandas().DataFrame.from_dict(cells, orient="index").fillna("-")
    return table.rename_axis("method").reset_index()


def paired_differences(
    summary: "DataFrame", against: Mapping[str, str], *, column: str = "accuracy_last_5", digits: int = 4
) -> "DataFrame":
    """How far methods are from others on the same seeds, whose draws both had: clients, samples and first models.

    Args:
        summary: Of ``summarise_runs``.
        against: Of each method, from which other one.
        column: Whose differences.
        digits: Of each number.

    Returns:
        A row for each pair, a column for each setting, in its cells what ``difference`` says.
    """
    rows = []
    for method, other in against.items():
        row = {"method": method, "against": other}
        for (setting, share), runs in summary.groupby(list(RUN[:2]), sort=False):
            row[_heading(setting, share, summary)] = difference(runs, method, other, column=column, digits=digits)
        rows.append(row)
    return load_pandas().DataFrame(rows)


def _heading(setting: str, share: float, summary: "DataFrame") -> str:
    """A column's: the setting, with γ where the summary has several shares."""
    return f"{setting}, γ {share:g}" if len(summary.participation.unique()) > 1 else setting


def difference(runs: "DataFrame", method: str, other: str, *, column: str = "accuracy_last_5", digits: int = 4) -> str:
    """How far a method is from another one on the same seeds; ``runs`` are of one setting.

    The mean over seeds, in brackets its 95 % confidence interval by Student's t (nothing can be said of one seed), and
    how many seeds; a dash where no seed has both.
    """
    values = runs.pivot_table(column, index="seed", columns="method", sort=False)
    there = {method, other} <= set(values.columns)
    return mean_and_interval((values[method] - values[other]).dropna().tolist() if there else [], digits)


def mean_and_interval(values: Sequence[float], digits: int) -> str:
    """``+0.0123 [0.0100, 0.0146] (5)``: mean, its 95 % confidence interval by Student's t, how many; a dash of none."""
    if not values:
        return "-"
    mean, count = statistics.fmean(values), len(values)
    if count == 1:
        return f"{mean:+.{digits}f} (1)"
    mean = 0.0 if abs(mean) < _ROUNDING else mean  # a -0.0000 would be less than nought
    return f"{mean:+.{digits}f} {interval(values, digits)} ({count})"


def interval(values: Sequence[float], digits: int) -> str:
    """``[0.0100, 0.0146]``: a mean's 95 % confidence interval by Student's t; of two values at least."""
    mean, half = statistics.fmean(values), half_interval(values)
    low, high = (0.0 if abs(each) < _ROUNDING else each for each in (mean - half, mean + half))
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def half_interval(values: Sequence[float]) -> float:
    """Half of a mean's 95 % confidence interval by Student's t; of two values at least."""
    count = len(values)
    return _STUDENT_T[min(count - 1, len(_STUDENT_T)) - 1] * statistics.stdev(values) / math.sqrt(count)


def to_markdown(table: "DataFrame", digits: int = 3) -> str:
    """A Markdown table of a frame's columns; the index is left out, NaN is a dash."""

    def cell(value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "-"
        text = f"{value:,.{digits}f}" if isinstance(value, float) else str(value)
        return text.replace("|", "\\|").replace("\n", " ")

    rows = [table.columns, ["---"] * len(table.columns), *table.itertuples(index=False)]
    return "".join(f"| {' | '.join(map(cell, row))} |\n" for row in rows)


def thin_curves(rounds: "DataFrame") -> "DataFrame":
    """At most ``MOST_POINTS`` evaluated rounds of each run, evenly spread, the last one among them."""
    judged = rounds.dropna(subset="accuracy")
    from_end = judged.groupby(list(RUN), sort=False).cumcount(ascending=False)
    count = judged.groupby(list(RUN), sort=False).accuracy.transform("size")
    step = (count / MOST_POINTS).clip(lower=1).apply(math.ceil)
    columns = [
        name for name in (*RUN, "round", "virtual_time_s", *CURVES) if name in judged and judged[name].notna().any()
    ]
    return judged.loc[from_end % step == 0, columns].round(6)


_LABEL_WIDTH: Final = 30
"""Characters of a line of the legend, as many as there is room for."""


def draw_curves(
    rounds: "DataFrame",
    path: Path,
    *,
    figures: Sequence[str] = ("accuracy", "loss"),
    by: str = "method",
    over: str = "round",
    scale: str = "linear",
    title: str = "",
) -> "Figure":
    """Lines over rounds: the mean over seeds, and a band from the lowest to the highest seed.

    Args:
        rounds: Of ``read_results``, or ``curves.csv``; of one setting, or of several where ``by`` is ``setting``.
        path: Picture to write; its ending decides: .png, .pdf, .svg.
        figures: Columns, a panel each; those that no run has are left out.
        by: The column whose values are the lines.
        over: ``round``, counted from 1 here, or ``virtual_time_s``.
        scale: Of all panels' values: ``linear``, or ``log``.
        title: Of the picture, with a line below it; without one nothing stands above, as a paper wants it.
    """
    shown = [name for name in figures if name in rounds and rounds[name].notna().any()]
    figure, panels = new_panels([1.0] * len(shown), width=9.5, height=1.2 + 2.9 * len(shown))
    places = {line: place for place, line in enumerate(rounds[by].unique())}  # a line looks the same in every panel
    for axes, name in zip(panels, shown, strict=True):
        for line, mine in rounds.dropna(subset=name).groupby(by, sort=False):
            place = places[line]
            seeds = mine.groupby(over)[name].agg(["mean", "min", "max"])
            after = seeds.index + 1 if over == "round" else seeds.index  # of ten rounds the last is 9, and the tenth
            colour = CLUSTER_COLOURS[place % len(CLUSTER_COLOURS)]
            dashes: Any = _DASHES[place // len(CLUSTER_COLOURS) % len(_DASHES)]
            marker = "o" if len(seeds) == 1 else ""
            label = fill(str(line), _LABEL_WIDTH)
            axes.plot(after, seeds["mean"], color=colour, ls=dashes, marker=marker, lw=1.6, label=label)
            axes.fill_between(after, seeds["min"], seeds["max"], color=colour, alpha=0.16, lw=0)
        axes.set_ylabel(name.replace("_", " "))
        axes.set_yscale(scale)
        axes.grid(axis="y", color=FAINT, lw=0.8)
    panels[-1].set_xlabel({"round": "round", "virtual_time_s": "virtual time in seconds"}.get(over, over))
    panels[0].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    if title:
        count = rounds.seed.nunique()
        about = f"Mean of {count} seed{'s' * (count != 1)}; band: lowest to highest."
        set_titles(figure, title=title, subtitle=about)
    above, height = 0.85 if title else 0.15, figure.get_size_inches()[1]
    left = 0.09 if scale == "linear" else 0.11  # a logarithmic axis may have labels such as 2 x 10^0
    figure.subplots_adjust(left=left, right=0.74, top=1 - above / height, bottom=0.6 / height, hspace=0.14)
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def missing_runs(experiment: Experiment, folder: Path) -> list[str]:
    """Names of the experiment's runs that are not finished."""
    names = (run.label.folder_name for run in experiment.runs)
    return [name for name in names if not (folder / name / SUMMARY).exists()]


def page(parts: Iterable[str]) -> str:
    """Paragraphs as one file."""
    return "\n\n".join(part.strip() for part in parts) + "\n"


def write_report(experiment: Experiment, folder: Path) -> "tuple[DataFrame, list[Path]]":
    """Write ``report.md``, ``summary.csv``, ``curves.csv`` and a picture of each setting's curves into folder/report.

    Returns:
        The table of accuracies, and what was written; both empty where no run is finished.
    """
    rounds = read_results(folder, experiment)
    summary = summarise_runs(rounds)
    if summary.empty:
        return summary, []
    rounds, target = rounds[rounds.finished], folder / "report"
    keep_tables(rounds, summary, target)
    written = [target / "report.md", target / "summary.csv", target / "curves.csv"]
    table, about = accuracy_table(summary), "mean ± standard deviation over seeds (how many)."
    parts = [f"# {experiment.title}", f"Test accuracy after the last round: {about}", to_markdown(table)]
    written[0].write_text(page(parts), "utf-8")
    for place, ((setting, share), mine) in enumerate(rounds.groupby(["setting", "participation"], sort=False)):
        timed = "results" in mine and mine.results.notna().any()
        over = "virtual_time_s" if timed else "round"
        picture = target / f"curves-{place + 1}.png"
        draw_curves(mine, picture, over=over, title=f"{setting}, participation {share:g}")
        written.append(picture)
    return table, written
