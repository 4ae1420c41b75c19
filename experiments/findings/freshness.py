"""What asynchrony wins by: more updates, or better ones."""

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.findings.kept import keep
from experiments.reporting import Played, describe_inputs, moments_table, read_clients
from fl_simulator.report import (
    RUN,
    accuracy_table,
    half_interval,
    mean_and_interval,
    paired_differences,
    to_markdown,
)

IN_ROUNDS: Final = {"DAG-ACFL": "DAG-ACFL in rounds", "FedAsync in true clusters": "oracle", "FedBuff": "FedAvg"}
DEADLINES: Final = (", 24 s", ", 12 s", ", no deadline")
PAIRS: Final = {method: [f"{other}{each}" for each in DEADLINES] for method, other in IN_ROUNDS.items()}
"""Of each method without rounds, what is the same in rounds, or nearest to it, by how long a round waits at most."""
OURS: Final = "DAG-ACFL"
OTHERWISE: Final = ("DAG-ACFL over tips", "DAG-ACFL, window 60 s")
RATIOS: Final = (1, 3, 10, 30, 100)
TOLD: Final = ("FedAsync in true clusters", "FedBuff in true clusters")


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    folder = played.kept
    keep(played)
    (folder / "curves.csv").unlink()  # in full in progress.csv.gz
    progress = progress_of(played.rounds)
    progress.to_csv(folder / "progress.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})
    effects = split_gains(progress, read_clients(played.runs, played.experiment))
    effects.to_csv(folder / "effects.csv", index=False)
    draw_effects(effects, folder / "effects.png")


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


def tables(folder: Path) -> list[str]:
    """Markdown: accuracies by absence, what each pair gains, how far DAG-ACFL is from what knows the clusters."""
    summary, effects = (pd.read_csv(folder / f"{file}.csv") for file in ("summary", "effects"))
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
    known = paired_differences(summary, dict.fromkeys((*TOLD, *OTHERWISE), OURS), digits=3)
    known = known.drop(columns="against").set_index("method").T.rename_axis("setting").reset_index()
    worth = (
        "**What knowing the clusters is worth, and age**: methods that are told them, and DAG-ACFL over tips, or over "
        f"newest updates of the last minute, compared with {OURS}, on the same seeds."
    )
    return [*parts, worth, to_markdown(known)]


def draw_effects(effects: pd.DataFrame, path: Path) -> None:
    """A panel for each method and deadline: gains over the ratio of speeds where everybody is always there."""
    there = effects[~effects.setting.str.contains("away")]
    there = there.assign(ratio=there.setting.str.extract(r"speeds x (\d+)")[0].astype(int))
    lines = {
        "equal_time": ("at equal time", "tab:blue", "-"),
        "equal_time_heard": ("the same, of clients that both heard", "tab:green", "--"),
        "equal_updates": ("at equal updates", "tab:orange", ":"),
    }
    figure = Figure(figsize=(9.6, 8.4))
    panels = figure.subplots(len(DEADLINES), len(PAIRS), sharex=True, sharey="row")
    for column, (method, others) in enumerate(PAIRS.items()):
        for row, other in enumerate(others):
            axes, mine = panels[row, column], there[(there.method == method) & (there.against == other)]
            for place, (name, (label, colour, dashes)) in enumerate(lines.items()):
                by_ratio = mine.groupby("ratio")[name]
                across = by_ratio.mean().index * 1.06 ** (place - 1)  # side by side, where intervals would overlap
                half = by_ratio.agg(lambda each: half_interval(each.tolist()))
                axes.errorbar(across, by_ratio.mean(), half, color=colour, linestyle=dashes, capsize=2, label=label)
            axes.axhline(0, color="grey", linewidth=0.6)
            axes.set_title(f"{method}\nless {other}", fontsize=9)
            axes.set_xscale("log")
            axes.set_xticks(RATIOS, [str(each) for each in RATIOS])
            axes.set_xticks([], minor=True)
            axes.grid(alpha=0.3)
    for axes in panels[:, 0]:
        axes.set_ylabel("difference of accuracy")
    for axes in panels[-1]:
        axes.set_xlabel("fastest over slowest")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=160)
