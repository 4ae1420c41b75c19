"""What is offered to a selection, tips or everybody's newest update: accuracy and models per average, seed by seed.

    python -m experiments.candidates.report

Where ``build/simulations`` has finished runs, ``summary.csv`` is written anew into ``experiments/results/candidates``;
then ``report.md`` is made of it.
"""

from pathlib import Path

import pandas as pd

from experiments.reporting import RESULTS, SIMULATIONS, read_finished, refuse_fewer, update_reports
from fl_simulator.config.experiment import read_experiment
from fl_simulator.report import RUN, mean_and_interval, mean_and_spread, summarise_runs, to_markdown

HERE = Path(__file__).resolve().parent
EXPERIMENTS = ("candidates",)


def refresh(name: str) -> None:
    """A row for each finished run: accuracies at half of it and at its end, and the models in an average."""
    rounds = read_finished(SIMULATIONS / name, read_experiment(HERE.parent / f"{name}.toml"))
    summary = summarise_runs(rounds)
    if summary.empty:
        return
    judged = rounds.dropna(subset="accuracy").groupby(list(RUN))
    half = judged.accuracy.apply(lambda each: each.iloc[(len(each) - 1) // 2]).rename("half_way")
    parents = rounds.groupby(list(RUN)).parents.last()
    refuse_fewer(summary, RESULTS / name)
    (RESULTS / name).mkdir(parents=True, exist_ok=True)
    table = summary[[*RUN, "accuracy", "worst_client"]].join(half, on=list(RUN)).join(parents, on=list(RUN))
    table.round(4).to_csv(RESULTS / name / "summary.csv", index=False)


def tables(name: str) -> list[str]:
    """Markdown of the committed CSV file: both rules side by side."""
    summary = pd.read_csv(RESULTS / name / "summary.csv")
    rows = []
    for setting, runs in summary.groupby("setting", sort=False):
        by = {rule: mine.set_index("seed") for rule, mine in runs.groupby("method")}
        if len(by) < 2:
            continue
        row: dict[str, str] = {"setting": str(setting)}
        for rule, mine in by.items():
            row[rule] = mean_and_spread(mine.accuracy)
        for column, what in (("accuracy", "newest less tips"), ("half_way", "the same half-way")):
            row[what] = mean_and_interval((by["newest"][column] - by["tips"][column]).dropna().tolist(), digits=4)
        row |= {f"models, {rule}": f"{mine.parents.mean():.1f}" for rule, mine in by.items()}
        rows.append(row)
    columns = ["setting", "tips", "newest", "newest less tips", "the same half-way", "models, tips", "models, newest"]
    told = (
        "Test accuracy of what clients are given at the end: mean ± standard deviation over seeds (how many). "
        "Differences are of runs with the same seed, at the end and half-way: mean, 95 % confidence interval, how many."
        " Models: mean number in the average that an update began from."
    )
    return [told, to_markdown(pd.DataFrame(rows)[columns])]


if __name__ == "__main__":
    update_reports(EXPERIMENTS, RESULTS, refresh=refresh, tables=tables)
