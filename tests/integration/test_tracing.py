"""One trace for a round: from the client through its server to its peers, with OpenTelemetry's own SDK."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fl_client import LedgerClient, Participant, ParticipantState
from fl_client import tracing as client_tracing
from fl_core.models import ModelLayout, TensorSpec, encode_flat
from fl_core.wire import gossip_v1 as wire
from fl_core.wire import v1
from ledger_server import tracing as server_tracing
from tests.builders import make_genesis, model
from tests.live import eventually
from tests.network import acquaint, network, settle
from tests.tiny_trainer import TinyTrainer

LARGE = ModelLayout.of([TensorSpec("w", "F32", (300_000,))])  # 1.2 MB: too large to come along with an announcement


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What a program that sets up a provider exports; taken back at the end, which OpenTelemetry has no call for."""
    provider, exported = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exported
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def way_of(span: ReadableSpan, exporter: InMemorySpanExporter) -> list[str]:
    """The names from where the trace began down to this span."""
    by_id = {each.context.span_id: each for each in exporter.get_finished_spans()}
    above = [] if span.parent is None else way_of(by_id[span.parent.span_id], exporter)
    return [*above, span.name]


def test_a_round_is_one_trace_from_the_client_to_the_peer(exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    with (
        network(tmp_path, 2) as servers,
        ParticipantState(tmp_path / "ann") as state,
        LedgerClient(servers[0].url, key=state.key) as client,
    ):
        acquaint(servers)
        report = Participant(client, TinyTrainer(target=2), state).step()
        settle(servers)
        eventually(lambda: bool(named(exporter, "round") and named(exporter, "gossip receive")))
        servers[1].get("/healthz")
        servers[1].get(f"{v1.TIPS}?token=secret")
    (whole,) = named(exporter, "round")
    of_it = [span for span in exporter.get_finished_spans() if span.context.trace_id == whole.context.trace_id]
    ways = [" > ".join(way_of(span, exporter)) for span in of_it]
    publication = f"round > publish > POST {v1.TRANSACTIONS}"
    announcement = f"{publication} > gossip announce > POST {wire.ANNOUNCEMENTS}"
    assert f"round > select > POST {v1.SELECTIONS} > choose" in ways
    assert f"{publication} > append" in ways
    assert f"{announcement} > gossip receive > append" in ways
    about = [span.attributes or {} for span in of_it]
    named_so = [each for each in about if each.get("dag_acfl.transaction") == report.transaction]
    assert len(named_so) == 4, "the publication, what comes in at the peer, and an append at both"
    everything = {str(dict(span.attributes or {})) for span in exporter.get_finished_spans()}
    assert not any("secret" in each or "healthz" in each or "gossip/changes" in each for each in everything)


def test_a_model_that_is_fetched_belongs_to_its_updates_trace(exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    def large(number: int) -> bytes:
        return encode_flat(LARGE, np.random.default_rng(number).standard_normal(300_000).astype("<f4"))

    genesis = make_genesis(layout=LARGE, compared=("w",))
    with network(tmp_path, 2, genesis=genesis, first=large(0)) as servers:
        acquaint(servers)
        servers[0].publish(parents=[servers[0].ledger_id], model=large(1))
        settle(servers)
        eventually(lambda: bool(named(exporter, f"GET {wire.MODEL}") and named(exporter, "gossip receive")))
    (publication,) = named(exporter, f"POST {v1.TRANSACTIONS}")
    (fetch,) = named(exporter, f"GET {wire.MODEL}")
    (receive,) = named(exporter, "gossip receive")
    assert fetch.context.trace_id == receive.context.trace_id == publication.context.trace_id


def test_several_updates_on_their_way_keep_their_own_traces(exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        acquaint(servers)
        for number in range(3):
            servers[0].publish(parents=[servers[0].ledger_id], model=model(number))
            settle(servers)
        eventually(lambda: len(traces_by_transaction(exporter, "gossip receive")) == 3)
    published = traces_by_transaction(exporter, f"POST {v1.TRANSACTIONS}")
    received = traces_by_transaction(exporter, "gossip receive")
    for transaction, own in published.items():
        others = {trace for another, traces in published.items() if another != transaction for trace in traces}
        assert own <= received[transaction], "perhaps it came by reconciliation, too, and once more without a trace"
        assert not others & received[transaction]


def traces_by_transaction(exporter: InMemorySpanExporter, name: str) -> dict[object, set[int]]:
    """The traces in which each transaction has spans of this name."""
    found: dict[object, set[int]] = {}
    for span in named(exporter, name):
        found.setdefault((span.attributes or {})["dag_acfl.transaction"], set()).add(span.context.trace_id)
    return found


def test_without_a_provider_no_request_carries_a_trace() -> None:
    with client_tracing.span("round"), server_tracing.span("append"):
        assert client_tracing.headers() == server_tracing.headers() == {}
        assert server_tracing.current() is None
