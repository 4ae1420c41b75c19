"""The bench of clustered federated learning: accuracy, the worst tenth of clients, clusters found, and what it takes.

    python -m experiments.clustered.report

Where ``build/simulations`` has finished runs, ``summary.csv`` and ``curves.csv`` are written anew into
``experiments/results/clustered/<experiment>/``; then ``report.md`` is made of the CSV files that are there.
"""

from pathlib import Path
from typing import Final

import pandas as pd

from experiments import reporting
from experiments.reporting import describe_runs, difference_table, read_run_facts, update_reports
from fl_simulator.config.experiment import read_experiment
from fl_simulator.report import RUN, accuracy_table, draw_curves, keep_tables, read_results, summarise_runs, to_markdown

HERE = Path(__file__).resolve().parent
RESULTS, SIMULATIONS = reporting.RESULTS / HERE.name, reporting.SIMULATIONS / HERE.name
EXPERIMENTS: Final = ("digits",)
OURS: Final = "DAG-ACFL (newest)"
BOUND: Final = "oracle"
CLOSE: Final = 0.005
"""Accuracy within which a method counts as level with the best."""
KEPT: Final = (
    *("experiment", *RUN, "rounds", "accuracy", "accuracy_last_5", "best_accuracy", "worst_decile", "worst_client"),
    *("communities", "adjusted_rand", "up_bytes", "down_bytes", "seconds_training"),
)


def refresh(name: str) -> None:
    """Write the tables and pictures of the runs that are there."""
    experiment = read_experiment(HERE / f"{name}.toml")
    rounds = read_results(SIMULATIONS / name, experiment)
    summary = summarise_runs(rounds)
    if summary.empty:
        return
    facts = read_run_facts(SIMULATIONS / name, experiment)[["pixels"]]
    keep_tables(rounds, summary[list(KEPT)].join(facts, on=list(RUN)), RESULTS / name)
    for place, (setting, mine) in enumerate(rounds.groupby("setting", sort=False), start=1):
        draw_curves(mine, RESULTS / name / f"curves-{place}.png", figures=("accuracy", "worst_decile"), title=setting)


def tables(name: str) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    summary = pd.read_csv(RESULTS / name / "summary.csv")
    return [
        f"{describe_runs(summary, 'Mean of the last five evaluations')} Each run's value is the mean over its clients.",
        to_markdown(accuracy_table(summary, column="accuracy_last_5")),
        *difference_table(summary, OURS),
        "**The worst tenth of clients** at the end.",
        to_markdown(accuracy_table(summary, column="worst_decile")),
        "**Clusters found**: adjusted Rand index at the end, 1 for the true ones; of methods that name any.",
        to_markdown(accuracy_table(summary.dropna(subset="adjusted_rand"), column="adjusted_rand")),
        f"**Level with the best**: in how many settings a method is within {CLOSE} of the best, {BOUND} aside; costs.",
        to_markdown(standing(summary)),
    ]


def standing(summary: pd.DataFrame) -> pd.DataFrame:
    """How often each method is level with the best, whether it is told a number of clusters, and its costs."""
    means = summary.groupby(["setting", "method"], sort=False)[["accuracy_last_5", "worst_decile"]].mean()
    found = means[means.index.get_level_values("method") != BOUND]
    level = found >= found.groupby("setting").transform("max") - CLOSE
    count = level.groupby("method", sort=False).sum()
    costs = summary.assign(bytes=summary.up_bytes + summary.down_bytes).groupby("method", sort=False)
    settings = summary.setting.nunique()
    return pd.DataFrame(
        {
            "method": count.index,
            "told the number": ["yes" if "(3" in method else "no" for method in count.index],
            "level, mean": [f"{each} of {settings}" for each in count.accuracy_last_5],
            "level, worst tenth": [f"{each} of {settings}" for each in count.worst_decile],
            "MB": (costs["bytes"].mean() / 1e6).reindex(count.index).map("{:,.1f}".format),
            "seconds": costs.seconds_training.mean().reindex(count.index).map("{:.1f}".format),
        }
    )


if __name__ == "__main__":
    update_reports(EXPERIMENTS, RESULTS, refresh=refresh, tables=tables)
