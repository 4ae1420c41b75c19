"""All benchmarks of the Speed table, one after another, and one row per target.

Each program runs in a process of its own and writes its file under ``benchmarks/results/``; this one reads the ratios
back and prints them. The exit status is 0 whether targets are met or not (a slow machine is no fault of the program),
and 1 when a program failed.

    python benchmarks/run_all.py
    python benchmarks/run_all.py --only publish fetch
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import harness

PROGRAMS = (
    "aggregation",
    "robust_aggregation",
    "selection",
    "change_points",
    "ledger_age",
    "fetch",
    "publish",
    "publish_at_once",
    "publish_throughput",
    "memory",
    "service_round",
    "reconciliation",
    "gossip",
    "bucket",
    "tip_pile",
    "prune",
    "archive",
    "trust_report",
    "defences",
    "simulator_training",
    "simulator_round",
    "graphs",
    "step_coding",
    "steady_state",
)
TAKES_FOLDER = frozenset(PROGRAMS) - {
    "aggregation",
    "robust_aggregation",
    "change_points",
    "reconciliation",
    "simulator_training",
    "simulator_round",
    "graphs",
    "step_coding",
    "steady_state",
}
TIMEOUT_S = 900


def run(name: str, *, date: str, folder: Path) -> bool:
    """Run one program; False when it failed."""
    command = [sys.executable, str(harness.HERE / f"{name}.py"), "--date", date]
    if name in TAKES_FOLDER:
        command += ["--folder", str(folder)]
    print(f"\n== {name}", flush=True)
    try:
        return subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"{name}: no end after {TIMEOUT_S} s", file=sys.stderr)
        return False


def rows(name: str) -> list[tuple[str, str, str, str, str]]:
    """Benchmark, ratio, figure, target, met: of a result that was written."""
    document = json.loads((harness.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return [
        (
            name,
            ratio["name"],
            f"{ratio['value']:.2f}",
            f"{ratio['direction']} {ratio['target']:g}",
            "met" if ratio["is_met"] else "NOT MET",
        )
        for ratio in document["ratios"]
    ]


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where databases go")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=PROGRAMS)
    options = parser.parse_args()
    failed = [name for name in options.only if not run(name, date=options.date, folder=options.folder)]
    print()
    table = [row for name in options.only if name not in failed for row in rows(name)]
    harness.print_table(("benchmark", "what", "figure", "target", "outcome"), table)
    print("\nload average, 1 / 5 / 15 min:", *harness.load()["load_average"])
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
