"""What experiments at their papers' full size would take on two cores, worked out from runs of the same models.

    python -m experiments.full_size

Seconds of an image that is trained or tested on are those of the smaller experiment's committed ``summary.csv`` (what
is aggregated and selected counts with training), of each method the fastest seed's, since other work only adds;
images are counted by the full file. Writes ``experiments/results/full_size.md``, which pages show, and says what it
leaves out: what needs data that are not here (nothing is written then), or was not played since summaries have seconds.
Full sizes of which no smaller experiment has the model are not in it.
"""

import sys
from pathlib import Path
from typing import Final

import pandas as pd

from experiments.reporting import RESULTS, seconds_but_tests
from fl_simulator.config.experiment import Experiment, read_experiment
from fl_simulator.data.catalogue import DATA_SETS
from fl_simulator.data.fetch import is_available
from fl_simulator.report import page, to_markdown
from fl_simulator.run.prepare import build_population

HERE = Path(__file__).resolve().parent
JOBS: Final = 2
"""Runs at a time, each on one core."""
SIBLINGS: Final = {
    "dag-acfl/table_2_mnist_cnn": "dag-acfl/cnn_mnist_scaled",
    "dag-acfl/table_2_cifar_cnn": "dag-acfl/cnn_cifar_scaled",
    "decdiff/table_2_mnist": "decdiff/table_2_mnist_small",
    "decdiff/table_2_fashion": "decdiff/fashion_seconds",
    "uncoordinated_initialisation/plateau_complete": "uncoordinated_initialisation/plateau_small",
    "uncoordinated_initialisation/plateau_barabasi_albert": (
        "uncoordinated_initialisation/plateau_barabasi_albert_small"
    ),
    "d_cliques/cifar10_100": "d_cliques/cifar10_100_small",
}
"""Each experiment at full size, and the one of the same model that was played."""


ONE_STEP: Final = ("d-sgd",)
"""Strategies whose round is one batch of every client, whatever epochs and steps say."""


def images(experiment: Experiment) -> tuple[float, float]:
    """Images that all runs train on, each as often as they do, and images that clients are tested on."""
    counts: dict[str, tuple[int, int, int]] = {}
    trained, tested = 0.0, 0.0
    for scenario in (planned.scenario for planned in experiment.runs):
        samples = repr((scenario.data, scenario.partition, scenario.run.seed))
        if samples not in counts:
            population = build_population(scenario)
            counts[samples] = population.num_clients, sum(map(len, population.train)), sum(map(len, population.test))
        clients, to_train_on, to_test_on = counts[samples]
        training, run = scenario.training, scenario.run
        steps = 1 if scenario.strategy.name in ONE_STEP else training.steps
        a_round = clients * steps * training.batch_size if steps else to_train_on * training.epochs
        trained += run.rounds * run.participation * a_round
        tested += run.rounds / run.evaluate_every * to_test_on
    return trained, tested


def costs() -> pd.DataFrame:
    """A row for each experiment whose sibling's seconds are known."""
    rows = []
    for name, sibling in SIBLINGS.items():
        full, small = (read_experiment(HERE / f"{each}.toml") for each in (name, sibling))
        data_sets = {planned.scenario.data.name for planned in (*full.runs, *small.runs)} & DATA_SETS.keys()
        if missing := [each for each in sorted(data_sets) if not is_available(each)]:
            sys.exit(
                f"{name} needs data that are not here: {', '.join(f'dag-acfl data fetch {each}' for each in missing)}"
            )
        summary = RESULTS / sibling / "summary.csv"
        played = pd.read_csv(summary) if summary.exists() else pd.DataFrame()
        if "seconds_evaluation" not in played or len(played) != len(small.runs):
            print(f"left out: {name}, for {sibling} was not played in full with seconds", file=sys.stderr)
            continue
        took = seconds_but_tests(played) + played.seconds_evaluation
        fastest = played.loc[took.groupby([played.setting, played.participation, played.method]).idxmin()]
        testing = fastest.seconds_evaluation.sum() * played.seed.nunique()
        training = seconds_but_tests(fastest).sum() * played.seed.nunique()
        (trained, tested), (small_trained, small_tested) = images(full), images(small)
        seconds = training * trained / small_trained + testing * tested / small_tested
        rows.append(
            {
                "experiment": name,
                "runs": f"{len(full.runs)}",
                "measured in": sibling,
                "ms an image trained on": 1e3 * training / small_trained,
                "ms an image tested on": 1e3 * testing / small_tested,
                "millions trained on": f"{trained / 1e6:,.0f}",
                "millions tested on": f"{tested / 1e6:,.0f}",
                "days on two cores": f"{seconds / JOBS / 86_400:.1f}",
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    (RESULTS / "full_size.md").write_text(page([to_markdown(costs())]), "utf-8")


if __name__ == "__main__":
    main()
