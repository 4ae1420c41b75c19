"""How far apart clusters are before any rule has cut: cosines of clients' first updates, within clusters and between.

    python -m experiments.clustered.cosines               # of phase.toml
    python -m experiments.clustered.cosines phase_anew

A client's first update is what E′ epochs make of the run's first model: near what its first selections compare. Of each
setting and seed a row of ``experiments/results/clustered/<experiment>/cosines.csv``:

* ``within``, ``between``: means over pairs of clients of one cluster, and of two;
* ``within_sd``: standard deviation over the pairs of one cluster;
* ``separation``: (within - between) / within_sd, the signal in units of its noise.
"""

import sys

import numpy as np
import pandas as pd

from experiments.clustered.report import HERE, PHASE, RESULTS
from fl_core.types import Matrix32
from fl_simulator.config.experiment import read_experiment
from fl_simulator.engine.world import World
from fl_simulator.run.prepare import build_world
from fl_simulator.strategies.clustered.clustering import cosines


def first_updates(world: World) -> Matrix32:
    """Each client's, shape ``(C, P)``."""
    first = world.initial_model()
    models = np.tile(first, (world.num_clients, 1))
    world.train(models, range(world.num_clients), round_index=0, epochs=world.training.initial_epochs)
    return models - first


def separation(updates: Matrix32, clusters: np.ndarray) -> dict[str, float]:
    """The figures above."""
    found = cosines(updates, updates)
    alike, pairs = clusters[:, None] == clusters, np.triu(np.ones_like(found, dtype=bool), k=1)
    within, between = found[alike & pairs], found[~alike & pairs]
    noise = float(within.std(ddof=1))
    difference = float(within.mean() - between.mean())
    return {
        "within": float(within.mean()),
        "between": float(between.mean()),
        "within_sd": noise,
        "separation": difference / noise,
    }


def main(name: str = PHASE) -> None:
    rows, done = [], set()
    for planned in read_experiment(HERE / f"{name}.toml").runs:
        key = (planned.label.setting, planned.label.seed)
        if key in done:
            continue
        done.add(key)
        world = build_world(planned.scenario)
        figures = separation(first_updates(world), world.population.clusters)
        rows.append({"setting": key[0], "seed": key[1], **figures})
        world.close()
    folder = RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).round(4).to_csv(folder / "cosines.csv", index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
