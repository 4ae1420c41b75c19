"""What is committed was played as its file says today, as far as the tables tell."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from experiments.reporting import RESULTS
from fl_simulator.config.experiment import read_experiment

KEYS = ("setting", "participation", "method", "seed", "rounds", "pixels")


def differs(results: Path) -> bool:
    """Whether the file asks for other runs than the table has, by what the table tells of each."""
    file = RESULTS.parent / f"{results.parent.relative_to(RESULTS)}.toml"
    if not file.exists():
        return False
    played = pd.read_csv(results)
    told = [each for each in KEYS if each in played]
    planned = [asdict(run.label) | {"pixels": run.scenario.data.pixels} for run in read_experiment(file).runs]
    return {tuple(each[key] for key in told) for each in planned} != set(
        played[told].itertuples(index=False, name=None)
    )


def test_results_are_of_the_runs_that_their_files_ask_for() -> None:
    assert [each.parent.relative_to(RESULTS).as_posix() for each in RESULTS.rglob("summary.csv") if differs(each)] == []
