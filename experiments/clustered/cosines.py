"""How far apart clusters are before any rule has cut: cosines of clients' first updates, within clusters and between.

A client's first update is what E′ epochs make of the run's first model: near what its first selections compare.
"""

import numpy as np
import pandas as pd

from fl_core.types import Matrix32
from fl_simulator.config.experiment import Experiment
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
    """One population's figures: the signal of its clusters in units of its noise, and what it is made of.

    Returns:
        ``within``, ``between``: mean cosines over pairs of clients of one cluster, and of two; ``within_sd``: standard
        deviation over the pairs of one cluster; ``separation``: (within - between) / within_sd.
    """
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


def separations(experiment: Experiment) -> pd.DataFrame:
    """The figures of each setting and seed, a row for each, and how many clients and clusters; needs no run."""
    planned = {(run.label.setting, run.label.seed): run.scenario for run in experiment.runs}
    rows = []
    for (setting, seed), scenario in planned.items():
        world = build_world(scenario)
        clusters = world.population.clusters
        counts = {"clients": world.num_clients, "clusters": len(np.unique(clusters))}
        rows.append({"setting": setting, "seed": seed, **counts, **separation(first_updates(world), clusters)})
        world.close()
    return pd.DataFrame(rows).round(4)
