"""Prometheus metrics of one server.

One registry per ``Metrics``, so that several servers live in one process. Labels are bounded: route templates,
methods, statuses and codes that stand in our source, peers that stand in the settings; never a client, a transaction
or a path as sent. Beside them ``process_*`` of the process (Linux only).

Where several processes serve together (``http.workers``), whichever is asked answers for all of them, by
prometheus_client's files in ``$PROMETHEUS_MULTIPROC_DIR``: counters and histograms are sums, also over those that have
ended; gauges are sums over those that live where each has its own, else what was set last; ``process_*`` have a label
``pid``, which is the name of the process's place (``worker-0``): whoever takes the place goes on with its files.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client import values as kept
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from fl_core.sync.effects import Incident
from fl_core.trust.alarms import AlarmKind
from ledger_server.model_store import ModelCorruptError
from ledger_server.pruning import PruneReport
from ledger_server.store.errors import StoreUnavailableError

if TYPE_CHECKING:
    from ledger_server.gossip.contacts import PeerState

# Of the whole process: they would double the series of counters and histograms.
disable_created_metrics()  # type: ignore[no-untyped-call]  # they have none

PREFIX: Final = "dag_acfl"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_REQUEST_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MODELS_BUCKETS: Final = (1, 2, 3, 5, 8, 13, 21, 34, 64, 128)
_WORK_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


def share_metrics(name: str) -> None:
    """Have this process, one of several, keep its metrics under a name: before there is any of them.

    The library's own is the process's number: each that ends would leave a megabyte for every kind of metric behind.

    Args:
        name: No other process's that lives; without underscores.
    """
    kept.ValueClass = kept.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]


def forget_gauges(name: str) -> None:
    """What was measured of the process of a name: it has ended."""
    mark_process_dead(name)  # type: ignore[no-untyped-call]


class Metrics:
    """The server's counters, gauges and histograms.

    Args:
        build: ``version``, ``commit`` and ``schema`` of what runs.
        ledger: The id of the ledger that is served.
    """

    def __init__(self, *, build: Mapping[str, str] | None = None, ledger: str = "") -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        self._is_one_of_several = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._process = ProcessCollector(registry=None if self._is_one_of_several else self.registry)
        self._of_process = {each: self._each_has(each) for each in self._looked_at() if self._is_one_of_several}
        self._measured: dict[Gauge, Callable[[], float]] = {}
        self.answering: asyncio.Lock = asyncio.Lock()
        """Held while ``exposition`` works: who asks meanwhile takes no worker thread."""
        self.requests: Counter = self._counter("requests", "Requests answered.", "method", "route", "status")
        self.request_s: Histogram = self._histogram(
            "request_duration_seconds", "From a request's head to the end of its answer.", _REQUEST_BUCKETS_S, "route"
        )
        self.request_bytes: Counter = self._counter("request_body_bytes", "Body bytes received.", "route")
        self.response_bytes: Counter = self._counter("response_body_bytes", "Body bytes sent.", "route")
        self.in_progress: Gauge = self._gauge("requests_in_progress", "Requests being answered.", summed=True)
        self.connections: Gauge = self._gauge("connections", "Open connections.", summed=True)
        self.rejected: Counter = self._counter(
            "rejected_requests", "Connections and requests that were answered with a problem, by its code.", "code"
        )
        self.transactions: Gauge = self._gauge("transactions", "Transactions in the ledger, genesis included.")
        self.tips: Gauge = self._gauge("tips", "Transactions that nobody approves yet.")
        self.candidates: Gauge = self._gauge("candidates", "Updates that can be offered, if there is room for them.")
        self.most_candidates: Gauge = self._gauge("most_candidates", "Candidates that one selection compares at most.")
        self.acts_waiting: Gauge = self._gauge("acts_waiting", "Acts of members that wait for more signatures.")
        self.pruned_models: Gauge = self._gauge("pruned_models", "Models whose bytes were dropped.")
        self.prune_runs: Counter = self._counter("prune_runs", "Prunings of this process that dropped something.")
        self.pruned_bytes: Counter = self._counter("pruned_bytes", "Size of the models that this process has dropped.")
        self.storage_bytes: Gauge = self._gauge("storage_bytes", "What database and models take.")
        self.payload_bytes: Gauge = self._gauge(
            "ledger_payload_bytes", "Models and headers alone, as in [DAG-ACFL Eq. 10]."
        )
        self.log_bytes: Gauge = self._gauge(
            "database_log_bytes", "SQLite's write-ahead log; it shrinks when nobody reads."
        )
        self.free_bytes: Gauge = self._gauge("storage_free_bytes", "Free on the disk of the data folder.")
        self.published: Counter = self._counter(
            "publications", "Publications, by outcome: created, known, or an error's code.", "outcome"
        )
        self.publish_s: Histogram = self._histogram(
            "publish_duration_seconds", "One publication, durable.", _WORK_BUCKETS_S
        )
        self.write_lock_s: Histogram = self._histogram(
            "write_lock_seconds", "A writer that kept out all others, its commit included.", _WORK_BUCKETS_S
        )
        self.selections: Counter = self._counter(
            "selections", "Selections, by outcome: created, known, or a code.", "outcome"
        )
        self.selection_s: Histogram = self._histogram("selection_duration_seconds", "One selection.", _WORK_BUCKETS_S)
        self.aggregates: Counter = self._counter("aggregates", "Aggregates asked for, by source.", "source")
        self.average_models: Histogram = self._histogram(
            "average_models", "Models in an average that a new selection led to.", _MODELS_BUCKETS
        )
        self.too_few_models: Counter = self._counter(
            "too_few_models", "New selections whose average had fewer models than the ledger's aggregator needs."
        )
        self.alarms: Counter = self._counter("alarms", "What was odd about updates as they came in, by kind.", "kind")
        self._begin_with_nothing()
        self.cache_bytes: Gauge = self._gauge("model_cache_bytes", "Model bytes held in memory.", summed=True)
        self.gossip_bytes: Counter = self._counter(
            "gossip_bytes",
            "Bytes exchanged with a peer that this server asked, heads included, by kind and direction.",
            "peer",
            "kind",
            "direction",
        )
        self.gossip_served_bytes: Counter = self._counter(
            "gossip_served_bytes", "Body bytes that a peer fetched from this server, by kind.", "peer", "kind"
        )
        self.gossip_admitted: Counter = self._counter("gossip_admitted", "Transactions that came from peers.")
        self.gossip_incidents: Counter = self._counter(
            "gossip_incidents", "What peers did wrong, by kind.", "peer", "incident"
        )
        self.peer_up: Gauge = self._gauge(
            "peer_up", "1 where the last request to the peer was answered; 0 where it was not, or refused.", "peer"
        )
        self.peer_last_heard_s: Gauge = self._gauge(
            "peer_last_heard_seconds", "Since the peer last answered or asked, or since this server began.", "peer"
        )
        self.peer_behind: Gauge = self._gauge(
            "peer_behind", "Transactions here beyond as many as the peer last said that it holds.", "peer"
        )
        self.peer_failures: Counter = self._counter(
            "peer_failures", "Requests to a peer that it did not answer, or refused, by why.", "peer", "reason"
        )
        self.queue_length: Gauge = self._gauge("queue_length", "Requests that wait for a worker thread.", summed=True)
        self.token_ends_s: Gauge = self._gauge(
            "token_ends_seconds", "Until the first of the tokens that are valid ends; +Inf where none does."
        )
        self.certificate_ends_s: Gauge = self._gauge(
            "certificate_ends_seconds", "Until this server's certificate ends; +Inf without TLS of its own."
        )
        self.event_streams: Gauge = self._gauge("event_streams_open", "Open event streams.", summed=True)
        self._say(build, ledger)

    def _begin_with_nothing(self) -> None:
        # Alerts ask by how much these grow, which of a series that begins with 1 is nothing.
        counted: list[tuple[Counter, Iterable[str]]] = [
            (self.alarms, AlarmKind),
            (self.published, ("created", StoreUnavailableError.code)),
            (self.rejected, (ModelCorruptError.code,)),
        ]
        for counter, values in counted:
            for value in values:
                counter.labels(value)

    def _say(self, build: Mapping[str, str] | None, ledger: str) -> None:
        runs = self._gauge("build_info", "Always 1; labels say what runs here.", "version", "commit", "schema")
        if build is not None:
            runs.labels(**build).set(1)
        self._gauge("ledger_info", "Always 1; the ledger that is served is the label.", "ledger").labels(ledger).set(1)

    def exposition(self, measure: Callable[[], None] = lambda: None) -> bytes:
        """The text that ``GET /metrics`` answers with, of type ``CONTENT_TYPE``.

        Args:
            measure: Sets what is only looked at when somebody asks.
        """
        measure()
        self.refresh()
        return generate_latest(_AllProcesses() if self._is_one_of_several else self.registry)

    def measured(self, gauge: Gauge, value: Callable[[], float]) -> None:
        """Have a gauge show what a function says whenever somebody asks."""
        self._measured[gauge] = value

    def refresh(self) -> None:
        """Set what is measured, for somebody who asks another process."""
        for gauge, value in self._measured.items():
            gauge.set(value())
        for name, figure in self._looked_at().items() if self._of_process else ():
            self._of_process[name].set(figure)

    def _looked_at(self) -> dict[str, float]:
        """What the system says of this process, by the metric's name."""
        return {sample.name: sample.value for family in self._process.collect() for sample in family.samples}

    def totals(self, counter: Counter) -> dict[str, int]:
        """A counter by the values of its one label."""
        name = next(iter(counter.describe())).name
        families = _AllProcesses().collect() if self._is_one_of_several else counter.collect()
        found = [family for family in families if family.name == name]
        samples = [sample for family in found for sample in family.samples if sample.name == f"{name}_total"]
        return {next(iter(sample.labels.values())): int(sample.value) for sample in samples}

    def show_peers(self, peers: Iterable["PeerState"], *, transactions: int) -> None:
        """What is known of each peer that this server speaks to, and of no other; from within ``measure``."""
        for gauge in (self.peer_up, self.peer_last_heard_s, self.peer_behind):
            if not self._is_one_of_several:  # whose files keep a peer that has left until the server ends
                gauge.clear()
        for state in peers:
            if state.is_neighbour:
                name = state.peer.name
                self.peer_up.labels(name).set(state.is_reachable and not state.is_banned)
                self.peer_last_heard_s.labels(name).set(state.silent_s)
                for incident in Incident:
                    self.gossip_incidents.labels(name, incident.value)
                if state.transactions is not None:
                    self.peer_behind.labels(name).set(max(0, transactions - state.transactions))

    def count_pruned(self, report: PruneReport) -> None:
        self.prune_runs.inc()
        self.pruned_bytes.inc(report.nbytes)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str, summed: bool = False) -> Gauge:
        mode: Literal["livesum", "mostrecent"] = "livesum" if summed else "mostrecent"
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry, multiprocess_mode=mode)

    def _each_has(self, name: str) -> Gauge:
        return Gauge(name, "Of each process.", registry=self.registry, multiprocess_mode="liveall")

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, labels, buckets=buckets, registry=self.registry)


class _AllProcesses:
    """What the processes that serve together have counted, by their files."""

    def collect(self) -> Iterable[Metric]:
        files = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).glob("*.db")
        begun = [str(each) for each in files if _is_begun(each)]
        found: Iterable[Metric] = MultiProcessCollector.merge(begun)  # type: ignore[no-untyped-call]  # it has no types
        return found


def _is_begun(file: Path) -> bool:
    """Whether a file has bytes: one that a process is creating has none yet, which the library cannot read."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:  # of gauges, whose process has ended since
        return False
