"""The demo over three seeds: what clustering without a coordinator gains over learning alone and over FedAvg.

Each seed is one run of ``dag-acfl demo`` as a user starts it: three servers and 16 clients, each a process, over HTTP;
and one with a single server, which says what it costs that a model is seen elsewhere a moment later.
All three methods get the same data and the same number of local epochs. The gains are of the means over clients
and seeds. Writes ``benchmarks/results/demo.json``.

    python benchmarks/demo_seeds.py
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import Ratio, Result, arguments

SEEDS = (0, 1, 2)
SERVERS = 3


def main() -> None:
    options = arguments("The demo over three seeds.").parse_args()
    result = Result("demo", "16 clients, 4 clusters: accuracy on each client's own test set", options.date)
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(seed, Path(folder) / str(seed), servers=SERVERS) for seed in SEEDS]
        alone = [run(seed, Path(folder) / f"{seed}-one", servers=1) for seed in SEEDS]
    means = {name: [accuracy(each, name) for each in runs] for name in ("local-only", "FedAvg", "DAG-ACFL")}
    means["DAG-ACFL, one server"] = [accuracy(each, "DAG-ACFL") for each in alone]
    ours = statistics.mean(means["DAG-ACFL"])
    for other, target in (("local-only", 0.08), ("FedAvg", 0.20)):
        gain = ours - statistics.mean(means[other])
        result.ratios.append(Ratio(f"accuracy gained over {other}", gain, target, "at least", "mean of 3 seeds"))
    exact = sum(each["clusters"]["exact"] for each in runs)
    result.ratios.append(Ratio("runs in which all 4 clusters are found", exact, len(SEEDS), "at least", "Louvain"))
    difference = ours - statistics.mean(means["DAG-ACFL, one server"])
    result.ratios.append(
        Ratio("accuracy gained over the same with one server", difference, -0.02, "at least", "mean of 3 seeds")
    )
    slowest = max(each["elapsed_s"] for each in runs)
    result.ratios.append(Ratio("slowest run, seconds", slowest, 60, "at most", "2 cores"))
    result.facts = {
        "seeds": list(SEEDS),
        "servers": SERVERS,
        "mean_accuracy": means,
        "runs": runs,
        "runs_with_one_server": alone,
    }
    result.write()


def run(seed: int, folder: Path, *, servers: int) -> dict[str, Any]:
    """One demo; its summary."""
    options = ["--seed", str(seed), "--servers", str(servers), "--port", "0", "--out", str(folder)]
    command = [sys.executable, "-m", "dag_acfl", "demo", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def accuracy(summary: dict[str, Any], name: str) -> float:
    """A method's mean over clients."""
    return float(next(method["mean"] for method in summary["methods"] if method["name"] == name))


if __name__ == "__main__":
    main()
