"""The demo over three seeds: what clustering without a coordinator gains over learning alone and over FedAvg.

Each seed is one run of ``dag-acfl demo`` as a user starts it: a server and 16 clients, each a process, over HTTP.
All three methods get the same data and the same number of local epochs. The gains are of the means over clients
and seeds. Writes ``benchmarks/results/demo.json``.

    python -m benchmarks.demo_seeds
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import Ratio, Result, arguments

SEEDS = (0, 1, 2)


def main() -> None:
    options = arguments("The demo over three seeds.").parse_args()
    result = Result("demo", "16 clients, 4 clusters: accuracy on each client's own test set", options.date)
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(seed, Path(folder) / str(seed)) for seed in SEEDS]
    means = {name: [accuracy(each, name) for each in runs] for name in ("local-only", "FedAvg", "DAG-ACFL")}
    ours = statistics.mean(means["DAG-ACFL"])
    for other, target in (("local-only", 0.08), ("FedAvg", 0.20)):
        gain = ours - statistics.mean(means[other])
        result.ratios.append(Ratio(f"accuracy gained over {other}", gain, target, "at least", "mean of 3 seeds"))
    exact = sum(each["clusters"]["exact"] for each in runs)
    result.ratios.append(Ratio("runs in which all 4 clusters are found", exact, len(SEEDS), "at least", "Louvain"))
    slowest = max(each["elapsed_s"] for each in runs)
    result.ratios.append(Ratio("slowest run, seconds", slowest, 60, "at most", "2 cores"))
    result.facts = {"seeds": list(SEEDS), "mean_accuracy": means, "runs": runs}
    result.write()


def run(seed: int, folder: Path) -> dict[str, Any]:
    """One demo; its summary."""
    command = [sys.executable, "-m", "dag_acfl", "demo", "--seed", str(seed), "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def accuracy(summary: dict[str, Any], name: str) -> float:
    """A method's mean over clients."""
    return float(next(method["mean"] for method in summary["methods"] if method["name"] == name))


if __name__ == "__main__":
    main()
