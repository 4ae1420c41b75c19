"""How well a method found the true clusters: from approvals in a ledger, from groups that it names, from selections.

The definitions are ``fl_core.clusters``'; here they are put together for a round of a simulation, where clients are
numbers. True clusters serve to judge, never to decide. Figures have the names of ``RoundRecord``'s columns.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fl_core.clusters import (
    Approvals,
    Partition,
    adjusted_rand_index,
    as_partition,
    find_clusters,
    mean_satisfaction,
    misclassified,
    modularity,
    purity,
)
from fl_core.types import AuthorId
from fl_simulator.strategies.protocol import Choice, Figures


def judge_approvals(approvals: Approvals, truth: Mapping[AuthorId, int], *, seed: int = 0) -> Figures:
    """Louvain's communities of the approval graph, as in [DAG-ACFL Sec. IV-C], and its modularity."""
    partition = find_clusters(approvals, seed=seed)
    return {**_judge(partition, truth), "modularity": modularity(approvals, partition)}


def judge_groups(groups: NDArray[np.int64], truth: NDArray[np.int64]) -> Figures:
    """The groups that a method names (``Strategy.groups``); nothing when no client has one.

    Args:
        groups: Each client's group, shape ``(C,)``; clients without one (-1) are left out.
        truth: Each client's true cluster, shape ``(C,)``.
    """
    named = {AuthorId(str(client)): int(groups[client]) for client in np.flatnonzero(groups >= 0)}
    if not named:
        return {}
    partition = as_partition([author for author in named if named[author] == group] for group in set(named.values()))
    return _judge(partition, {author: int(truth[int(author)]) for author in named})


def judge_selections(choices: Iterable[Choice], truth: NDArray[np.int64]) -> Figures:
    """Satisfaction rate mr (Eq. 7, as ``fl_core.clusters.satisfaction_rate``), and how often a foreign model was taken.

    Returns:
        None for satisfaction where no client has one, and for the cross-cluster rate without selections.
    """
    rates: list[float | None] = []
    foreign: list[bool] = []
    for choice in choices:
        mates = truth[choice.taken] == truth[choice.client]
        offered = int(np.count_nonzero(truth[choice.offered] == truth[choice.client]))
        rates.append(int(np.count_nonzero(mates)) / offered if offered else None)
        foreign.append(not mates.all())
    return {
        "satisfaction": mean_satisfaction(rates),
        "satisfaction_min": min((rate for rate in rates if rate is not None), default=None),
        "cross_cluster_rate": sum(foreign) / len(foreign) if foreign else None,
    }


def _judge(partition: Partition, truth: Mapping[AuthorId, int]) -> Figures:
    return {
        "communities": len(partition),
        "purity": purity(partition, truth),
        "misclassified": misclassified(partition, truth),
        "adjusted_rand": adjusted_rand_index(partition, truth),
    }
