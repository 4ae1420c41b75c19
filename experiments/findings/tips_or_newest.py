"""Whether tips or newest updates are the better candidates."""

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.findings.kept import keep
from experiments.reporting import Played, describe_inputs, moments_table
from fl_simulator.report import half_interval, paired_differences, to_markdown

ATTACKS: Final = ("labels flipped", "a little is enough")


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    draw_candidates(keep(played), played.kept / "differences.png")


def tables(folder: Path) -> list[str]:
    """Markdown of the committed CSV files."""
    return candidate_tables(pd.read_csv(folder / "summary.csv"))


def candidate_tables(summary: pd.DataFrame) -> list[str]:
    """Accuracy of all methods; how newest updates differ from tips in what matters; what averages are made of."""
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
            for suffix, under in (("", ""), (", trimmed mean", ", trimmed")):
                for column, what in (("accuracy_last_5", "accuracy"), ("worst_decile", "worst tenth")):
                    pair = {f"newest{suffix}": f"tips{suffix}"}
                    row[f"{what}{under}"] = paired_differences(runs, pair, column=column, digits=3).iloc[0][setting]
            rows.append(row)
        parts += [f"**{title}**: newest updates compared with tips", to_markdown(pd.DataFrame(rows))]
    figures = {
        "adjusted_rand": "Rand index",
        "cross_cluster_rate": "took a foreign model",
        "averaged": "models averaged",
    }
    rows = []
    for setting, runs in summary.groupby("setting", sort=False):
        means = runs.groupby("method")[list(figures)].mean()
        pairs = {what: f"{means[name]['tips']:.2f} / {means[name]['newest']:.2f}" for name, what in figures.items()}
        rows.append({"setting": setting} | pairs)
    return [*parts, "**Tips / newest**, under a plain mean", to_markdown(pd.DataFrame(rows))]


def draw_candidates(summary: pd.DataFrame, path: Path) -> None:
    """How far newest updates are from tips in each setting where nobody attacks, with 95 % confidence intervals."""
    quiet = summary[~summary.setting.str.contains("|".join(ATTACKS))]
    settings = list(dict.fromkeys(quiet.setting))
    figure = Figure(figsize=(9, 4.2))
    panels = figure.subplots(1, 2, sharey=True)
    shown = (("accuracy_last_5", "accuracy"), ("worst_decile", "worst tenth"))
    for axes, (column, what) in zip(panels, shown, strict=True):
        values = quiet.pivot_table(column, index=["setting", "seed"], columns="method", sort=False)
        for place, (suffix, colour) in enumerate((("", "tab:blue"), (", trimmed mean", "tab:orange"))):
            by_setting = (values[f"newest{suffix}"] - values[f"tips{suffix}"]).groupby("setting", sort=False)
            axes.errorbar(
                by_setting.mean(),
                np.arange(len(settings)) + 0.3 * place,
                xerr=by_setting.agg(lambda each: half_interval(each.tolist())),
                fmt="o",
                markersize=4,
                capsize=2,
                color=colour,
                label=f"under a {'trimmed' if suffix else 'plain'} mean",
            )
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.set(xlabel=f"{what}: newest less tips")
        axes.grid(alpha=0.3)
    panels[0].set_yticks(np.arange(len(settings)) + 0.15, settings)
    panels[0].invert_yaxis()
    panels[1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=160)
