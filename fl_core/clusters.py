"""Which clusters the approvals form, and how good they are.

DAG-ACFL reads clusters off the ledger: clients are nodes, and client i is joined to client j as often as
i's transactions approve j's (Section IV-C). Here are that matrix, its Louvain partition, and the figures
that DAG-ACFL reports of it. Approvals of oneself say nothing about clusters and are left out; so is
genesis, which has no author.

Communities are tuples of author ids, each ascending, the list by its first members, so that equal
partitions are equal values. networkx is imported here only, and only when Louvain runs (ADR 0005).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import TypeAlias

from fl_core.types import AuthorId

Partition: TypeAlias = tuple[tuple[AuthorId, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Approvals:
    """How often each author approved each other one.

    Attributes:
        authors: All authors, ascending.
        counts: How many approvals the first author gave the second, another one; who gave none has no entry.
    """

    authors: tuple[AuthorId, ...]
    counts: Mapping[tuple[AuthorId, AuthorId], int]

    @property
    def weights(self) -> dict[tuple[AuthorId, AuthorId], int]:
        """The undirected graph, both directions added up, of each pair the lower author first: A of Eq. 6."""
        both: Counter[tuple[AuthorId, AuthorId]] = Counter()
        for (giver, receiver), count in self.counts.items():
            both[min(giver, receiver), max(giver, receiver)] += count
        return both


def count_approvals(transactions: Iterable[tuple[AuthorId, Iterable[AuthorId | None]]]) -> Approvals:
    """DAG-ACFL's matrix G (Section IV-C).

    Args:
        transactions: Of each site its author and its parents' authors; None stands for genesis.

    An author that approves nobody and is approved by nobody is a node all the same.
    """
    authors: set[AuthorId] = set()
    counted: Counter[tuple[AuthorId, AuthorId]] = Counter()
    for author, parents in transactions:
        authors.add(author)
        for parent in parents:
            if parent is not None and parent != author:
                authors.add(parent)
                counted[author, parent] += 1
    return Approvals(tuple(sorted(authors)), counted)


def find_clusters(approvals: Approvals, *, seed: int = 0) -> Partition:
    """Louvain's partition of the approval graph (DAG-ACFL's [38]); nobody's author stands alone.

    Args:
        approvals: Directions are added up, as DAG-ACFL's modularity needs a symmetric matrix.
        seed: Louvain visits nodes in an order drawn from it; the same seed gives the same partition.
    """
    if not approvals.counts:
        return as_partition([author] for author in approvals.authors)  # nothing holds anybody together
    import networkx as nx  # noqa: PLC0415 - 0.2 s that only this function's callers should pay

    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(approvals.authors)))
    place = {author: index for index, author in enumerate(approvals.authors)}
    graph.add_weighted_edges_from((place[a], place[b], weight) for (a, b), weight in sorted(approvals.weights.items()))
    found = nx.community.louvain_communities(graph, seed=seed)
    return as_partition([approvals.authors[node] for node in community] for community in found)


def as_partition(groups: Iterable[Iterable[AuthorId]]) -> Partition:
    """Groups in the one order that partitions have here; empty groups are dropped."""
    return tuple(sorted(tuple(sorted(group)) for group in map(list, groups) if group))


def partition_by(clusters: Mapping[AuthorId, int | str]) -> Partition:
    """The partition that labels such as the true clusters stand for."""
    groups: dict[int | str, list[AuthorId]] = {}
    for author, label in clusters.items():
        groups.setdefault(label, []).append(author)
    return as_partition(groups.values())


def modularity(approvals: Approvals, partition: Partition) -> float:
    """Q of Eq. 6, in [-1/2, 1]; 0 for a graph without edges.

    Raises:
        ValueError: ``partition`` does not hold each author exactly once.
    """
    if sorted(each for group in partition for each in group) != list(approvals.authors):
        raise ValueError("the partition must hold each author exactly once")
    total = 2 * sum(approvals.counts.values())  # 2m
    if total == 0:
        return 0.0
    group_of = {author: number for number, group in enumerate(partition) for author in group}
    inside, degrees = [0] * len(partition), [0] * len(partition)
    for (giver, receiver), count in approvals.counts.items():
        left, right = group_of[giver], group_of[receiver]
        degrees[left] += count
        degrees[right] += count
        inside[left] += 2 * count * (left == right)
    return sum(within / total - (degree / total) ** 2 for within, degree in zip(inside, degrees, strict=True))


def satisfaction_rate(
    selected: Collection[AuthorId], candidates: Collection[AuthorId], mates: Collection[AuthorId]
) -> float | None:
    """DAG-ACFL's mr (Eq. 7): the share of a client's own cluster's tips that it was given.

    Args:
        selected: Authors of the tips that were taken.
        candidates: Authors of all tips on offer.
        mates: The authors of the client's cluster.

    Returns:
        A value in [0, 1]; None when the cluster had no tip on offer, where Eq. 7 divides by zero.
    """
    own = [author for author in candidates if author in mates]
    if not own:
        return None
    return sum(author in selected for author in own) / len(own)


def purity(partition: Partition, truth: Mapping[AuthorId, int | str]) -> float:
    """Share of authors whose true cluster is the most frequent one of their community; 1 for no authors."""
    total = sum(len(group) for group in partition)
    return 1.0 if total == 0 else (total - misclassified(partition, truth)) / total


def misclassified(partition: Partition, truth: Mapping[AuthorId, int | str]) -> int:
    """Authors whose true cluster is not the most frequent one of their community (DAG-ACFL's Fig. 10).

    Splitting a true cluster costs nothing here.

    Raises:
        KeyError: an author without a true cluster.
    """
    return sum(len(group) - max(Counter(truth[author] for author in group).values()) for group in partition)


def adjusted_rand_index(partition: Partition, truth: Mapping[AuthorId, int | str]) -> float:
    """How far two authors are together in a community just where they share a true cluster (Hubert & Arabie, 1985).

    1 for the true clusters, 0 in the mean for communities drawn at random; splitting a true cluster costs as well.

    Raises:
        KeyError: an author without a true cluster.
    """
    shared = Counter((number, truth[author]) for number, group in enumerate(partition) for author in group)
    clusters: Counter[int | str] = Counter()
    for (_, cluster), count in shared.items():
        clusters[cluster] += count
    total = sum(clusters.values())
    both, found, true = (
        sum(comb(count, 2) for count in counts) for counts in (shared.values(), map(len, partition), clusters.values())
    )
    by_chance = found * true / comb(total, 2) if total > 1 else 0.0
    most = (found + true) / 2
    return 1.0 if most == by_chance else (both - by_chance) / (most - by_chance)


def mean_satisfaction(rates: Sequence[float | None]) -> float | None:
    """Mean of those rates that are defined; None when none is."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known else None
