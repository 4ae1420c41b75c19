"""What is offered to a selection, tips or everybody's newest update: accuracy and models per average, seed by seed."""

from pathlib import Path

import pandas as pd

from experiments.reporting import Played, keep_results
from fl_simulator.report import RUN, difference, mean_and_spread, to_markdown

DIFFERENCES = {
    "accuracy": "newest less tips",
    "accuracy_last_5": "the same, mean of the last five evaluations (or all four)",
    "best_accuracy": "the same, best evaluation",
    "half_way": "the same half-way",
}
"""Columns of which the two rules' differences are shown, and what each is called."""


def refresh(played: Played) -> None:
    """A row for each finished run, and its curve."""
    columns = [*RUN, "accuracy", "accuracy_last_5", "best_accuracy", "worst_client", "parents"]
    keep_results(played.rounds, played.summary[columns].round(4), played.kept)


def tables(folder: Path) -> list[str]:
    """Markdown of the committed CSV files: both rules side by side."""
    summary, curves = (pd.read_csv(folder / f"{file}.csv") for file in ("summary", "curves"))
    judged = curves.groupby(list(RUN)).accuracy
    half = judged.apply(lambda each: each.iloc[(len(each) - 1) // 2]).rename("half_way")
    summary = summary.join(half, on=list(RUN))
    rows = []
    for setting, runs in summary.groupby("setting", sort=False):
        by = dict(iter(runs.groupby("method")))
        if len(by) < 2:
            continue
        row: dict[str, str] = {"setting": str(setting)}
        for rule, mine in by.items():
            row[rule] = mean_and_spread(mine.accuracy)
        for column, what in DIFFERENCES.items():
            row[what] = difference(runs, "newest", "tips", column=column)
        row |= {f"models, {rule}": f"{mine.parents.mean():.1f}" for rule, mine in by.items()}
        rows.append(row)
    columns = ["setting", "tips", "newest", *DIFFERENCES.values(), "models, tips", "models, newest"]
    told = (
        "Test accuracy of what clients are given at the end: mean ± standard deviation over seeds (how many). "
        "Differences are of runs with the same seed: mean, 95 % confidence interval, how many."
        " Models: mean number in the average that an update began from."
    )
    return [told, to_markdown(pd.DataFrame(rows)[columns])]
