"""Whether this process exports OpenTelemetry traces: as its standard environment says, by OTLP over HTTP."""

import os
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def export_traces() -> "TracerProvider | None":
    """Export this process's spans from here on, until it ends; None where the environment names no endpoint.

    The SDK reads the rest itself: OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS and so on. Where
    it is not installed, one line on standard error says so.
    """
    endpoint = next((name for name in _ENDPOINTS if os.environ.get(name)), None)
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if endpoint is None or is_off or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        how = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        typer.echo(f"{endpoint} is set, but nothing is traced: {how}", err=True)
        return None
    from opentelemetry import trace  # noqa: PLC0415

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider
