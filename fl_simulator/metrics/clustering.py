"""How well a method found the true clusters: from approvals in a ledger, from groups that it names, from selections.

The definitions are ``fl_core.clusters``'; here they are put together for a round of a simulation, where clients are
numbers. True clusters serve to judge, never to decide.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.clusters import (
    Approvals,
    Partition,
    as_partition,
    find_clusters,
    mean_satisfaction,
    misclassified,
    modularity,
    purity,
)
from fl_core.types import AuthorId
from fl_simulator.strategies.protocol import Choice


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """How a partition of clients compares with the true clusters.

    Attributes:
        communities: How many parts it has.
        purity: Share of clients whose true cluster is the most frequent one of their part.
        misclassified: How many are not (Fig. 10).
        modularity: Q of Eq. 6; None where there is no graph.
    """

    communities: int
    purity: float
    misclassified: int
    modularity: float | None = None


@dataclass(frozen=True, slots=True)
class SelectionSummary:
    """A round's selections.

    Attributes:
        mean: Mean satisfaction rate mr (Eq. 7) over the clients that have one; None when none has.
        minimum: The lowest.
        foreign: Share of selections that took at least one foreign cluster's model; None without selections.
    """

    mean: float | None
    minimum: float | None
    foreign: float | None


def judge_approvals(approvals: Approvals, truth: Mapping[AuthorId, int], *, seed: int = 0) -> ClusterSummary:
    """Louvain's communities of the approval graph, as in Sec. IV-C.

    Args:
        approvals: Who approved whom, all rounds so far by custom.
        truth: Each author's true cluster.
        seed: Louvain's.
    """
    partition = find_clusters(approvals, seed=seed)
    return _judge(partition, truth, modularity(approvals, partition))


def judge_groups(groups: NDArray[np.int64], truth: NDArray[np.int64]) -> ClusterSummary | None:
    """The groups that a method names (``Strategy.groups``).

    Args:
        groups: Each client's group, shape ``(C,)``; clients without one (-1) are left out.
        truth: Each client's true cluster, shape ``(C,)``.

    Returns:
        None when no client has a group.
    """
    named = {AuthorId(str(client)): int(groups[client]) for client in np.flatnonzero(groups >= 0)}
    if not named:
        return None
    partition = as_partition([author for author in named if named[author] == group] for group in set(named.values()))
    return _judge(partition, {author: int(truth[int(author)]) for author in named}, None)


def judge_selections(choices: Iterable[Choice], truth: NDArray[np.int64]) -> SelectionSummary:
    """Satisfaction rate mr (Eq. 7, as ``fl_core.clusters.satisfaction_rate``), and how often a foreign model was taken.

    Args:
        choices: A round's. One that took nothing took nothing foreign.
        truth: Each client's true cluster, shape ``(C,)``.
    """
    rates: list[float | None] = []
    foreign: list[bool] = []
    for choice in choices:
        mates = truth[choice.taken] == truth[choice.client]
        offered = int(np.count_nonzero(truth[choice.offered] == truth[choice.client]))
        rates.append(int(np.count_nonzero(mates)) / offered if offered else None)
        foreign.append(not mates.all())
    return SelectionSummary(mean_satisfaction(rates), _minimum(rates), sum(foreign) / len(foreign) if foreign else None)


def _judge(partition: Partition, truth: Mapping[AuthorId, int], quality: float | None) -> ClusterSummary:
    return ClusterSummary(len(partition), purity(partition, truth), misclassified(partition, truth), quality)


def _minimum(rates: Sequence[float | None]) -> float | None:
    return min((rate for rate in rates if rate is not None), default=None)
