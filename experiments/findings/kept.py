"""What is kept of each run that two of the questions are told by."""

from typing import Final

import pandas as pd

from experiments.reporting import Played, keep_results, read_run_facts
from fl_simulator.report import RUN

KEPT: Final = (
    *("experiment", *RUN, "rounds", "accuracy", "accuracy_last_5", "best_accuracy", "worst_decile", "adjusted_rand"),
    "averaged",
    "cross_cluster_rate",
)
OVER_ALL_ROUNDS: Final = {"averaged", "cross_cluster_rate"}
"""Columns that are a mean over the run: of one round's few selections they say little."""


def keep(played: Played) -> pd.DataFrame:
    """Write ``summary.csv`` and ``curves.csv``; returns all columns of the former, and more."""
    kept = [each for each in KEPT if each in played.summary]
    summary = played.summary.set_index(list(RUN))
    for each in OVER_ALL_ROUNDS & set(kept):
        summary[each] = played.rounds.groupby(list(RUN))[each].mean()
    summary = summary.reset_index()
    facts = read_run_facts(played.runs, played.experiment)[["pixels"]]
    keep_results(played.rounds, summary[kept].join(facts, on=list(RUN)), played.kept)
    return summary
