"""How honest clients do under attack, and beside what they would do if everybody knew its true cluster."""

import numpy as np

from fl_simulator.attacks.attack import Attack
from fl_simulator.engine.evaluation import Interval
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import average
from fl_simulator.strategies.protocol import Figures, Reporting


def judge_attack(interval: Interval, attack: Attack) -> Figures:
    """Accuracy and backdoor success of the honest clients in attacked clusters, in an evaluated interval.

    Returns:
        Columns of ``RoundRecord``; None where no such client was evaluated, or no sample is triggered.
    """
    assert interval.evaluation is not None
    hit = np.isin(interval.evaluated, attack.attacked)
    judged = hit & (interval.evaluation.count > 0)
    backdoors = interval.backdoors
    triggered = 0 if backdoors is None else int(backdoors.count[hit].sum())
    return {
        "attacked": float(interval.evaluation.accuracy[judged].mean()) if judged.any() else None,
        "backdoor": float(backdoors.correct[hit].sum() / triggered) if backdoors is not None and triggered else None,
    }


def accuracy_of_cluster_means(world: World, strategy: Reporting, evaluated: Clients) -> float | None:
    """The mean accuracy of these clients if each had the FedAvg of its true cluster's newest honest models.

    Only of a method with a ledger, whose models these are, and only once every evaluated client has published.
    """
    servers, clusters = strategy.ledger, world.population.clusters
    newest = [] if servers is None else [servers.newest(client) for client in evaluated.tolist()]
    models = [model for model in newest if model is not None]
    if not models or len(models) < len(newest):
        return None
    found = np.unique(clusters[evaluated])
    means = []
    for cluster in found:
        members = clusters[evaluated] == cluster
        means.append(average(world, np.stack(models)[members], evaluated[members]))
    judged = world.evaluate(np.stack(means), np.searchsorted(found, clusters[evaluated]), evaluated)
    return float(judged.accuracy[judged.count > 0].mean())
