"""Eq. 8 term by term, from what was counted."""

from fl_core.wire import v1
from ledger_server.costs import between_servers, by_label, round_terms
from ledger_server.metrics import Metrics


def test_the_terms_of_a_round_are_what_was_counted_beside_what_the_paper_says() -> None:
    metrics = Metrics()
    metrics.request_bytes.labels(v1.SELECTIONS).inc(82)
    metrics.response_bytes.labels(v1.SELECTIONS).inc(700)
    metrics.response_bytes.labels(v1.MODEL).inc(1000)
    metrics.request_bytes.labels(v1.TRANSACTIONS).inc(1400)
    metrics.response_bytes.labels(v1.TRANSACTIONS).inc(900)
    metrics.request_bytes.labels(v1.TIPS).inc(1_000_000)  # no part of a round
    metrics.gossip_bytes.labels("east", "model", "received").inc(5000)
    metrics.gossip_served_bytes.labels("west", "model").inc(5001)
    terms = round_terms(metrics, publications=2, servers=3, model_bytes=1000, mean_header_bytes=200.0)
    assert [term.bytes_per_round for term in terms] == [term.bytes / 2 for term in terms]
    assert [(term.kind, term.bytes, term.paper_bytes_per_round) for term in terms] == [
        ("ask", 82, 32),
        ("evidence", 700, 0),
        ("aggregate", 1000, 1000),
        ("publication", 1400, 1000),
        ("receipt", 900, 32),
        ("servers", 10_001, 4800),  # 2 (3 - 1) (1000 + 200)
    ]


def test_bytes_between_servers_are_told_by_peer_and_by_kind() -> None:
    metrics = Metrics()
    metrics.gossip_bytes.labels("east", "model", "received").inc(100)
    metrics.gossip_bytes.labels("east", "model", "sent").inc(1)
    metrics.gossip_bytes.labels("west", "changes", "received").inc(20)
    metrics.gossip_served_bytes.labels("west", "model").inc(3000)
    assert between_servers(metrics, by="peer") == {"east": 101, "west": 3020}
    assert between_servers(metrics, by="kind") == {"model": 3101, "changes": 20}


def test_a_counter_that_never_counted_is_empty() -> None:
    assert by_label(Metrics().published) == {}
