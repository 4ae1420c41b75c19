"""Every experiment, one after another, and its report.

Runs are kept in build/simulations: finished ones are not played again, an interrupted one goes on. Tables, thinned
curves and pictures of a paper's experiments are written into experiments/results/ by experiments/<paper>/report.py,
those of others into build/simulations/<name>/report.

    python -m experiments.run_all                           those that stand under "by default" below
    python -m experiments.run_all table_2_lr asynchronous   some of them, by the names of their files
    python -m experiments.run_all d_cliques                 a folder's, but for those at a paper's full size
    python -m experiments.run_all --report                  play none: reports of what there is

What is at a paper's full size needs a GPU, or nights, and is played only when it is named itself. ``privacy`` is not
among them: it needs Opacus, which the project's own environment has not; its module says how it is played.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fl_simulator.config.experiment import read_experiment
from fl_simulator.data.catalogue import DATA_SETS
from fl_simulator.data.fetch import is_available

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SIMULATIONS = Path("build/simulations")
"""From the project's root, where the command is started: reports name it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One experiment.

    Attributes:
        name: Of its file, without .toml.
        minutes: On two cores that do nothing else: of runs, or worked out from a few rounds of each method. None: at a
            paper's full size, a night or more without a GPU.
        is_default: Whether it is played when nothing is named.
        program: The module that plays it; empty: the file of its name, by ``dag-acfl simulate``.
        also: Further words for the module.
    """

    name: str
    minutes: int | None
    is_default: bool = True
    program: str = ""
    also: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The last part of the name, by which it is asked for."""
        return Path(self.name).name


PARTS = (
    Part("digits", 1),
    Part("graph_digits", 1),
    Part("clustered/shifts", 15, is_default=False),
    Part("clustered/other_data", 78, is_default=False),
    Part("clustered/untouched", 28, is_default=False),
    Part("clustered/conditions", 15, is_default=False),
    Part("clustered/few_samples", 15, is_default=False),
    Part("findings/candidates", 6),
    Part("findings/phase", 9, is_default=False),
    Part("findings/phase_anew", 3, is_default=False),
    Part("findings/freshness", 9, is_default=False),
    Part("findings/tips_or_newest", 25, is_default=False),
    Part("dag-acfl/asynchronous", 17),
    Part("dag-acfl/table_2_lr", 65, is_default=False),
    Part("dag-acfl/table_2_mlp_type_ii", 158, is_default=False),
    Part("dag-acfl/table_2_mlp_type_i", 158, is_default=False),
    Part("dag-acfl/all_images", 4),
    Part("dag-acfl/joining", 20, is_default=False),
    Part("dag-acfl/selectors", 24, is_default=False),
    Part("dag-acfl/scale", 20, is_default=False),
    Part("dag-acfl/cnn_mnist_scaled", 80, is_default=False),
    Part("dag-acfl/cnn_cifar_scaled", 196, is_default=False),
    Part("decdiff/table_2_mnist_small", 95, is_default=False),
    Part("decdiff/table_2_fashion_small", 162, is_default=False),
    Part("decdiff/learning_rate", 61, is_default=False),
    Part("decdiff/unit_pixels", 42, is_default=False),
    Part("decdiff/disruption", 47),
    Part("decdiff/virtual_teacher", 16, is_default=False),
    Part("decdiff/fashion_seconds", 6, is_default=False),
    Part("attacks/undisturbed", 5, is_default=False),
    Part("attacks/one_in_nine", 4, is_default=False),
    Part("attacks/a_fifth", 3, is_default=False),
    Part("attacks/two_fifths", 4, is_default=False),
    Part("attacks/plain_means", 3, is_default=False),
    Part("attacks/skewed", 1, is_default=False),
    Part("attacks/small_clusters", 2, is_default=False),
    Part("attacks/refusing", 2, is_default=False),
    Part("attacks/quarantine", 2, is_default=False),
    Part("attacks/trim_share", 10, is_default=False),
    Part("attacks/as_its_paper", 2, is_default=False),
    Part("attacks/peers", 2, is_default=False),
    Part("attacks/mnist", 8, is_default=False),
    Part("attacks/over_http", 11, is_default=False, program="experiments.attacks.over_http"),
    Part("step_coding/lr_mlp", 12, is_default=False),
    Part("step_coding/cnn", 16, is_default=False),
    Part("uncoordinated_initialisation/numerical", 5, program="experiments.uncoordinated_initialisation.numerical"),
    Part("uncoordinated_initialisation/plateau_small", 24),
    Part("uncoordinated_initialisation/plateau_barabasi_albert_small", 23, is_default=False),
    Part("uncoordinated_initialisation/plateau_adamw", 11),
    Part("uncoordinated_initialisation/links", 24),
    Part("uncoordinated_initialisation/nodes_up", 29),
    Part("uncoordinated_initialisation/estimates", 22),
    Part("uncoordinated_initialisation/changes", 21),
    Part("uncoordinated_initialisation/degrees", 23, is_default=False),
    Part("uncoordinated_initialisation/samples", 27, is_default=False),
    Part("uncoordinated_initialisation/nodes", 20, is_default=False),
    Part("uncoordinated_initialisation/epochs", 17, is_default=False),
    Part("uncoordinated_initialisation/total_data", 18, is_default=False),
    Part("d_cliques/mnist_100", 8),
    Part("d_cliques/mnist_1000", 17, is_default=False),
    Part("d_cliques/interclique", 21, is_default=False),
    Part("d_cliques/topologies", 10, is_default=False),
    Part("d_cliques/cliques_removed", 10, is_default=False),
    Part("d_cliques/iid", 9, is_default=False),
    Part("d_cliques/momentum", 7, is_default=False),
    Part("d_cliques/pixels", 8, is_default=False),
    Part("d_cliques/first_models", 14, is_default=False),
    Part("d_cliques/cifar10_100_small", 80, is_default=False),
    Part("contribution", 1, program="experiments.contribution"),
    Part("independent_initialisation", 5, program="experiments.independent_initialisation"),
    Part(
        "independent_initialisation_mnist",
        25,
        is_default=False,
        program="experiments.independent_initialisation",
        also=("independent_initialisation_mnist",),
    ),
    Part("dag-acfl/table_2_mnist_cnn", None, is_default=False),
    Part("dag-acfl/table_2_cifar_cnn", None, is_default=False),
    Part("decdiff/table_2_mnist", None, is_default=False),
    Part("decdiff/table_2_fashion", None, is_default=False),
    Part("decdiff/table_2_emnist", None, is_default=False),
    Part("uncoordinated_initialisation/plateau_complete", None, is_default=False),
    Part("uncoordinated_initialisation/plateau_barabasi_albert", None, is_default=False),
    Part("d_cliques/cifar10_100", None, is_default=False),
)
BY_NAME = {part.short: part for part in PARTS}
FOLDERS = sorted({Path(part.name).parts[0] for part in PARTS if "/" in part.name})


def fetch(parts: Sequence[Part]) -> None:
    """Have the data sets that these experiments name; those that are here are not fetched again."""
    files = [ROOT / file_of(part) for part in parts]
    runs = [run for file in files if file.exists() for run in read_experiment(file).runs]
    for name in sorted({run.scenario.data.name for run in runs} & DATA_SETS.keys()):
        if not is_available(name):
            subprocess.run([sys.executable, "-m", "dag_acfl", "data", "fetch", name], cwd=ROOT, check=True)


def play(part: Part, *, jobs: list[str]) -> bool:
    """Run what is missing of one experiment; False when a run failed. A program plays all of its own again."""
    if part.program:
        command = ["-m", part.program, *part.also]
    else:
        command = ["-m", "dag_acfl", "simulate", str(file_of(part)), "--out", str(SIMULATIONS), *jobs]
    return subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode == 0


def report(part: Part) -> bool:
    """Write the part's tables and pictures; False when that failed.

    By its paper's report.py into experiments/results, or else what ``simulate --report`` makes, beside the runs. A
    program writes its own. Where there is no run, what is committed stays.
    """
    paper = Path(part.name).parts[0]
    if part.program:
        return True
    if (HERE / paper / "report.py").exists():
        command = ["-m", f"experiments.{paper}.report", part.short]
    else:
        command = ["-m", "dag_acfl", "simulate", str(file_of(part)), "--out", str(SIMULATIONS), "--report"]
    return subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode == 0


def file_of(part: Part) -> Path:
    """The experiment's file, from the project's root."""
    return Path("experiments") / f"{part.name}.toml"


def chosen(names: Sequence[str], *, only_reports: bool) -> list[Part]:
    """What these names ask for, in the order of ``PARTS``.

    Args:
        names: Of experiments and folders; none: the default ones.
        only_reports: Nothing is played, so that none takes long: without names, all.

    Raises:
        KeyError: No experiment and no folder has this name.
    """
    if not names:
        return [part for part in PARTS if only_reports or part.is_default]
    found = set()
    for name in names:
        if name in FOLDERS:
            found |= {each for each in PARTS if each.name.startswith(f"{name}/") and each.minutes is not None}
        else:
            found.add(BY_NAME[name])
    return [part for part in PARTS if part in found]


def listing() -> str:
    """All experiments with how long each takes."""

    def line(part: Part) -> str:
        return f"  {part.short}" if part.minutes is None else f"  {part.short:<34}{part.minutes:>5} min"

    default = [part for part in PARTS if part.is_default]
    longer = [part for part in PARTS if part.minutes is not None and not part.is_default]
    full_size = [part for part in PARTS if part.minutes is None]
    hours = sum(part.minutes or 0 for part in default) / 60
    groups = {
        f"By default, some {hours:.1f} hours in all on two cores": default,
        "Only when they or their folder are named": longer,
        "At a paper's full size, for a GPU, only when they themselves are named": full_size,
    }
    blocks = [f"{head}:\n" + "\n".join(map(line, parts)) for head, parts in groups.items()]
    return "\n\n".join([*blocks, f"Folders: {', '.join(FOLDERS)}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=listing(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which, or a folder of them; see below")
    parser.add_argument("--report", action="store_true", help="play none")
    parser.add_argument("--jobs", type=int, help="runs at a time")
    options = parser.parse_args()
    try:
        parts = chosen(options.names, only_reports=options.report)
    except KeyError as error:
        parser.error(f"no experiment {error}; there are {', '.join([*BY_NAME, *FOLDERS])}")
    if not options.report:
        fetch(parts)
    failed: list[str] = []
    jobs = ["--jobs", str(options.jobs)] if options.jobs else []
    for part in parts:
        played = options.report or play(part, jobs=jobs)
        if not report(part) or not played:
            failed.append(part.name)
    if failed:
        sys.exit(f"error: {', '.join(failed)} failed, see above; the same command goes on")


if __name__ == "__main__":
    main()
