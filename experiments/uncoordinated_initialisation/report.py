"""[Gain], trainings: accuracy, and how long the plateau of test loss lasts (Fig. 3, 4, 5 a b, 7 and 9).

    python -m experiments.uncoordinated_initialisation.report                    # all experiments of this folder
    python -m experiments.uncoordinated_initialisation.report plateau_small      # one of them

Where ``build/simulations`` has finished runs of an experiment, their ``summary.csv`` (a row for each run),
``curves.csv`` and pictures are written anew into ``experiments/results/uncoordinated_initialisation/<experiment>/``;
then ``report.md`` is made of the CSV files that are there. What needs no training is in ``numerical.py``.
"""

from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.reporting import (
    COMPARED_BY,
    Played,
    describe_runs,
    difference_table,
    keep_results,
    read_run_facts,
    update_reports,
)
from fl_simulator.config.experiment import Experiment
from fl_simulator.config.scenario import Scenario
from fl_simulator.plots.style import DPI, INK
from fl_simulator.report import (
    RUN,
    accuracy_table,
    difference,
    draw_curves,
    mean_and_spread,
    to_markdown,
)

HERE = Path(__file__).resolve().parent
PLATEAUS = (
    "plateau_small",
    "plateau_barabasi_albert_small",
    "plateau_adamw",
    "estimates",
    "plateau_complete",
    "plateau_barabasi_albert",
)
EXPERIMENTS = (
    *PLATEAUS,
    "links",
    "nodes_up",
    "changes",
    "degrees",
    "samples",
    "nodes",
    "epochs",
    "total_data",
)
PLATEAU, LEARNED = 0.9 * log(10), 1.0
"""Losses in nats: below the first, nine tenths of that of guessing among ten labels, the plateau is over; the second is
for comparing how fast methods learn after it."""
CHANGES = ("sigma_an", "sigma_ap", "change_by_training", "change_by_aggregation", "change_cosine")
"""Columns of ``rounds.csv`` that Fig. 5 (a, b) shows."""
BESIDE_CENTRAL = ("degrees", "samples", "nodes", "epochs", "total_data")
ONE_CENTRAL = ("degrees", "epochs", "total_data")
"""Experiments all of whose settings have the same data."""
SHOWN_LOSS = 3.0
"""Up to where losses beside a central system's are drawn: a little more than that of guessing."""
CENTRAL_DASHES = (0, (4, 3))
SHOWN_ROUNDS = (1, 2, 3, 5, 10, 20, 50, 100)


def rounds_until(run: pd.DataFrame, *, below: float) -> float:
    """Rounds from which on test loss stays below a threshold; NaN if it is not below it at the end.

    The first round below would not do: a node that trains before anybody averages may be there once, and is then
    averaged back.
    """
    judged = run.dropna(subset="loss")
    above = judged[~(judged.loss < below)]
    after = judged[judged["round"] > above["round"].max()] if len(above) else judged
    return after["round"].min() + 1


def exponent(runs: pd.DataFrame) -> float:
    """µ of rounds ~ nodes^µ of one seed: the slope of logarithms.

    NaN where a size's plateau never ended, or fewer than three lengths differ: no slope can be told of plateaus that
    were over at the first evaluation.
    """
    if runs.plateau_rounds.isna().any() or runs.plateau_rounds.nunique() < 3:
        return np.nan
    return round(float(np.polyfit(np.log(runs.nodes), np.log(runs.plateau_rounds), 1)[0]), 6)


def exponents(runs: pd.DataFrame) -> pd.Series:
    """µ of each seed of one method."""
    return pd.Series([exponent(mine) for _, mine in runs.groupby("seed")], dtype=float)


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    experiment, rounds, folder = played.experiment, played.rounds, played.kept
    by_run = rounds.groupby(list(RUN))
    losses = pd.DataFrame(
        {
            "least_loss": by_run.loss.min(),
            "plateau_rounds": pd.Series({key: rounds_until(run, below=PLATEAU) for key, run in by_run}),
            "rounds_to_learn": pd.Series({key: rounds_until(run, below=LEARNED) for key, run in by_run}),
        }
    ).rename_axis(list(RUN))
    facts = read_run_facts(played.runs, experiment).join(losses)
    summary = played.summary.join(facts, on=list(RUN))
    keep_results(rounds, summary, folder)
    if folder.name in PLATEAUS:
        draw_scaled_losses(rounds, summary, folder / "scaled-loss.png")
    if folder.name in BESIDE_CENTRAL:
        draw_beside_central(rounds, summary, experiment, folder / "loss-over-samples.png")
        return
    rounds["line"] = rounds.setting + ", " + rounds.method
    # logarithmic, since first weights that nobody has averaged yet have losses in the hundreds
    draw_curves(rounds, folder / "loss.png", figures=["loss"], by="line", scale="log", title=experiment.title)
    if folder.name == "changes":
        shown = rounds[(rounds["round"] + 1).isin(SHOWN_ROUNDS)]
        shown[[*RUN, "round", *CHANGES]].to_csv(folder / "changes.csv", index=False)
        *_, cosine = CHANGES
        draw_changes(shown, folder / "changes.png", title=experiment.title)
        draw_curves(rounds, folder / "cosine.png", figures=[cosine], by="line", title=experiment.title)


def draw_changes(shown: pd.DataFrame, path: Path, *, title: str) -> None:
    """Sizes of what aggregation and training change, in the rounds that the table shows.

    He's losses are never above the bound: with it and without it training first is the same, and would hide a line.
    """
    *sizes, _ = CHANGES
    twice = (shown.setting == "training first, loss bounded") & (shown.method == "He")
    drawn = shown[~twice].assign(line=shown.setting + ", " + shown.method)
    drawn[sizes] = drawn[sizes].where(drawn[sizes] > 0)  # a logarithmic axis has no nought
    names = {"sigma_an": "σₐₙ", "sigma_ap": "σₐₚ"}
    figures = [names.get(size, size) for size in sizes]
    figure = draw_curves(drawn.rename(columns=names), path, figures=figures, by="line", scale="log", title=title)
    figure.axes[-1].set_xscale("log")
    ticks = [number for number in SHOWN_ROUNDS if number != 3]
    figure.axes[-1].set_xticks(ticks, [str(number) for number in ticks])
    figure.axes[-1].set_xticks([], minor=True)
    figure.savefig(path, dpi=DPI, facecolor="white")


def draw_beside_central(rounds: pd.DataFrame, summary: pd.DataFrame, experiment: Experiment, path: Path) -> None:
    """Test loss with the gain over samples that a node has passed; dashed, a central system's least ([Gain] Fig. 9).

    One central system where all settings have the same data, else each setting's own. Losses of first weights, before
    anybody has averaged them, are above what is shown.
    """
    a_round = {
        run.label.setting: samples_a_round(run.scenario) for run in experiment.runs if run.label.method == "gain"
    }
    over = "samples passed by a node"
    nodes = rounds[rounds.method == "gain"].copy()
    nodes[over] = (nodes["round"] + 1) * nodes.setting.map(a_round)
    title = experiment.title
    figure = draw_curves(nodes, path, figures=["loss"], by="setting", over=over, scale="log", title=title)
    (axes,) = figure.axes
    central = summary[summary.method == "Centralised"].groupby("setting", sort=False).least_loss.mean()
    if path.parent.name in ONE_CENTRAL:
        axes.axhline(central.min(), color=INK, ls=CENTRAL_DASHES, lw=1.2, label="central system, least")
    else:
        for (setting, least), line in zip(central.items(), list(axes.lines), strict=True):
            axes.axhline(least, color=line.get_color(), ls=CENTRAL_DASHES, lw=1.2, label=f"{setting}, central, least")
    axes.set_xscale("log")
    axes.set_ylim(top=SHOWN_LOSS)
    ticks = [tick for tick in (0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0) if tick >= axes.get_ylim()[0]]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    figure.savefig(path, dpi=DPI, facecolor="white")


def samples_a_round(scenario: Scenario) -> int:
    """What a node trains on in a round."""
    training = scenario.training
    return training.steps * training.batch_size or training.epochs * int(scenario.partition.params["samples"])


def draw_scaled_losses(rounds: pd.DataFrame, summary: pd.DataFrame, path: Path) -> None:
    """Test loss with He alone over rounds / n^µ ([Gain] Fig. 3): where the plateau follows µ, sizes end it together.

    Up to where the largest graph's runs end. No picture where µ cannot be told.
    """
    he = summary[summary.method == "He"]
    slope = exponents(he).mean()
    if np.isnan(slope):
        return
    over = f"rounds / n^{slope:.2f}"
    scaled = rounds[rounds.method == "He"].join(he.set_index(list(RUN)).nodes, on=list(RUN))
    scaled[over] = (scaled["round"] + 1) / scaled.nodes**slope
    end = scaled.groupby("nodes")[over].max().min()
    title = "Test loss with He alone over scaled time"
    draw_curves(scaled[scaled[over] <= end], path, figures=["loss"], by="setting", over=over, title=title)


def tables(folder: Path) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    summary = pd.read_csv(folder / "summary.csv")
    column, words = COMPARED_BY
    parts = [
        f"{describe_runs(summary, f'Test accuracy, {words},')} Each run's value is the mean over its nodes.",
        to_markdown(accuracy_table(summary, column=column)),
    ]
    if "He" in set(summary.method):
        parts += difference_table(summary, "He")
        parts += difference_table(summary, "He", ("loss", "test loss at the end, which [Gain]'s figures show"))
    if "Centralised" in set(summary.method):
        parts += difference_table(summary, "Centralised")
        parts += difference_table(summary, "Centralised", ("least_loss", "least test loss"))
        parts += [
            (
                "**From one setting to the next**, with the gain, on the same seeds: mean of the differences, its 95 % "
                "confidence interval, how many."
            ),
            to_markdown(between_settings(summary[summary.method == "gain"])),
        ]
    parts += [
        (
            "**Beside it**: accuracy at the end and at best; test loss at the end and at its least; rounds until "
            f"it stayed below {LEARNED:g} (of seeds that came there)."
        ),
        to_markdown(beside(summary)),
    ]
    if folder.name in PLATEAUS:
        parts += [
            (
                f"**Plateau.** Rounds until test loss, mean over nodes, stayed below {PLATEAU:.4f}; a dash where it "
                "did not. µ of rounds ~ n^µ, where n is the number of nodes."
            ),
            to_markdown(plateaus(summary)),
        ]
    if (folder / "changes.csv").exists():
        parts += [
            (
                "**Changes**, means over nodes and seeds: standard deviations of parameters across nodes (σ_an) and "
                "within one (σ_ap), norms of what a round's training and its aggregation change, and their cosine."
            ),
            to_markdown(changes(pd.read_csv(folder / "changes.csv")), digits=4),
        ]
    return parts


def between_settings(summary: pd.DataFrame) -> pd.DataFrame:
    """How far each setting of a method is from the one before it, seed by seed."""
    steps = list(pairwise(summary.setting.unique()))
    by_setting = summary.assign(method=summary.setting)
    columns = {"accuracy": "accuracy_last_5", "loss at the end": "loss", "least loss": "least_loss"}
    cells = {
        head: [difference(by_setting, after, before, column=column) for before, after in steps]
        for head, column in columns.items()
    }
    return pd.DataFrame({"settings": [f"{before} to {after}" for before, after in steps], **cells})


def beside(summary: pd.DataFrame) -> pd.DataFrame:
    """What else is known of each setting's methods."""
    columns = {
        "accuracy at the end": ("accuracy", 4),
        "best accuracy": ("best_accuracy", 4),
        "loss at the end": ("loss", 3),
        "least loss": ("least_loss", 3),
        f"rounds to a loss of {LEARNED:g}": ("rounds_to_learn", 1),
    }
    rows = []
    for (setting, method), runs in summary.groupby(["setting", "method"], sort=False):
        cells = {head: mean_and_spread(runs[name], digits=digits) for head, (name, digits) in columns.items()}
        rows.append({"setting": setting, "method": method, **cells})
    return pd.DataFrame(rows)


def changes(kept: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of what rounds changed, a row for each setting, method and round."""
    means = kept.groupby(["setting", "method", "round"], sort=False)[list(CHANGES)].mean().reset_index()
    means["round"] += 1
    return means.rename(columns=lambda name: {"sigma_an": "σ_an", "sigma_ap": "σ_ap"}.get(name, name.replace("_", " ")))


def plateaus(summary: pd.DataFrame) -> pd.DataFrame:
    """Rounds of each setting, and the exponent over settings where they differ in nodes."""
    rows = []
    for method, runs in summary.groupby("method", sort=False):
        row = {"method": method}
        for setting, mine in runs.groupby("setting", sort=False):
            row[setting] = mean_and_spread(mine.plateau_rounds, digits=1)
        slopes = exponents(runs)
        if slopes.notna().any():
            row["µ"] = mean_and_spread(slopes, digits=3)
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    update_reports(HERE.name, EXPERIMENTS, refresh=refresh, tables=tables)
