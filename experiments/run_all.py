"""Every experiment, one after another, and its report into experiments/results/.

Runs are kept in build/simulations: finished ones are not played again, an interrupted one goes on. Of an experiment's
pictures those are kept here that ``KEPT`` names; ``dag-acfl simulate FILE --report`` draws them all.

    python -m experiments.run_all                        all but those at a paper's full size: a night on two cores
    python -m experiments.run_all table_2 asynchronous   some of them, by the names of their files
    python -m experiments.run_all --report               play none: reports of what there is
"""

import argparse
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SIMULATIONS = Path("build/simulations")
"""From the project's root, where the command is started: reports name it."""
RESULTS = HERE / "results"

EXPERIMENTS = (
    "digits",
    "asynchronous",
    "dag-acfl/table_2",
    "dag-acfl/all_images",
    "dag-acfl/joining",
    "dag-acfl/selectors",
    "dag-acfl/scale",
    "decdiff/table_2_mnist_small",
    "decdiff/table_2_fashion_small",
    "decdiff/disruption",
    "uncoordinated_initialisation/plateau_small",
    "uncoordinated_initialisation/plateau_barabasi_albert_small",
    "uncoordinated_initialisation/plateau_adamw",
    "uncoordinated_initialisation/links",
    "uncoordinated_initialisation/nodes_up",
    "uncoordinated_initialisation/estimates",
    "uncoordinated_initialisation/estimates_exponent",
    "uncoordinated_initialisation/changes",
    "uncoordinated_initialisation/degrees",
    "uncoordinated_initialisation/samples",
    "uncoordinated_initialisation/nodes",
    "uncoordinated_initialisation/epochs",
    "d_cliques/mnist_100",
    "d_cliques/mnist_1000",
    "d_cliques/interclique",
    "d_cliques/topologies",
    "d_cliques/cliques_removed",
    "d_cliques/iid",
)
FULL_SIZE = (
    "dag-acfl/table_2_mnist_cnn",
    "dag-acfl/table_2_cifar_cnn",
    "decdiff/table_2_mnist",
    "decdiff/table_2_fashion",
    "decdiff/table_2_emnist",
    "uncoordinated_initialisation/plateau_complete",
    "uncoordinated_initialisation/plateau_barabasi_albert",
)
"""A night or more each without a GPU: only when they are named."""

KEPT = {
    "dag-acfl/table_2": ("mnist-type-ii-mlp-0.5-*.png", "mnist-type-ii-lr-labels.png"),
    "asynchronous": ("*curves*.png", "*worst*.png"),
    "dag-acfl/joining": ("*curves.png", "*communities.png"),
    "decdiff/table_2_mnist_small": ("*nodes.png", "*node-curves.png", "*labels.png"),
    "decdiff/table_2_fashion_small": ("*nodes.png", "*node-curves.png"),
    "decdiff/disruption": ("*node-curves.png",),
    **{
        f"uncoordinated_initialisation/{name}": ("*trajectories.png", "*collapse.png")
        for name in (
            "plateau_small",
            "plateau_barabasi_albert_small",
            "plateau_complete",
            "plateau_barabasi_albert",
            "plateau_adamw",
            "links",
            "nodes_up",
            "estimates",
            "estimates_exponent",
            "degrees",
            "samples",
            "nodes",
            "epochs",
        )
    },
    "uncoordinated_initialisation/changes": ("*deviations.png", "*changes.png"),
    **{
        f"d_cliques/{name}": ("*node-curves.png",)
        for name in ("mnist_100", "mnist_1000", "interclique", "topologies", "cliques_removed", "iid")
    },
}


def play(name: str, *, simulations: Path, jobs: list[str]) -> bool:
    """Run what is missing of one experiment; False when a run failed."""
    command = ["simulate", str(file_of(name)), "--out", str(simulations), *jobs]
    return subprocess.run([sys.executable, "-m", "dag_acfl", *command], cwd=ROOT, check=False).returncode == 0


def keep_report(name: str, *, simulations: Path) -> None:
    """The report of what there is, and its pictures."""
    command = ["simulate", str(file_of(name)), "--out", str(simulations), "--report"]
    subprocess.run([sys.executable, "-m", "dag_acfl", *command], cwd=ROOT, check=True)
    made = ROOT / simulations / tomllib.loads((ROOT / file_of(name)).read_text("utf-8"))["name"] / "report"
    if not made.is_dir():
        return
    target = RESULTS / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for pattern in ("report.md", "report.json", *KEPT.get(name, ())):
        for file in sorted(made.glob(pattern)):
            shutil.copy(file, target / file.name)


def file_of(name: str) -> Path:
    """The experiment's file, from the project's root."""
    return Path("experiments") / f"{name}.toml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {Path(name).name: name for name in (*EXPERIMENTS, *FULL_SIZE)}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)}")
    parser.add_argument("--report", action="store_true", help="play none")
    parser.add_argument("--simulations", type=Path, default=SIMULATIONS, help="where runs are kept")
    parser.add_argument("--jobs", type=int, help="runs at a time")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - known.keys()):
        parser.error(f"no experiment {unknown[0]!r}; there are {', '.join(known)}")
    failed: list[str] = []
    jobs = ["--jobs", str(options.jobs)] if options.jobs else []
    for name in [known[each] for each in options.names] or EXPERIMENTS:
        if not options.report and not play(name, simulations=options.simulations, jobs=jobs):
            failed.append(name)
        keep_report(name, simulations=options.simulations)
    if failed:
        sys.exit(f"error: runs of {', '.join(failed)} failed; the same command goes on")


if __name__ == "__main__":
    main()
