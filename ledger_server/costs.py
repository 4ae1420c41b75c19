"""What a server has moved, beside the terms of DAG-ACFL, Eq. 8.

The counters are ``metrics``': body bytes by route, and what was exchanged with peers. Between servers, only what this
server sent and received is known to it: Eq. 8's 2(|S| - 1)(|ω| + |σ|) is that of the server at which a client
publishes, and of one transaction that comes from each of the others.
"""

from typing import Final, Literal, TypeAlias

from prometheus_client import Counter

from fl_core.wire import v1
from ledger_server.metrics import Metrics

HASH_BYTES: Final = 32

Kind: TypeAlias = Literal["ask", "aggregate", "evidence", "publication", "receipt", "servers"]


def round_terms(
    metrics: Metrics, *, publications: int, servers: int, model_bytes: int, mean_header_bytes: float
) -> list[v1.CostTermOut]:
    """Eq. 8, term by term: what was measured beside what the formula comes to; 0 for what DAG-ACFL has not.

    Args:
        metrics: What was counted.
        publications: Rounds that it was counted in.
        servers: |S|, this one included, at least 1.
        model_bytes: |ω|.
        mean_header_bytes: |σ|.
    """
    received, sent = by_label(metrics.request_bytes), by_label(metrics.response_bytes)
    between = sum(between_servers(metrics, by="peer").values())
    terms: tuple[tuple[Kind, str, int, float], ...] = (
        ("ask", "|hash|", received.get(v1.SELECTIONS, 0), HASH_BYTES),
        ("evidence", "0", sent.get(v1.SELECTIONS, 0), 0),
        ("aggregate", "|ω|", sent.get(v1.MODEL, 0), model_bytes),
        ("publication", "|ω|", received.get(v1.TRANSACTIONS, 0), model_bytes),
        ("receipt", "|hash|", sent.get(v1.TRANSACTIONS, 0), HASH_BYTES),
        ("servers", "2(|S| - 1)(|ω| + |σ|)", between, 2 * (servers - 1) * (model_bytes + mean_header_bytes)),
    )
    return [
        v1.CostTermOut(
            kind=kind,
            formula=formula,
            bytes=nbytes,
            bytes_per_round=nbytes / publications if publications else None,
            paper_bytes_per_round=paper_bytes,
        )
        for kind, formula, nbytes, paper_bytes in terms
    ]


def between_servers(metrics: Metrics, *, by: Literal["peer", "kind"]) -> dict[str, int]:
    """Bytes exchanged with other servers, both ways, whoever asked."""
    found = by_label(metrics.gossip_bytes, by)
    for name, nbytes in by_label(metrics.gossip_served_bytes, by).items():
        found[name] = found.get(name, 0) + nbytes
    return found


def by_label(counter: Counter, label: str | None = None) -> dict[str, int]:
    """A counter by the values of a label (default: its first), summed over the others."""
    found: dict[str, int] = {}
    for metric in counter.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                name = next(iter(sample.labels.values())) if label is None else sample.labels[label]
                found[name] = found.get(name, 0) + int(sample.value)
    return found
