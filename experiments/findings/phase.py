"""When clusters are found without their number: by how far apart clients' first updates are, and by rule."""

from pathlib import Path
from statistics import NormalDist
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.clustered.cosines import separations
from experiments.reporting import Played, describe_seeds, keep_results, read_run_facts, whole_settings
from fl_simulator.report import RUN, to_markdown

FOUND: Final = 0.95
"""Adjusted Rand index from which clusters count as found."""
FITTED_GAP: Final = 0.4
FITTED_SEPARATION: Final = 4.4
"""From which gap of mean cosines, within less between, and from which separation clusters are found: as is right for
most runs of ``phase.toml``."""
SEPARATIONS: Final = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, float("inf"))
"""Where bands of separation begin and end."""
KEPT: Final = (
    *("experiment", *RUN, "rounds", "accuracy", "accuracy_last_5", "best_accuracy", "worst_decile", "worst_client"),
    *("communities", "adjusted_rand", "up_bytes", "down_bytes", "seconds_training"),
)


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    summary = whole_settings(played.summary, played.experiment)
    if summary.empty:
        return
    rounds, folder = played.rounds[played.rounds.setting.isin(summary.setting)], played.kept
    facts = read_run_facts(played.runs, played.experiment)[["pixels"]]
    keep_results(rounds, summary[list(KEPT)].join(facts, on=list(RUN)), folder)
    separations(played.experiment).to_csv(folder / "cosines.csv", index=False)
    draw_separation(by_separation(summary, folder), folder / "found.png")
    draw_phase(summary, folder / "diagram.png")


def by_separation(summary: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Runs with how far apart their clients' first updates are (``cosines.py``), and how far that has to be."""
    measured = pd.read_csv(folder / "cosines.csv").drop(columns="within_sd")
    runs = summary.merge(measured, on=["setting", "seed"], how="left", validate="many_to_one")
    needed = [needed_separation(*each) for each in zip(runs.clients, runs.clusters, strict=True)]
    return runs.assign(needed=needed, found=runs.adjusted_rand >= FOUND)


def needed_separation(clients: int, clusters: int) -> float:
    """From which separation on a typical client's first selection is expected to be right, by theory.

    Its cosines with its own cluster and with the others are taken for normal, with the same spread. The least of the
    own ones is expected to lie so many standard deviations below their mean, and the greatest of the others' so many
    above theirs (Blom's approximation): the clusters are apart where their means differ by more than both together.
    """
    size = clients // clusters
    return _greatest_of(size - 1) + _greatest_of(clients - size)


def _greatest_of(count: int) -> float:
    """What the greatest of so many standard normal draws is expected to be."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def tables(folder: Path) -> list[str]:
    """Markdown: how often each rule found the clusters, by separation and by setting."""
    runs = by_separation(pd.read_csv(folder / "summary.csv"), folder)
    band = pd.cut(runs.separation, SEPARATIONS, right=False)
    names = {each: f"{each.left:g} to {each.right:g}".replace(" to inf", " and more") for each in band.cat.categories}
    runs = runs.assign(band=band.map(names))
    shares = runs.pivot_table("found", index="method", columns="band", sort=False, observed=True)
    counts = runs[runs.method == runs.method.iloc[0]].groupby("band", observed=True).size()
    shares = shares[[each for each in names.values() if each in shares]]
    shares.columns = [f"{each} ({counts[each]})" for each in shares.columns]
    settings = runs.pivot_table("adjusted_rand", index="setting", columns="method", sort=False)
    means = runs.groupby("setting", sort=False)[["separation", "within"]].mean()
    settings = means.rename(columns={"within": "own cosines"}).join(settings)
    above = int((runs.separation >= runs.needed).groupby(runs.method).sum().iloc[0])
    compared = (
        f"**Against what is needed**: share found of the runs whose separation is below it, and above ({above} of "
        f"{int(counts.sum())}); and for how many runs that, and simpler rules, say right whether clusters are found "
        "(*fitted*: on the runs of phase.toml)."
    )
    return [
        f"Share of runs in which clusters were found, by separation (how many runs); {describe_seeds(runs)}.",
        to_markdown(shares.reset_index(), digits=2),
        compared,
        to_markdown(agreement(runs), digits=2),
        "**Adjusted Rand index** in the mean over seeds; *own cosines*: those of first updates of one cluster.",
        to_markdown(settings.reset_index(), digits=2),
    ]


def agreement(runs: pd.DataFrame) -> pd.DataFrame:
    """For each rule what was found on both sides of ``needed_separation``; how often that and other rules are right.

    Where settings name their populations, for each of them.
    """
    above = runs.separation >= runs.needed
    populations = runs.setting.str.extract(r"^(.+ in \d+ clusters)")[0].dropna().rename("population")
    by = [runs.method, *([populations] if len(populations) else [])]

    def share(of: pd.Series) -> pd.Series:
        return of.groupby(by, sort=False).mean()

    found = share(runs.found)
    table = {
        "found below": share(runs.found.where(~above)),
        "found above": share(runs.found.where(above)),
        "right: needed": share(runs.found == above),
        f"right: separation of {FITTED_SEPARATION}, fitted": share(
            runs.found == (runs.separation >= FITTED_SEPARATION)
        ),
        f"right: gap of {FITTED_GAP}, fitted": share(runs.found == (runs.within - runs.between >= FITTED_GAP)),
        "right: the commoner outcome": found.where(found > 0.5, 1 - found),
    }
    return pd.DataFrame(table).reset_index()


def draw_phase(summary: pd.DataFrame, path: Path) -> None:
    """A panel for each rule and kind of candidates: the adjusted Rand index by population and strength of its shift."""
    runs = summary.join(summary.setting.str.extract(r"^(?P<population>.+), (?P<strength>[\d.]+)$"))
    methods = list(dict.fromkeys(runs.method))
    size = (2.6 + 1.3 * len(methods), 1.1 + 0.27 * runs.population.nunique())
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for axes, method in zip(panels, methods, strict=True):
        mine = runs[runs.method == method]
        found = mine.pivot_table("adjusted_rand", index="population", columns="strength", sort=False)
        drawn = axes.imshow(found, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        for (row, column), index in np.ndenumerate(found.to_numpy()):
            colour = "black" if index > 0.6 else "white"
            axes.text(column, row, f"{index:.2f}", ha="center", va="center", fontsize=6, color=colour)
        axes.set_xticks(range(len(found.columns)), found.columns, fontsize=7)
        axes.set_yticks(range(len(found)), found.index, fontsize=8)
        axes.tick_params(left=False)
        axes.set_title(method.replace(", ", ",\n"), fontsize=8)
    figure.supxlabel("part of a client's samples drawn from its cluster's own labels alone", fontsize=8)
    bar = figure.colorbar(drawn, ax=list(panels), pad=0.01)
    bar.set_label("adjusted Rand index", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    figure.savefig(path, dpi=160)


def draw_separation(runs: pd.DataFrame, path: Path) -> None:
    """A dot for each run, a panel for each rule and data set: what was found over separation, over what is needed."""
    data = runs.setting.str.extract(r"^([^,]+), \d+ clients")[0].fillna("")
    rules = runs.method.str.rpartition(", ")[0]
    shown = list(dict.fromkeys(zip(data, rules, strict=True)))
    figure = Figure(figsize=(0.8 + 3.0 * len(shown), 3.6), layout="constrained")
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, (of, rule) in zip(panels, shown, strict=True):
        for candidates, colour, filled in (("newest", "tab:blue", "tab:blue"), ("tips", "tab:orange", "none")):
            mine = runs[(data == of) & (runs.method == f"{rule}, {candidates}")]
            across = mine.separation / mine.needed
            axes.scatter(
                across, mine.adjusted_rand, s=12, alpha=0.7, edgecolors=colour, facecolors=filled, label=candidates
            )
        axes.axvline(1, color="grey", linewidth=0.8)
        axes.axhline(FOUND, color="grey", linewidth=0.8, linestyle=":")
        title = ", ".join(filter(None, (of, rule)))
        axes.set(title=title, xlabel="separation over what is needed", xscale="log")
        axes.set_xticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("adjusted Rand index")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=160)
