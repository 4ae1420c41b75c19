"""Whether tips or newest updates are the better candidates."""

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.findings.kept import keep
from experiments.reporting import Played, describe_inputs, moments_table
from fl_simulator.report import difference, half_interval, to_markdown

ATTACKS: Final = ("labels flipped", "a little is enough")
HARDER: Final = "harder"
VARIANTS: Final = {"": "", ", trimmed mean": ", trimmed", ", min_tips 1": ", min_tips 1"}
"""How labels of tips and of newest updates end that are alike in all else; and their columns."""

WHAT_IS_AVERAGED: Final = (
    "**Tips / newest**, under a plain mean: adjusted Rand index of the clusters that were found; *foreign*, the share "
    "of selections with a model of another cluster; how many models are averaged."
)
SEED_BY_SEED: Final = (
    "**Harder, seed by seed**: adjusted Rand index. It is 0.58 where two and two of the five clusters have grown "
    "together, 0.34 where two and three have, 0 where all have."
)


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    draw_candidates(keep(played), played.kept / "differences.png")


def tables(folder: Path) -> list[str]:
    """Markdown: accuracy of all methods, how newest updates differ from tips, and what averages are made of."""
    summary = pd.read_csv(folder / "summary.csv")
    attacked = summary.setting.str.contains("|".join(ATTACKS))
    parts = [
        f"Means over seeds; digits, {describe_inputs(summary)}. Accuracy is the mean of the last five evaluations."
    ]
    for title, mine in (("Nobody attacks", summary[~attacked]), ("Three of thirty attack", summary[attacked])):
        by_method = mine.pivot_table("accuracy_last_5", index="setting", columns="method", sort=False)
        parts += [f"**{title}**: accuracy", to_markdown(by_method.reset_index())]
        parts += moments_table(mine.assign(participation=1.0), beside="accuracy_last_5")
        rows = []
        for setting, runs in mine.groupby("setting", sort=False):
            row = {"setting": setting}
            for suffix, under in VARIANTS.items():
                for column, what in (("accuracy_last_5", "accuracy"), ("worst_decile", "worst tenth")):
                    told = difference(runs, f"newest{suffix}", f"tips{suffix}", column=column, digits=3)
                    row[f"{what}{under}"] = told
            rows.append(row)
        parts += [f"**{title}**: newest updates compared with tips", to_markdown(pd.DataFrame(rows))]
    harder = summary[summary.setting.str.startswith(HARDER)]
    return [
        *parts,
        WHAT_IS_AVERAGED,
        to_markdown(what_is_averaged(summary)),
        SEED_BY_SEED,
        to_markdown(clusters_by_seed(harder)),
    ]


def what_is_averaged(summary: pd.DataFrame) -> pd.DataFrame:
    """Of each setting, tips beside newest updates: how well clusters were found, and what averages are made of."""
    figures = {"adjusted_rand": "index", "cross_cluster_rate": "foreign", "averaged": "averaged"}
    means = summary.groupby(["setting", "method"], sort=False)[list(figures)].mean()
    rows = []
    for setting in summary.setting.unique():
        row = {"setting": setting}
        for suffix in ("", ", min_tips 1"):
            tips, newest = means.loc[setting, f"tips{suffix}"], means.loc[setting, f"newest{suffix}"]
            row |= {f"{what}{suffix}": f"{tips[name]:.2f} / {newest[name]:.2f}" for name, what in figures.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def clusters_by_seed(summary: pd.DataFrame) -> pd.DataFrame:
    """The adjusted Rand index of each run, seeds in a row: a mean would hide that it is all or nothing."""
    methods = [f"{candidates}{suffix}" for suffix in VARIANTS for candidates in ("tips", "newest")]
    runs = summary.assign(index=summary.adjusted_rand.map("{:.2f}".format))
    table = runs.pivot_table("index", index="setting", columns="method", aggfunc=" ".join, sort=False)
    return table[methods].reset_index()


def draw_candidates(summary: pd.DataFrame, path: Path) -> None:
    """How far newest updates are from tips in each setting where nobody attacks: each seed, mean and 95 % interval."""
    quiet = summary[~summary.setting.str.contains("|".join(ATTACKS))]
    settings = list(dict.fromkeys(quiet.setting))
    figure = Figure(figsize=(9, 6.4))
    panels = figure.subplots(1, 2, sharey=True)
    shown = (("accuracy_last_5", "accuracy"), ("worst_decile", "accuracy of the worst tenth of clients"))
    lines = {
        "plain mean, min_tips 4": "tab:blue",
        "trimmed mean, min_tips 4": "tab:orange",
        "plain mean, min_tips 1": "tab:green",
    }
    for axes, (column, what) in zip(panels, shown, strict=True):
        values = quiet.pivot_table(column, index=["setting", "seed"], columns="method", sort=False)
        for place, (suffix, (label, colour)) in enumerate(zip(VARIANTS, lines.items(), strict=True)):
            differences = values[f"newest{suffix}"] - values[f"tips{suffix}"]
            by_setting = differences.groupby("setting", sort=False)
            rows = np.arange(len(settings)) + 0.25 * place
            each_row = [rows[settings.index(setting)] for setting in differences.index.get_level_values("setting")]
            axes.scatter(differences, each_row, s=9, color=colour, alpha=0.35, linewidths=0)
            axes.errorbar(
                by_setting.mean(),
                rows,
                xerr=by_setting.agg(lambda each: half_interval(each.tolist())),
                fmt="|",
                markersize=7,
                linewidth=1,
                color=colour,
                label=label,
            )
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.set(xlabel=f"{what}:\nnewest less tips")
        axes.grid(alpha=0.3)
    panels[0].set_yticks(np.arange(len(settings)) + 0.25, settings)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=160)
