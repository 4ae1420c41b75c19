"""Whether a process exports its traces: as OpenTelemetry's standard environment says, to a collector that is really there."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dag_acfl.tracing import export_traces


class Collector(HTTPServer):
    """Takes what is exported over HTTP."""

    def __init__(self) -> None:
        self.came: list[tuple[str, bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.came.append((self.path, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def providers(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was made this process's provider; an environment that says nothing."""
    made: list[object] = []
    monkeypatch.setattr("opentelemetry.trace.set_tracer_provider", made.append)
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    return made


def test_spans_go_where_the_environment_says(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, providers: list[object]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "server-a")
    provider = export_traces()
    assert provider is not None
    assert providers == [provider]
    provider.get_tracer("test").start_span("a round").end()
    provider.shutdown()
    ((path, body),) = collector.came
    assert path == "/v1/traces"
    assert b"a round" in body
    assert b"server-a" in body


@pytest.mark.parametrize("name", ["OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", None])
def test_nothing_is_exported_unless_it_is_asked_for(
    name: str | None, monkeypatch: pytest.MonkeyPatch, providers: list[object]
) -> None:
    if name is not None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setenv(name, "true" if name == "OTEL_SDK_DISABLED" else "none")
    assert export_traces() is None
    assert providers == []


def test_where_the_sdk_is_not_installed_a_line_says_how(
    monkeypatch: pytest.MonkeyPatch, providers: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert export_traces() is None
    said = capsys.readouterr().err
    how = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
    assert said == f"OTEL_EXPORTER_OTLP_ENDPOINT is set, but nothing is traced: {how}\n"
