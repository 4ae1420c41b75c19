"""What nobody has measured: freshness against volume, and tips against newest updates.

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

from experiments import reporting
from experiments.reporting import PIXELS, read_run_facts, update_reports
from fl_simulator.config.experiment import read_experiment
from fl_simulator.report import (
    RUN,
    accuracy_table,
    keep_tables,
    mean_and_interval,
    paired_differences,
    read_results,
    summarise_runs,
    to_markdown,
)

HERE = Path(__file__).resolve().parent
RESULTS, SIMULATIONS = reporting.RESULTS / HERE.name, reporting.SIMULATIONS / HERE.name
FRESHNESS: Final = "freshness"
EXPERIMENTS: Final = (FRESHNESS, "tips_or_newest")
PAIRS: Final = {
    "DAG-ACFL": "DAG-ACFL in rounds",
    "FedAsync in true clusters": "oracle",
    "FedBuff in true clusters": "oracle",
    "FedAsync": "FedAvg",
    "FedBuff": "FedAvg",
}
"""Of each method without rounds, what is the same in rounds, or nearest to it."""
OURS: Final = "DAG-ACFL"
OTHERWISE: Final = ("DAG-ACFL over tips", "DAG-ACFL, window 60 s")
BOUNDS: Final = ("FedAsync in true clusters", "FedBuff in true clusters")
KEPT: Final = (
    *("experiment", *RUN, "rounds", "accuracy", "accuracy_last_5", "worst_decile", "adjusted_rand", "averaged"),
    *("attacked", "cross_cluster_rate"),
)
OVER_ALL_ROUNDS: Final = {"averaged", "cross_cluster_rate"}
"""Columns that are a mean over the run: of one round's few selections they say little."""


def refresh(name: str) -> None:
    """Write the tables and pictures of the runs that are there."""
    experiment = read_experiment(HERE / f"{name}.toml")
    rounds = read_results(SIMULATIONS / name, experiment)
    summary = summarise_runs(rounds)
    if summary.empty:
        return
    facts = read_run_facts(SIMULATIONS / name, experiment)[["pixels"]]
    kept = [each for each in KEPT if each in summary]
    summary = summary.set_index(list(RUN))
    for each in OVER_ALL_ROUNDS & set(kept):
        summary[each] = rounds[rounds.finished].groupby(list(RUN))[each].mean()
    summary = summary.reset_index()
    keep_tables(rounds, summary[kept].join(facts, on=list(RUN)), RESULTS / name)
    if name == FRESHNESS:
        effects = split_gains(rounds)
        effects.to_csv(RESULTS / name / "effects.csv", index=False)
        draw_effects(effects, RESULTS / name / "effects.png")


def tables(name: str) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    summary = pd.read_csv(RESULTS / name / "summary.csv")
    if name == FRESHNESS:
        return freshness_tables(summary, pd.read_csv(RESULTS / name / "effects.csv"))
    return candidate_tables(summary)


# -- freshness or volume ------------------------------------------------------------------------------------


def split_gains(rounds: pd.DataFrame) -> pd.DataFrame:
    """What a method without rounds gains over its pair, split into what comes of each update and of more of them.

    Returns:
        A row for each pair, setting and seed: ``updates`` (how many times as many results), and differences of
        accuracy: at ``equal_time``, the end; at ``equal_updates``, when each has had as many results as the one with
        fewer had at the end; at ``equal_epochs``, likewise, lost trainings counted. Accuracy is interpolated between
        evaluations, and the mean of the last five at the end of a curve.
    """
    columns = ["setting", "seed", "method"]
    runs = {key: curve_of(run) for key, run in rounds[rounds.finished].groupby(columns, sort=False)}
    rows = []
    for (setting, seed, method), mine in runs.items():
        if (other := PAIRS.get(method)) is None or (setting, seed, other) not in runs:
            continue
        theirs = runs[setting, seed, other]
        row = {"setting": setting, "seed": seed, "method": method, "against": other}
        row["updates"] = mine.results.iloc[-1] / max(theirs.results.iloc[-1], 1)
        row["equal_time"] = mine.accuracy.iloc[-1] - theirs.accuracy.iloc[-1]
        for column, name in (("results", "equal_updates"), ("trainings", "equal_epochs")):
            shared = min(mine[column].iloc[-1], theirs[column].iloc[-1])
            row[name] = accuracy_at(mine, column, shared) - accuracy_at(theirs, column, shared)
        rows.append(row)
    return pd.DataFrame(rows).round(5)


def curve_of(run: pd.DataFrame) -> pd.DataFrame:
    """Accuracy, mean of five evaluations, by results and by trainings so far, beginning with none."""
    results, lost = run.results.fillna(0).cumsum(), run.lost.fillna(0).cumsum()
    accuracy = run.accuracy.rolling(5, min_periods=1).mean()
    return pd.DataFrame({"results": results, "trainings": results + lost, "accuracy": accuracy})


def accuracy_at(curve: pd.DataFrame, column: str, amount: float) -> float:
    return float(np.interp(amount, curve[column], curve.accuracy))


def freshness_tables(summary: pd.DataFrame, effects: pd.DataFrame) -> list[str]:
    """Accuracies by absence; what each pair gains; how far DAG-ACFL is from what knows the clusters."""
    parts = [f"Test accuracy, mean of the last five evaluations; {seeds_of(summary)}."]
    absences = summary.setting.str.partition(", ")[2]
    for absence, mine in summary.groupby(absences, sort=False):
        parts += [f"**{absence or 'Always there'}**", to_markdown(accuracy_table(mine, column="accuracy_last_5"))]
    parts.append(
        "**What is gained without rounds**: how many times as many updates, and differences of accuracy on the same "
        "seeds at equal time, at equal updates and at equal epochs; means, their 95 % confidence intervals, seeds. All "
        "pairs where everybody is there; DAG-ACFL also where clients are away."
    )
    rows = []
    for (method, setting), mine in effects.groupby(["method", "setting"], sort=False):
        if method == OURS or "away" not in setting:
            row = {
                "method": method,
                "less": PAIRS[method],
                "setting": setting,
                "updates": f"{mine.updates.mean():.1f} x",
            }
            for name in ("equal_time", "equal_updates", "equal_epochs"):
                row[name.replace("_", " ")] = mean_and_interval(mine[name].tolist(), 3)
            rows.append(row)
    known = paired_differences(summary, dict.fromkeys((*BOUNDS, *OTHERWISE), OURS), digits=3)
    known = known.drop(columns="against").set_index("method").T.rename_axis("setting").reset_index()
    worth = (
        "**What knowing the clusters is worth, and freshness**: methods that are told them, and DAG-ACFL over tips, or "
        f"over newest updates of the last minute, less {OURS}, on the same seeds."
    )
    gains = pd.DataFrame(sorted(rows, key=lambda row: list(PAIRS).index(row["method"])))
    return [*parts, to_markdown(gains), worth, to_markdown(known)]


def draw_effects(effects: pd.DataFrame, path: Path) -> None:
    """Of each pair a panel: gains at equal time and at equal updates over the ratio of speeds, by absence."""
    parts = effects.setting.str.extract(r"speeds x (\d+)(?:, away ([\d.]+))?")
    effects = effects.assign(ratio=parts[0].astype(int), away=parts[1].fillna("0").astype(float))
    pairs = {method: other for method, other in PAIRS.items() if method in set(effects.method)}
    figure = Figure(figsize=(3.1 * len(pairs), 3.6))
    panels = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
    for axes, (method, other) in zip(panels, pairs.items(), strict=True):
        for (away, mine), colour in zip(
            effects[effects.method == method].groupby("away"), ("tab:blue", "tab:orange", "tab:green"), strict=False
        ):
            means = mine.groupby("ratio")[["equal_time", "equal_updates"]].mean()
            axes.plot(means.index, means.equal_time, color=colour, label=f"away {away:g}: equal time")
            axes.plot(
                means.index, means.equal_updates, color=colour, linestyle=":", label=f"away {away:g}: equal updates"
            )
        axes.axhline(0, color="grey", linewidth=0.6)
        axes.set(title=f"{method}\nless {other}", xlabel="fastest over slowest", xscale="log")
        axes.title.set_fontsize(9)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("difference of accuracy")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=6, frameon=False, fontsize=8)
    figure.savefig(path, dpi=160)


def seeds_of(summary: pd.DataFrame) -> str:
    pixels = ", ".join(PIXELS[each] for each in summary.pixels.unique())
    return f"digits, pixels {pixels}, seeds {', '.join(map(str, sorted(summary.seed.unique())))}"


# -- tips or newest -----------------------------------------------------------------------------------------


def candidate_tables(summary: pd.DataFrame) -> list[str]:
    """Each figure of both kinds of candidates, and their difference."""
    honest = summary.setting.map(lambda each: not each.endswith(("flipped", "enough")))
    parts = [f"Means over seeds; {seeds_of(summary)}. Accuracy is the mean of the last five evaluations."]
    for title, mine in (("Nobody attacks", summary[honest]), ("Three of thirty attack", summary[~honest])):
        rows = []
        for setting, runs in mine.groupby("setting", sort=False):
            difference = paired_differences(runs, {"newest": "tips"}, digits=3).iloc[0][setting]
            row = {"setting": setting}
            for column, name in (
                ("accuracy_last_5", "accuracy"),
                ("worst_decile", "worst tenth"),
                ("adjusted_rand", "Rand index"),
                ("cross_cluster_rate", "foreign"),
                ("averaged", "averaged"),
            ):
                if column in runs:
                    means = runs.groupby("method")[column].mean()
                    row[f"{name}: tips / newest"] = f"{means['tips']:.3f} / {means['newest']:.3f}"
            row["accuracy: newest less tips"] = difference
            rows.append(row)
        parts += [f"**{title}.**", to_markdown(pd.DataFrame(rows))]
    return parts


if __name__ == "__main__":
    update_reports(EXPERIMENTS, RESULTS, refresh=refresh, tables=tables)
