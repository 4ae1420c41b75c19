"""The demo's figures, computed from what the run itself recorded: the ledger and the clients' reports.

Nothing here is remembered from another run. Clusters, modularity and mr come from the exported ledger's
headers and evidence; accuracies and bytes from the clients.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dag_acfl.demo.events import Arrival, Equal, Finished, Published
from fl_core.clusters import (
    count_approvals,
    find_clusters,
    misclassified,
    modularity,
    partition_by,
    satisfaction_rate,
)
from fl_core.dag.transaction import Header, Kind, decode_header
from fl_core.selection.evidence import parse_evidence
from fl_core.types import ZERO_ID, AuthorId, TxId
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
        modularity: Of Louvain's partition (Eq. 6).
        satisfaction: mr (Eq. 7), the mean over all selections that had a tip of the own cluster on offer.
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
    """Bytes of one client in one round, HTTP headers included, beside Eq. 8: 2(|hash| + |ω|).

    Attributes:
        measured: Mean on the clients' sockets, joining left out.
        server: What the server counts for each publication, joining and everything else included.
        equation_8: The formula.
    """

    measured: float
    server: float | None
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
    """From the first server that showed a transaction to each other one, as a listener to all of them heard it.

    Attributes:
        median_s, p95_s: Over pairs of transaction and other server.
        pairs: How many there were.
    """

    median_s: float
    p95_s: float
    pairs: int


@dataclass(frozen=True, slots=True)
class NetworkFigure:
    """How several servers did as one ledger.

    Attributes:
        transactions: That each server took from clients; its signature in the ledger says so.
        digest: Of the tips, the same on all servers.
        equal_after_s: From the clients' last word until all servers said the same.
        visibility: None when fewer than two servers showed anything in common.
        peer_bytes: Between servers, both ways, for each transaction and server that received it.
        equation_8: What Eq. 8 has for it: |ω| + |σ|, a model and the mean header.
        switches: How often a client published on another server than the time before.
        killed: The server that was killed in the middle and started again, from 0.
    """

    transactions: tuple[int, ...]
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

    ``network`` is None with one server.
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


@dataclass(frozen=True, slots=True)
class Site:
    """A transaction of the exported ledger with what the figures need of it."""

    id: TxId
    header: Header
    client: int
    issuer: str = ""
    """Public key of the server that took it."""


def sites_of(source: LedgerSource, clients: Mapping[AuthorId, int]) -> list[Site]:
    """All sites in the ledger's order, with their clients' numbers."""
    transactions = ((TxId(id_), t, decode_header(t.header_bytes)) for id_, t in source.transactions())
    return [
        Site(id_, header, clients[header.author], transaction.issuer)
        for id_, transaction, header in transactions
        if header.kind is Kind.UPDATE
    ]


def cluster_figure(source: LedgerSource, sites: Sequence[Site], truth: Mapping[AuthorId, int]) -> ClusterFigure:
    """Clusters, modularity and mr from the ledger.

    Args:
        source: Gives the selections' evidence.
        sites: All transactions but genesis.
        truth: Each author's true cluster.
    """
    author_of = {site.id: site.header.author for site in sites}
    approvals = count_approvals(
        (site.header.author, [author_of.get(parent) for parent in site.header.parents]) for site in sites
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
        satisfaction=_satisfaction(source, sites, truth),
        foreign_approvals=float(foreign / total) if total else 0.0,
    )


def _satisfaction(source: LedgerSource, sites: Sequence[Site], truth: Mapping[AuthorId, int]) -> float | None:
    rates: list[float] = []
    for site in sites:
        if site.header.attachment_digest == ZERO_ID:
            continue
        encoded = source.attachment(site.header.attachment_digest)
        if encoded is None:
            continue
        candidates = parse_evidence(encoded).selection.candidates
        author = site.header.author
        mates = {other for other, cluster in truth.items() if cluster == truth[author] and other != author}
        rate = satisfaction_rate(
            [each.author for each in candidates if each.selected],
            [each.author for each in candidates],
            mates,
        )
        if rate is not None:
            rates.append(rate)
    return float(np.mean(rates)) if rates else None


def cost_figure(
    published: Sequence[Published], *, server: float | None, hash_bytes: int, model_bytes: int
) -> CostFigure:
    """Bytes per client and round from the clients' own counters; joining (Alg. 1, lines 1-6) is left out.

    A joiner sends its model instead of a hash, which Eq. 8 does not count.
    """
    rounds = [each for each in published if each.number > 1] or list(published)
    measured = [each.sent_bytes + each.received_bytes for each in rounds]
    return CostFigure(
        measured=float(np.mean(measured)) if measured else 0.0,
        server=server,
        equation_8=2 * (hash_bytes + model_bytes),
    )


def visibility_figure(arrivals: Sequence[Arrival], *, leave_out: int | None = None) -> VisibilityFigure | None:
    """When a transaction was seen where, from the listener's own clock.

    Args:
        arrivals: As heard.
        leave_out: A server that was down for a while, whose catching up is another thing.
    """
    shown: dict[str, list[float]] = {}
    for each in arrivals:
        if each.server != leave_out:
            shown.setdefault(each.transaction, []).append(each.at_s)
    delays = [later - moments[0] for moments in map(sorted, shown.values()) for later in moments[1:]]
    if not delays:
        return None
    return VisibilityFigure(float(np.median(delays)), float(np.percentile(delays, 95)), len(delays))


def network_figure(
    sites: Sequence[Site],
    *,
    keys: Sequence[str],
    equal: Equal,
    arrivals: Sequence[Arrival],
    peer_bytes: int,
    switches: int,
    killed: int | None = None,
) -> NetworkFigure:
    """What several servers did.

    Args:
        sites: All transactions but genesis.
        keys: The servers' public keys, at least two.
        equal: What they hold in the end.
        arrivals: What was heard of their event streams.
        peer_bytes: All bytes between them.
        switches: Of clients.
        killed: The server that was killed.
    """
    took = Counter(site.issuer for site in sites)
    return NetworkFigure(
        transactions=tuple(took[key] for key in keys),
        digest=equal.digest,
        equal_after_s=equal.waited_s,
        visibility=visibility_figure(arrivals, leave_out=killed),
        peer_bytes=peer_bytes / (len(sites) * (len(keys) - 1)),
        equation_8=float(np.mean([site.header.model_size + len(site.header.encode()) for site in sites])),
        switches=switches,
        killed=killed,
    )


def method_figures(
    baselines: Mapping[str, Sequence[float]], finished: Sequence[Finished]
) -> tuple[tuple[MethodFigure, ...], MethodFigure]:
    """The methods in order of the panel, and the accuracy of the clients' own trained models beside them."""
    ordered = sorted(finished, key=lambda each: each.client)
    ours = MethodFigure("DAG-ACFL", tuple(each.accuracy for each in ordered))
    trained = MethodFigure("DAG-ACFL, trained on", tuple(each.trained_accuracy for each in ordered))
    others = [MethodFigure(name, tuple(accuracies)) for name, accuracies in baselines.items()]
    return (*others, ours), trained
