"""How many updates of honest clients any rule of a ledger has refused, in every experiment.

    python -m experiments.refusals

Counted are the runs that were played here, in ``build/simulations``, and else what is committed in
``experiments/results``. A line for each experiment that tells of refusals; then those of which nothing is told: methods
without a ledger, runs from before refusals were counted, and what was never played.
"""

import pandas as pd

from experiments.reporting import RESULTS, SIMULATIONS
from experiments.run_all import PARTS
from fl_simulator.config.experiment import read_experiment
from fl_simulator.report import read_results, summarise_runs

OVER_HTTP = RESULTS / "attacks" / "over_http" / "summary.csv"
COLUMN = "updates_refused"


def refused_in(name: str) -> list[int]:
    """Of each run of an experiment that tells, how many honest updates were refused."""
    file = RESULTS.parent / f"{name}.toml"
    played = (
        summarise_runs(read_results(SIMULATIONS / name, read_experiment(file))) if file.exists() else pd.DataFrame()
    )
    counts = played.get(COLUMN, pd.Series(dtype=float)).dropna().astype(int).tolist()
    committed = RESULTS / name / "summary.csv"
    if not counts and committed.exists():
        counts = pd.read_csv(committed).get(COLUMN, pd.Series(dtype=float)).dropna().astype(int).tolist()
    return counts


def main() -> None:
    told = {part.name: counts for part in PARTS if (counts := refused_in(part.name))}
    told["attacks/over_http"] = pd.read_csv(OVER_HTTP)["honest publications refused"].tolist()
    for name, counts in told.items():
        print(f"{name:<34}{len(counts):>5} runs{sum(counts):>7} honest updates refused")
    print(f"{'in all':<34}{sum(map(len, told.values())):>5} runs{sum(map(sum, told.values())):>7}")
    print(f"not told: {', '.join(part.name for part in PARTS if part.name not in told)}")


if __name__ == "__main__":
    main()
