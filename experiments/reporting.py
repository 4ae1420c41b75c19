"""What reports of papers have in common: where their files are, tables that several have, and how one is written."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from fl_simulator.config.experiment import Experiment, read_experiment
from fl_simulator.report import (
    RUN,
    keep_tables,
    methods_by_settings,
    missing_runs,
    page,
    paired_differences,
    read_results,
    read_tables,
    summarise_runs,
    to_markdown,
)
from fl_simulator.run.folder import CLIENTS, SUMMARY

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "experiments" / "results"
"""Committed tables and pictures."""
SIMULATIONS: Final = ROOT / "build" / "simulations"
"""Runs, where they were played here."""
COMPARED_BY: Final = ("accuracy_last_5", "mean of the last five evaluations")
"""The column by which methods are compared, and what it is: less noisy than one round."""
_MOMENTS: Final = {
    "accuracy": "at the end",
    "accuracy_last_5": "mean of the last five evaluations",
    "best_accuracy": "best evaluation",
}
_METHODS: Final = ["setting", "method"]
_PIXELS: Final = {"unit": "in [0, 1]", "standardised": "standardised"}


@dataclass(frozen=True, slots=True)
class Played:
    """What is there of an experiment's runs.

    Attributes:
        experiment: What was planned.
        rounds: All rounds of finished runs, columns as of ``read_results``.
        summary: A row for each finished run, of ``summarise_runs``.
        runs: The folder of the runs' folders.
        kept: Where committed tables and pictures lie.
    """

    experiment: Experiment
    rounds: pd.DataFrame
    summary: pd.DataFrame
    runs: Path
    kept: Path


def read_played(experiment: Experiment, runs: Path, kept: Path) -> Played:
    """The experiment's finished runs.

    Raises:
        ResultsError: A file is damaged.
    """
    rounds = read_finished(runs, experiment)
    return Played(experiment, rounds, summarise_runs(rounds), runs, kept)


def read_finished(folder: Path, experiment: Experiment) -> pd.DataFrame:
    """All rounds of finished runs, columns as of ``read_results``; says on stderr how many runs are missing.

    Raises:
        ResultsError: A file is damaged.
    """
    rounds = read_results(folder, experiment)
    if rounds.empty:
        return rounds
    if missing := missing_runs(experiment, folder):
        told = f"{experiment.name}: {len(missing)} of {len(experiment.runs)} runs are not finished: {missing[0]} …"
        print(told, file=sys.stderr)
    return rounds[rounds.finished]


def keep_results(rounds: pd.DataFrame, summary: pd.DataFrame, folder: Path) -> None:
    """Write ``summary.csv`` and thinned curves over those that are committed; pictures of an earlier time go.

    Raises:
        SystemExit: More runs are committed than were played here, and would be lost.
    """
    refuse_fewer(summary, folder)
    keep_tables(rounds, summary, folder)


def refuse_fewer(summary: pd.DataFrame, folder: Path) -> None:
    """Before ``summary.csv`` is written over.

    Raises:
        SystemExit: More runs are committed than were played here, and would be lost.
    """
    kept = folder / "summary.csv"
    if kept.exists() and (count := len(pd.read_csv(kept))) > len(summary):
        sys.exit(f"{kept} has {count} runs, and {len(summary)} are here: play the others first, or remove the file")


def read_clients(folder: Path, experiment: Experiment) -> pd.DataFrame:
    """Accuracy and loss of every client at the end of every finished run; columns as above, then those of clients.csv.

    Raises:
        ResultsError: A file is damaged.
    """
    return read_tables(folder, CLIENTS, experiment)


def read_run_facts(folder: Path, experiment: Experiment) -> pd.DataFrame:
    """What is known of each finished run beside its rounds, by ``RUN``.

    Returns:
        ``nodes`` (clients that were evaluated) and ``node_std`` (their accuracies' standard deviation) at the end,
        ``gini`` of their label counts, ``edges_per_node`` of a graph, how ``pixels`` are scaled, and costs beside the
        formulas of [DAG-ACFL].
    """
    facts = {}
    for run in experiment.runs:
        file = folder / run.label.folder_name / SUMMARY
        if file.exists():
            label = run.label
            told = json.loads(file.read_text("utf-8"))
            numbers = {name: told[name] for name in ("gini", "edges_per_node") if name in told}
            key = (label.setting, label.participation, label.method, label.seed)
            facts[key] = {"pixels": run.scenario.data.pixels, **numbers, **told.get("costs", {})}
    clients = read_clients(folder, experiment).groupby(list(RUN)).accuracy
    spread = clients.agg(nodes="size", node_std=lambda each: each.std(ddof=0))
    frame = pd.DataFrame.from_dict(facts, orient="index").rename_axis(list(RUN))
    return spread.join(frame, how="right")


def read_graph_facts(played: Played) -> pd.DataFrame:
    """``read_run_facts``, and ``messages_per_node`` that a round took in the mean."""
    messages = played.rounds.groupby(list(RUN)).messages.mean().rename("messages_per_node")
    return read_run_facts(played.runs, played.experiment).join(messages)


def whole_settings(summary: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """The runs of settings of which none is missing: the best of some methods is not the best."""
    planned = Counter(run.label.setting for run in experiment.runs)
    played = summary.groupby("setting").size()
    return summary[summary.setting.map(lambda each: played[each] == planned[each])]


def read_reported(folder: Path, name: str) -> pd.DataFrame:
    """Numbers as a paper reports them: ``folder/reported/<name>.csv``, a dash where it has none."""
    return pd.read_csv(folder / "reported" / f"{name}.csv", comment="#", na_values="-")


def seconds_but_tests(summary: pd.DataFrame) -> pd.Series:
    """What each run took, of all kinds of work but evaluation."""
    return summary.filter(like="seconds_").drop(columns="seconds_evaluation").sum(axis="columns")


def describe_runs(summary: pd.DataFrame, what: str = "Test accuracy") -> str:
    """What a table of accuracies is made of: after how many rounds, how pixels are scaled, which seeds.

    In virtual time, where no method has to have rounds, ``rounds`` counts evaluations.
    """
    rounds = ", ".join(f"{each:,}" for each in sorted(summary.rounds.unique()))
    unit = "evaluations" if "results" in summary else "rounds"
    return f"{what} after {rounds} {unit}, {describe_inputs(summary)}: mean ± standard deviation over seeds (how many)."


def describe_inputs(summary: pd.DataFrame) -> str:
    """How pixels are scaled, and which seeds: ``pixels in [0, 1], seeds 0, 1, 2``."""
    pixels = ", ".join(_PIXELS.get(each, each) for each in summary.pixels.unique())
    return f"pixels {pixels}, {describe_seeds(summary)}"


def describe_seeds(runs: pd.DataFrame) -> str:
    """``seeds 0, 1, 2``."""
    return f"seeds {', '.join(str(each) for each in sorted(runs.seed.unique()))}"


def difference_table(summary: pd.DataFrame, other: str, what: tuple[str, str] = COMPARED_BY) -> list[str]:
    """Paragraphs: how far each method is from another one, seed by seed; none where no method has two seeds.

    Args:
        summary: Of ``summarise_runs``.
        other: The method that all are compared with.
        what: A column and what it is.
    """
    if summary.seed.nunique() < 2:
        return []
    column, words = what
    methods = [method for method in summary.method.unique() if method != other]
    differences = paired_differences(summary, dict.fromkeys(methods, other), column=column).drop(columns="against")
    return [
        f"**Differences from {other}** on the same seeds, {words}: mean, its 95 % confidence interval, how many.",
        to_markdown(differences),
    ]


def moments_table(summary: pd.DataFrame, *, beside: str = "accuracy") -> list[str]:
    """Paragraphs: accuracy at other moments than the one that a table is of, so that no order hangs on that one alone.

    Args:
        summary: Of ``summarise_runs``.
        beside: The column that the other table shows.
    """
    shown = {name: words for name, words in _MOMENTS.items() if name != beside and name in summary}
    table = methods_by_settings(summary, lambda *key: " / ".join(f"{key[-1][name].mean():.4f}" for name in shown))
    return [f"**At other moments**: {' / '.join(shown.values())}, means over seeds.", to_markdown(table)]


def node_table(summary: pd.DataFrame) -> list[str]:
    """Paragraphs: how far nodes of a seed are apart at the end, and the least and the most accurate of all seeds."""
    spread = {"std": ("node_std", "mean"), "least": ("worst_client", "min"), "greatest": ("best_client", "max")}
    return [
        "**Nodes.** Accuracy after the last round: standard deviation within a seed, least and greatest of all seeds.",
        to_markdown(summary.groupby(_METHODS, sort=False).agg(**spread).reset_index(), digits=4),
    ]


def graph_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Edges of a node, messages that it sends in a round, Gini index of label counts; by setting and method."""
    columns = {"edges": "edges_per_node", "messages": "messages_per_node", "gini": "gini"}
    means = summary.groupby(_METHODS, sort=False)[list(columns.values())].mean()
    return means.set_axis(list(columns), axis="columns")


def update_reports(
    folder: str, names: Sequence[str], *, refresh: Callable[[Played], None], tables: Callable[[Path], Sequence[str]]
) -> None:
    """What a paper's report script does, for all its experiments or those that the command line names.

    Args:
        folder: Of the experiments' files, and of their results.
        names: Experiments.
        refresh: Writes tables and pictures of the runs that are there.
        tables: Paragraphs of Markdown, made of the committed tables in a folder alone; they become ``report.md``.

    Raises:
        SystemExit: The command line names something else.
    """
    asked = sys.argv[1:] or names
    if unknown := [name for name in asked if name not in names]:
        sys.exit(f"no experiment {', '.join(unknown)}; there are {', '.join(names)}")
    for name in asked:
        kept = RESULTS / folder / name
        experiment = read_experiment(ROOT / "experiments" / folder / f"{name}.toml")
        played = read_played(experiment, SIMULATIONS / folder / name, kept)
        if not played.summary.empty:
            refresh(played)
        if (kept / "summary.csv").exists():
            (kept / "report.md").write_text(page(tables(kept)), "utf-8")
