"""A Flower app of 90 clients in Flower's own simulation, and in ``dag-acfl simulate --flower-app``: accuracy and time.

The app is ``benchmarks/flower_digits``: clients of two kinds whose labels contradict. A time is that of a whole
command; the commands take turns. Writes ``benchmarks/results/flower_app.json``. Flower is needed beside the project:

    pip install 'flwr[simulation]'
    python benchmarks/flower_app.py
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import harness

APP = harness.HERE / "flower_digits"
ROUNDS = 10


def play_in_flower(clients: int) -> None:
    """FedAvg's rounds by ``run_simulation``; the app prints its accuracies."""
    sys.path.insert(0, str(APP))
    from digits_app.client_app import app as client_app
    from digits_app.server_app import app as of_app
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    server_app = ServerApp()

    @server_app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        # What `flwr run` reads from the app's pyproject.toml.
        context.run_config.update({"num-server-rounds": ROUNDS, "local-epochs": 2, "lr": 0.1})
        of_app(grid, context)

    backend = {"init_args": {"include_dashboard": False}, "client_resources": {"num_cpus": 1}}
    run_simulation(server_app, client_app, clients, backend_config=backend)


def in_flower(clients: int) -> float:
    command = [sys.executable, __file__, "--in-flower", "--clients", str(clients)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if "accuracies" in line)
    return float(json.loads(line.partition("accuracies")[2])[-1])


def simulated(clients: int, method: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dag_acfl", "simulate", "--flower-app", str(APP), "--sites", str(clients)]
        more = ["--set", f"run.rounds={ROUNDS}", "--only", f"*{method}*", "--jobs", "1", "--out", folder]
        subprocess.run([*command, *more], capture_output=True, check=True, cwd=folder)
        (file,) = Path(folder).rglob("rounds.csv")
        with file.open() as rows:
            return float(list(csv.DictReader(rows))[-1]["accuracy"])


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=90)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--in-flower", action="store_true", help="play Flower's side in this process, measure nothing")
    options = parser.parse_args()
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(harness.ROOT), os.environ.get("PYTHONPATH", "")])
    if options.in_flower:
        play_in_flower(options.clients)
        return
    result = harness.Result(
        "flower_app", "A Flower app in Flower's simulation and in simulate --flower-app", options.date
    )
    spent: dict[str, list[float]] = {}
    found: dict[str, list[float]] = {}
    plays: dict[str, Callable[[], float]] = {
        "FedAvg, Flower's simulation": lambda: in_flower(options.clients),
        "FedAvg, simulate --flower-app": lambda: simulated(options.clients, "fedavg"),
        "DAG-ACFL, simulate --flower-app": lambda: simulated(options.clients, "dag-acfl"),
    }
    for _ in range(options.repeats):
        for name, play in plays.items():
            started = time.monotonic()
            found.setdefault(name, []).append(play())
            spent.setdefault(name, []).append(time.monotonic() - started)
            print(name, found[name][-1], round(spent[name][-1], 1), flush=True)
    result.timings = {name: harness.Timing(tuple(all_s)) for name, all_s in spent.items()}
    result.facts = {"clients": options.clients, "rounds": ROUNDS, "accuracy": found}
    of_flower, of_ours, _ = result.timings.values()
    basis = f"medians of {options.repeats} whole commands, {options.clients} clients, {ROUNDS} rounds, two kinds"
    result.ratios = [
        harness.Ratio("FedAvg: Flower / simulate", of_flower.median_s / of_ours.median_s, 1, "at least", basis)
    ]
    result.write()


if __name__ == "__main__":
    main()
