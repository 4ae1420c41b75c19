"""The demo's figures, computed from what the run itself left: the exported ledger, and what the servers showed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dag_acfl.demo.progress import Progress
from dag_acfl.demo.servers import Equal
from fl_core.clusters import (
    count_approvals,
    find_clusters,
    misclassified,
    modularity,
    partition_by,
    satisfaction_rate,
)
from fl_core.dag.transaction import Kind, Transaction
from fl_core.selection.evidence import parse_evidence
from fl_core.types import ZERO_ID, AuthorId
from fl_core.verify import LedgerSource


@dataclass(frozen=True, slots=True)
class MethodFigure:
    """Test accuracy of one method over the clients."""

    name: str
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over clients."""
        return float(np.mean(self.accuracies))

    @property
    def spread(self) -> float:
        """Standard deviation over these clients."""
        return float(np.std(self.accuracies))


@dataclass(frozen=True, slots=True)
class ClusterFigure:
    """What the approval graph says about clusters.

    Attributes:
        found: Sizes of Louvain's communities, largest first.
        true: Number of true clusters.
        misplaced: Clients whose community is mostly another cluster's.
        exact: Whether communities and true clusters are the same sets.
        modularity: Of Louvain's partition [DAG-ACFL Eq. 6].
        satisfaction: mr [DAG-ACFL Eq. 7], the mean over all selections that had an update of the own cluster on offer.
        foreign_approvals: Share of all approvals of others that went to another cluster.
    """

    found: tuple[int, ...]
    true: int
    misplaced: int
    exact: bool
    modularity: float
    satisfaction: float | None
    foreign_approvals: float


@dataclass(frozen=True, slots=True)
class CostFigure:
    """Bytes of one client in one round, as the servers count them, beside [DAG-ACFL Eq. 8]: 2(|hash| + |ω|)."""

    measured: float
    equation_8: int


@dataclass(frozen=True, slots=True)
class ProofFigure:
    """The verification of the exported ledger."""

    transactions: int
    models: int
    aggregates: int
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VisibilityFigure:
    """From the first server that showed an update to each other one: median and 95th percentile over ``pairs``."""

    median_s: float
    p95_s: float
    pairs: int


@dataclass(frozen=True, slots=True)
class NetworkFigure:
    """How several servers did as one ledger.

    Attributes:
        updates: That each server took from clients; its signature in the ledger says so.
        digest: Of the tips, the same on all servers.
        equal_after_s: From the last client's end until all servers said the same.
        visibility: None when fewer than two servers showed anything in common.
        peer_bytes: Between servers, both ways, for each update and server that received it.
        equation_8: What [DAG-ACFL Eq. 8] has for it: |ω| + |σ|, a model and the mean header.
        switches: How often a client published on another server than the time before.
        killed: The server that was killed in the middle and started again, from 0.
    """

    updates: tuple[int, ...]
    digest: str
    equal_after_s: float
    visibility: VisibilityFigure | None
    peer_bytes: float
    equation_8: float
    switches: int
    killed: int | None = None


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """Everything that the result panel shows; ``methods`` are local-only, FedAvg, DAG-ACFL in this order.

    ``trained`` is what clients' own newest models reach, ``network`` None with one server.
    """

    methods: tuple[MethodFigure, ...]
    trained: MethodFigure
    clusters: ClusterFigure
    costs: CostFigure
    proof: ProofFigure
    network: NetworkFigure | None
    elapsed_s: float

    def as_json(self) -> dict[str, Any]:
        """JSON values, means and spreads included."""
        content = asdict(self)
        for method, values in zip(
            (*self.methods, self.trained), (*content["methods"], content["trained"]), strict=True
        ):
            values["mean"], values["sd"] = method.mean, method.spread
        return content


def updates_of(source: LedgerSource) -> list[Transaction]:
    """All of a ledger's updates, in its order."""
    return [each for _, each in source.transactions() if each.header.kind is not Kind.GENESIS]


def cluster_figure(
    source: LedgerSource, updates: Sequence[Transaction], truth: Mapping[AuthorId, int]
) -> ClusterFigure:
    """Clusters, modularity and mr from the ledger.

    Args:
        source: Gives the selections' evidence.
        updates: All transactions but genesis.
        truth: Each author's true cluster.
    """
    author_of = {update.id: update.header.author for update in updates}
    approvals = count_approvals(
        (update.header.author, [author_of.get(parent) for parent in update.header.parents]) for update in updates
    )
    found = find_clusters(approvals)
    labels = np.array([truth[author] for author in approvals.authors])
    foreign = approvals.counts[labels[:, None] != labels[None, :]].sum()
    total = approvals.counts.sum()
    return ClusterFigure(
        found=tuple(sorted((len(group) for group in found), reverse=True)),
        true=len(set(truth.values())),
        misplaced=misclassified(found, truth),
        exact=found == partition_by(truth),
        modularity=modularity(approvals, found),
        satisfaction=_satisfaction(source, updates, truth),
        foreign_approvals=float(foreign / total) if total else 0.0,
    )


def _satisfaction(source: LedgerSource, updates: Sequence[Transaction], truth: Mapping[AuthorId, int]) -> float | None:
    rates: list[float] = []
    for update in updates:
        digest, author = update.header.attachment_digest, update.header.author
        encoded = None if digest == ZERO_ID else source.attachment(digest)
        if encoded is None:
            continue
        candidates = parse_evidence(encoded).selection.candidates
        mates = {other for other, cluster in truth.items() if cluster == truth[author] and other != author}
        taken = [each.author for each in candidates if each.selected]
        rate = satisfaction_rate(taken, [each.author for each in candidates], mates)
        if rate is not None:
            rates.append(rate)
    return float(np.mean(rates)) if rates else None


def visibility_figure(
    shown: Mapping[str, Mapping[int, float]], *, leave_out: int | None = None
) -> VisibilityFigure | None:
    """How long updates took to the other servers.

    Args:
        shown: When each server showed each update, one clock for all.
        leave_out: A server that was down for a while, whose catching up is another thing.
    """
    delays: list[float] = []
    for times in shown.values():
        first, *later = sorted(at_s for server, at_s in times.items() if server != leave_out) or [0.0]
        delays += [each - first for each in later]
    if not delays:
        return None
    return VisibilityFigure(float(np.median(delays)), float(np.percentile(delays, 95)), len(delays))


def network_figure(
    updates: Sequence[Transaction],
    progress: Progress,
    *,
    keys: Sequence[str],
    equal: Equal,
    peer_bytes: int,
    killed: int | None = None,
) -> NetworkFigure:
    """What several servers did; ``keys`` are theirs, at least two, ``peer_bytes`` all bytes between them."""
    took = Counter(str(update.issuer) for update in updates)
    return NetworkFigure(
        updates=tuple(took[key] for key in keys),
        digest=equal.digest,
        equal_after_s=equal.waited_s,
        visibility=visibility_figure(progress.shown, leave_out=killed),
        peer_bytes=peer_bytes / (len(updates) * (len(keys) - 1)),
        equation_8=float(np.mean([update.header.model_size + len(update.header_bytes) for update in updates])),
        switches=progress.switches,
        killed=killed,
    )
