"""The bench of clustered federated learning.

    python -m experiments.clustered.report             # all
    python -m experiments.clustered.report shifts      # one of them

Where ``build/simulations`` has finished runs, ``summary.csv`` and ``curves.csv`` are written anew into
``experiments/results/clustered/<experiment>/``; then ``report.md`` is made of the CSV files that are there.
"""

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.clustered.cosines import separations
from experiments.reporting import (
    Played,
    describe_runs,
    describe_seeds,
    difference_table,
    keep_results,
    moments_table,
    read_run_facts,
    seconds_but_tests,
    update_reports,
    whole_settings,
)
from fl_simulator.report import (
    RUN,
    accuracy_table,
    difference,
    half_interval,
    to_markdown,
)

HERE = Path(__file__).resolve().parent
CONDITIONS: Final = "conditions"
FEW: Final = "few_samples"
UNTOUCHED: Final = "untouched"
COMPARED: Final = ("shifts", "other_data", UNTOUCHED)
EXPERIMENTS: Final = (*COMPARED, CONDITIONS, FEW)
OURS: Final = "DAG-ACFL (newest, four others)"
BOUND: Final = "oracle"
TOLD: Final = ("IFCA (3)", "FeSEM (3, k-means)", "FlexCFL (3)")
"""Methods that are given the number of clusters."""
DRAWN: Final = ("FedAvg", "CFL", "SDAGFL", OURS, *TOLD)
FLOORS: Final = ("floor 0.5", "floor 0.35", "floor 0.5, alone 0.35")
"""Methods of ``few_samples.toml``, the default first."""
CLOSE: Final = 0.005
"""Accuracy within which a method counts as level with the best."""
LINEAR: Final = 0.02
"""Differences up to which a picture's axis is linear; beyond them it is logarithmic."""
TICKS: Final = (-0.5, -0.1, -0.02, 0, 0.02, 0.1)
LEAST: Final = 1e-9
"""Accuracy below which two means are one and the same."""
SHOWN: Final = {
    "accuracy_last_5": "Mean of the last five evaluations",
    "worst_decile": "The worst tenth of clients at the end",
    "adjusted_rand": "Clusters found: adjusted Rand index at the end, 1 for the true ones; of methods that name any",
}
MOMENTS: Final = {
    "a tenth joins late": (20, 21, 25, 61),
    "a fifth moves and returns": (20, 21, 25, 40, 41, 61),
    "half take part": (20, 61, 121),
}
"""Rounds of ``conditions.toml`` that are told, from 1: clients join or move with the 21st, and return with the 41st."""
KEPT: Final = (
    *("experiment", *RUN, "rounds", "accuracy", "accuracy_last_5", "best_accuracy", "worst_decile", "worst_client"),
    *("communities", "adjusted_rand", "up_bytes", "down_bytes", "seconds_training", "seconds"),
)


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    experiment, name, folder = played.experiment, played.kept.name, played.kept
    summary = whole_settings(played.summary, experiment)
    if summary.empty:
        return
    rounds = played.rounds[played.rounds.setting.isin(summary.setting)]
    facts = read_run_facts(played.runs, experiment)[["pixels"]]
    summary = summary.assign(seconds=seconds_but_tests(summary))
    keep_results(rounds, summary[list(KEPT)].join(facts, on=list(RUN)), folder)
    if name == CONDITIONS:
        after = rounds["round"] + 1
        parts = [
            rounds[rounds.setting.str.endswith(condition) & after.isin(told)] for condition, told in MOMENTS.items()
        ]
        moments = pd.concat(parts).sort_index()
        moments[[*RUN, "round", "accuracy", "worst_decile"]].to_csv(folder / "moments.csv", index=False)
    if name == UNTOUCHED:
        separations(experiment).to_csv(folder / "cosines.csv", index=False)
    if name in COMPARED:
        draw_methods(summary, folder / "methods.png")


def tables(folder: Path) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    name = folder.name
    summary = pd.read_csv(folder / "summary.csv")
    if name == CONDITIONS:
        return condition_tables(summary, pd.read_csv(folder / "moments.csv"))
    if name == FEW:
        return floor_tables(summary)
    parts = []
    for column, title in SHOWN.items():
        parts.append(f"**{title}**")
        parts += [to_markdown(accuracy_table(each, column=column)) for each in by_data(summary.dropna(subset=column))]
    first, *others = (moments_table(each, beside="accuracy_last_5") for each in by_data(summary))
    parts += [*first, *(table for _, table in others)]
    differences = (
        f"**Differences from {OURS}** on the same seeds, mean of the last five evaluations: mean, its 95 % confidence "
        f"interval, how many. *best*: the method that did best in the mean, {BOUND} aside; it was chosen by the same "
        "seeds, so that its interval is too narrow."
    )
    worst_differences = "**The same for the worst tenth of clients at the end**, *best* being what is best for them."
    seconds = (
        "seconds of training, and of all but tests: selections, similarities and losses of candidates, too"
        if "seconds" in summary
        else "seconds of training alone, without what selections, similarities and losses of candidates take"
    )
    level = (
        f"**Level with the best**: in how many settings a method is within {CLOSE} of the best, {BOUND} aside, by the "
        f"mean of the last five evaluations, by the last one, and of the worst tenth; bytes, and {seconds}."
    )
    untold = (
        f"**Given no number**: in how many settings a method is within {CLOSE} of the best of these, and how far it is "
        "behind, in the mean over settings and at most; of DAG-ACFL's rows only that with newest updates, four others."
    )
    return [
        f"{describe_runs(summary, 'Test accuracy')} Each run's value is the mean over its clients.",
        *parts,
        differences,
        to_markdown(leads(summary, "accuracy_last_5")),
        worst_differences,
        to_markdown(leads(summary, "worst_decile")),
        level,
        to_markdown(standing(summary)),
        untold,
        to_markdown(shortfalls(summary)),
        *(first_cosines(folder) if name == UNTOUCHED else []),
    ]


def first_cosines(folder: Path) -> list[str]:
    """Paragraphs: how alike clients' first updates are, which is near what their first selections compare."""
    measured = pd.read_csv(folder / "cosines.csv")
    means = measured.groupby("setting", sort=False)[["within", "between", "separation"]].mean()
    told = (
        "**Cosines of first updates**, means over pairs of clients and seeds: of one cluster, of two, and the "
        "difference in standard deviations of the former."
    )
    names = {"within": "one cluster", "between": "two"}
    return [told, to_markdown(means.rename(columns=names).reset_index(), digits=2)]


def by_data(summary: pd.DataFrame) -> list[pd.DataFrame]:
    """One table for each data set, whose name begins a setting's where there are several."""
    if summary.setting.iloc[0].count(",") == 1:
        return [summary]
    return [mine for _, mine in summary.groupby(summary.setting.str.partition(",")[0], sort=False)]


def leads(summary: pd.DataFrame, column: str) -> pd.DataFrame:
    """How far from ours the best method of each setting is by a column, FedAvg, and what is told the clusters."""
    means = summary[summary.method != BOUND].groupby(["setting", "method"], sort=False)[column].mean()
    rows = []
    for setting, found in means.groupby(level="setting", sort=False):
        by_method = found.droplevel("setting")
        method = OURS if by_method[OURS] >= by_method.max() - LEAST else by_method.idxmax()
        mine = summary[summary.setting == setting]
        row = {"setting": setting, "best": method}
        for title, other in (("best less ours", method), ("FedAvg less ours", "FedAvg"), ("oracle less ours", BOUND)):
            row[title] = "-" if other == OURS else difference(mine, other, OURS, column=column)
        rows.append(row)
    return pd.DataFrame(rows)


def standing(summary: pd.DataFrame) -> pd.DataFrame:
    """How often each method is level with the best, whether it is told a number of clusters, and its costs."""
    means = summary.groupby(["setting", "method"], sort=False)[["accuracy_last_5", "accuracy", "worst_decile"]].mean()
    found = means[means.index.get_level_values("method") != BOUND]
    level = found >= found.groupby("setting").transform("max") - CLOSE - LEAST
    count = level.groupby("method", sort=False).sum()
    costs = summary.assign(bytes=summary.up_bytes + summary.down_bytes).groupby("method", sort=False)
    settings = summary.setting.nunique()
    spent = {"training, s": "seconds_training", "all but tests, s": "seconds"}
    return pd.DataFrame(
        {
            "method": count.index,
            "given the number": ["yes" if method in TOLD else "no" for method in count.index],
            "level, last five": [f"{each} of {settings}" for each in count.accuracy_last_5],
            "level, last": [f"{each} of {settings}" for each in count.accuracy],
            "level, worst tenth": [f"{each} of {settings}" for each in count.worst_decile],
            "MB": (costs["bytes"].mean() / 1e6).reindex(count.index).map("{:,.1f}".format),
            **{
                title: costs[column].mean().reindex(count.index).map("{:.1f}".format)
                for title, column in spent.items()
                if column in summary
            },
        }
    )


def shortfalls(summary: pd.DataFrame) -> pd.DataFrame:
    """How far methods that are given no number of clusters are behind the best of them."""
    untold = ~summary.method.isin([*TOLD, BOUND]) & (
        summary.method.eq(OURS) | ~summary.method.str.startswith("DAG-ACFL")
    )
    means = summary[untold].pivot_table("accuracy_last_5", index="setting", columns="method", sort=False)
    behind = means.rsub(means.max(axis="columns"), axis="index")
    close = (behind <= CLOSE + LEAST).sum()
    table = pd.DataFrame({"within": close, "behind, mean": behind.mean(), "behind, most": behind.max()})
    table["within"] = [f"{each} of {len(means)}" for each in close]
    return table.sort_values("behind, mean").reset_index()


def condition_tables(summary: pd.DataFrame, moments: pd.DataFrame) -> list[str]:
    """Of each setting, accuracy by round: of all clients, and of the worst tenth."""
    told = f"Test accuracy: mean over clients / over the worst tenth of them; means over {describe_seeds(summary)}"
    parts = [f"{told}. Of {OURS}, with the standard deviation of the first over seeds."]
    for setting, mine in moments.assign(after=moments["round"] + 1).groupby("setting", sort=False):
        cells: dict[str, dict[str, str]] = {}
        for (method, after), runs in mine.groupby(["method", "after"], sort=False):
            spread = f" ± {runs.accuracy.std():.3f}" if method == OURS else ""
            text = f"{runs.accuracy.mean():.3f}{spread} / {runs.worst_decile.mean():.3f}"
            cells.setdefault(method, {})[f"round {after}"] = text
        table = pd.DataFrame.from_dict(cells, orient="index").rename_axis("method").reset_index()
        parts += [f"**{setting}**", to_markdown(table)]
    return [*parts, *difference_table(summary, OURS)]


def floor_tables(summary: pd.DataFrame) -> list[str]:
    """Of each setting, what lower floors bring compared with the default one, and which clusters are found."""
    rows, found = [], []
    for setting, runs in summary.groupby("setting", sort=False):
        means = runs.groupby("method")[["accuracy_last_5", "worst_decile", "adjusted_rand", "communities"]].mean()
        row = {"setting": setting, FLOORS[0]: f"{means.accuracy_last_5[FLOORS[0]]:.3f}"}
        for column, what in (("accuracy_last_5", ""), ("worst_decile", ", worst tenth")):
            for method in FLOORS[1:]:
                row[f"{method}{what}"] = difference(runs, method, FLOORS[0], column=column, digits=3)
        rows.append(row)
        index = " / ".join(means.adjusted_rand[list(FLOORS)].map("{:.2f}".format))
        groups = " / ".join(means.communities[list(FLOORS)].map("{:.1f}".format))
        found.append({"setting": setting, "Rand index": index, "groups": groups})
    told = (
        f"Mean of the last five evaluations, {describe_seeds(summary)}; of lower floors the difference from "
        f"{FLOORS[0]} on the same seeds, its 95 % confidence interval, how many; the same for "
        "the worst tenth of clients at the end."
    )
    return [
        told,
        to_markdown(pd.DataFrame(rows)),
        f"Clusters at the end, with {' / '.join(FLOORS)}: adjusted Rand index, and how many groups.",
        to_markdown(pd.DataFrame(found)),
    ]


def draw_methods(summary: pd.DataFrame, path: Path) -> None:
    """How far methods are from the true clusters' average in each setting, and in what the worst tenth has.

    Means and 95 % confidence intervals; hollow marks are of methods that are given the number of clusters.
    """
    settings = list(dict.fromkeys(summary.setting))
    methods = [method for method in DRAWN if method in set(summary.method)]
    figure = Figure(figsize=(10, 1.6 + 0.62 * len(settings)))
    panels = figure.subplots(1, 2, sharey=True)
    shown = (("accuracy_last_5", "accuracy"), ("worst_decile", "accuracy of the worst tenth of clients"))
    for axes, (column, what) in zip(panels, shown, strict=True):
        values = summary.pivot_table(column, index=["setting", "seed"], columns="method", sort=False)
        for place, method in enumerate(methods):
            by_setting = (values[method] - values[BOUND]).groupby("setting", sort=False)
            axes.errorbar(
                by_setting.mean(),
                np.arange(len(settings)) + 0.1 * (place - len(methods) / 2),
                xerr=by_setting.agg(lambda each: half_interval(each.tolist())),
                fmt="oXsDo^v"[place],
                markersize=5,
                linewidth=0.8,
                markerfacecolor="none" if method in TOLD else None,
                label=method,
            )
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.set_xscale("symlog", linthresh=LINEAR)
        axes.set_xticks(TICKS, [f"{each:g}" for each in TICKS])
        axes.set(xlabel=f"{what}, less {BOUND}")
        axes.grid(alpha=0.3)
    panels[0].set_yticks(range(len(settings)), settings)
    panels[0].set_ylim(len(settings) - 0.3, -0.7)
    figure.tight_layout(rect=(0, 0.6 / figure.get_figheight(), 1, 1))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    update_reports(HERE.name, EXPERIMENTS, refresh=refresh, tables=tables)
