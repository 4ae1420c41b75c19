"""Two questions of our own: what asynchrony wins by, and whether tips or newest updates are the better candidates.

    python -m experiments.findings.report                 # both
    python -m experiments.findings.report freshness       # one of them

Where ``build/simulations`` has finished runs, the CSV files of ``experiments/results/findings/<experiment>/`` are
written anew, and pictures; then ``report.md`` is made of the CSV files that are there. The third question, when
clusters are found without their number, is ``experiments/clustered/phase.toml``.
"""

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.reporting import (
    Played,
    describe_inputs,
    keep_results,
    moments_table,
    read_clients,
    read_run_facts,
    update_reports,
)
from fl_simulator.report import (
    RUN,
    accuracy_table,
    half_interval,
    mean_and_interval,
    paired_differences,
    to_markdown,
)

HERE = Path(__file__).resolve().parent
FRESHNESS: Final = "freshness"
CANDIDATES: Final = "tips_or_newest"
EXPERIMENTS: Final = (FRESHNESS, CANDIDATES)
IN_ROUNDS: Final = {"DAG-ACFL": "DAG-ACFL in rounds", "FedAsync in true clusters": "oracle", "FedBuff": "FedAvg"}
DEADLINES: Final = (", 24 s", ", 12 s", ", no deadline")
PAIRS: Final = {method: [f"{other}{each}" for each in DEADLINES] for method, other in IN_ROUNDS.items()}
"""Of each method without rounds, what is the same in rounds, or nearest to it, by how long a round waits at most."""
OURS: Final = "DAG-ACFL"
OTHERWISE: Final = ("DAG-ACFL over tips", "DAG-ACFL, window 60 s")
ATTACKS: Final = ("labels flipped", "a little is enough")
BOUNDS: Final = ("FedAsync in true clusters", "FedBuff in true clusters")
KEPT: Final = (
    *("experiment", *RUN, "rounds", "accuracy", "accuracy_last_5", "best_accuracy", "worst_decile", "adjusted_rand"),
    "averaged",
    "cross_cluster_rate",
)
OVER_ALL_ROUNDS: Final = {"averaged", "cross_cluster_rate"}
"""Columns that are a mean over the run: of one round's few selections they say little."""


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    rounds, folder = played.rounds, played.kept
    facts = read_run_facts(played.runs, played.experiment)[["pixels"]]
    kept = [each for each in KEPT if each in played.summary]
    summary = played.summary.set_index(list(RUN))
    for each in OVER_ALL_ROUNDS & set(kept):
        summary[each] = rounds.groupby(list(RUN))[each].mean()
    summary = summary.reset_index()
    keep_results(rounds, summary[kept].join(facts, on=list(RUN)), folder)
    if folder.name == FRESHNESS:
        (folder / "curves.csv").unlink()  # in full in progress.csv.gz
        progress = progress_of(rounds)
        progress.to_csv(folder / "progress.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})
        effects = split_gains(progress, read_clients(played.runs, played.experiment))
        effects.to_csv(folder / "effects.csv", index=False)
        draw_effects(effects, folder / "effects.png")
    else:
        draw_candidates(summary, folder / "differences.png")


def tables(folder: Path) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    summary = pd.read_csv(folder / "summary.csv")
    if folder.name == FRESHNESS:
        return gains_tables(summary, pd.read_csv(folder / "effects.csv"))
    return candidate_tables(summary)


# -- more updates, or better ones ---------------------------------------------------------------------------


def progress_of(rounds: pd.DataFrame) -> pd.DataFrame:
    """Of each run and evaluation: results and trainings so far, and accuracy."""
    counts = rounds[rounds.finished].fillna({"results": 0, "lost": 0})
    by_run = counts.groupby(list(RUN), sort=False)
    kept = counts[["setting", "method", "seed", "accuracy"]].copy()
    kept["results"] = by_run.results.cumsum()
    kept["trainings"] = kept.results + by_run.lost.cumsum()
    return kept.astype({"results": int, "trainings": int}).round({"accuracy": 5})


def split_gains(progress: pd.DataFrame, clients: pd.DataFrame) -> pd.DataFrame:
    """What a method without rounds gains over its pair.

    Args:
        progress: Of ``progress_of``.
        clients: Accuracy of every client at the end, and whether it was ever ``heard``.

    Returns:
        A row for each pair, setting and seed: ``updates`` (how many times as many results), how many clients were
        ``heard`` and by the other one, and differences of accuracy: at ``equal_time``, the end; the same over clients
        that both have ``heard``; at ``equal_updates`` and ``equal_trainings``, when each has had as many as the one
        with fewer had at the end (lost ones count as trainings), mean over the last tenth of them.
    """
    columns = ["setting", "seed", "method"]
    runs = dict(iter(progress.groupby(columns, sort=False)))
    ends = {key: run.set_index("client") for key, run in clients.groupby(columns, sort=False)}
    rows = []
    for (setting, seed, method), mine in runs.items():
        for other in PAIRS.get(method, ()):
            theirs = runs.get((setting, seed, other))
            if theirs is None:
                continue
            own, others = ends[setting, seed, method], ends[setting, seed, other]
            both = own.index[(own.heard == 1) & (others.heard == 1)]
            row = {"setting": setting, "seed": seed, "method": method, "against": other}
            row["updates"] = mine.results.iloc[-1] / max(theirs.results.iloc[-1], 1)
            row["heard"], row["heard_by_other"] = own.heard.sum(), others.heard.sum()
            row["equal_time"] = (own.accuracy - others.accuracy).mean()
            row["equal_time_heard"] = (own.accuracy[both] - others.accuracy[both]).mean()
            for column, name in (("results", "equal_updates"), ("trainings", "equal_trainings")):
                shared = min(mine[column].iloc[-1], theirs[column].iloc[-1])
                row[name] = accuracy_up_to(mine, column, shared) - accuracy_up_to(theirs, column, shared)
            rows.append(row)
    return pd.DataFrame(rows).round(5)


def accuracy_up_to(run: pd.DataFrame, column: str, amount: float) -> float:
    """Mean accuracy over the last tenth of so many results or trainings, between evaluations interpolated."""
    return float(np.interp(np.linspace(0.9 * amount, amount, 11), run[column], run.accuracy).mean())


def gains_tables(summary: pd.DataFrame, effects: pd.DataFrame) -> list[str]:
    """Accuracies by absence; what each pair gains; how far DAG-ACFL is from what knows the clusters."""
    parts = [f"Test accuracy, mean of the last five evaluations; digits, {describe_inputs(summary)}."]
    absences = summary.setting.str.partition(", ")[2]
    for absence, mine in summary.groupby(absences, sort=False):
        title = absence.replace("away 0.5", "Away half of the time") or "Always there"
        parts += [f"**{title}**", to_markdown(accuracy_table(mine, column="accuracy_last_5"))]
        parts += moments_table(mine, beside="accuracy_last_5")
    shown = {
        "equal_time": "at equal time",
        "equal_time_heard": "the same, of clients that both heard",
        "equal_updates": "at equal updates",
        "equal_trainings": "at equal trainings",
    }
    parts.append(
        "**What is gained without rounds**: how many times as many updates; how many clients of 30 were ever heard, "
        "without rounds / in rounds; differences of accuracy on the same seeds: means, their 95 % confidence "
        "intervals, seeds. Deadlines that dropped nobody are told once."
    )
    for method in PAIRS:
        rows = []
        for (setting, other), pair in effects[effects.method == method].groupby(["setting", "against"], sort=False):
            row = {"setting": setting, "compared with": other, "updates": f"{pair.updates.mean():.1f} x"}
            row["heard"] = f"{pair.heard.mean():.1f} / {pair.heard_by_other.mean():.1f}"
            rows.append(row | {title: mean_and_interval(pair[name].tolist(), 3) for name, title in shown.items()})
        told = pd.DataFrame(rows)
        same = told.duplicated([each for each in told if each != "compared with"])  # nobody is slower than a deadline
        parts += [f"**{method}**", to_markdown(told[~same])]
    known = paired_differences(summary, dict.fromkeys((*BOUNDS, *OTHERWISE), OURS), digits=3)
    known = known.drop(columns="against").set_index("method").T.rename_axis("setting").reset_index()
    worth = (
        "**What knowing the clusters is worth, and age**: methods that are told them, and DAG-ACFL over tips, or over "
        f"newest updates of the last minute, compared with {OURS}, on the same seeds."
    )
    return [*parts, worth, to_markdown(known)]


def draw_effects(effects: pd.DataFrame, path: Path) -> None:
    """Of each pair a panel: gains over the ratio of speeds, where everybody is always there."""
    there = effects[~effects.setting.str.contains("away")]
    there = there.assign(ratio=there.setting.str.extract(r"speeds x (\d+)")[0].astype(int))
    pairs = [(method, others[0]) for method, others in PAIRS.items() if method in set(there.method)]
    figure = Figure(figsize=(3.1 * len(pairs), 3.6))
    panels = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
    for axes, (method, other) in zip(panels, pairs, strict=True):
        means = there[(there.method == method) & (there.against == other)].groupby("ratio").mean(numeric_only=True)
        for column, colour, dashes in (
            ("equal_time", "tab:blue", "-"),
            ("equal_time_heard", "tab:green", "--"),
            ("equal_updates", "tab:orange", ":"),
        ):
            label = column.replace("_", " ").replace("time heard", "time, clients that both heard")
            axes.plot(means.index, means[column], color=colour, linestyle=dashes, label=label)
        axes.axhline(0, color="grey", linewidth=0.6)
        axes.set(title=f"{method}\ncompared with {other}", xlabel="fastest over slowest", xscale="log")
        axes.title.set_fontsize(9)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("difference of accuracy")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=160)


# -- tips or newest -----------------------------------------------------------------------------------------


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


if __name__ == "__main__":
    update_reports(HERE.name, EXPERIMENTS, refresh=refresh, tables=tables)
