"""OpenTelemetry traces of a client: a round, what it asks, and ``traceparent`` on its requests.

Nothing is traced before the program sets up a provider: ``dag-acfl client run`` where the environment asks for it
(``OTEL_EXPORTER_OTLP_ENDPOINT``), others as OpenTelemetry's documentation says.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


def _is_on() -> bool:
    """Who sets up a provider has loaded this; others need not wait for it."""
    return "opentelemetry.trace" in sys.modules


@contextmanager
def span(name: str) -> Iterator[None]:
    """The block, or a function, as a span."""
    if not _is_on():
        yield
        return
    from opentelemetry import trace  # noqa: PLC0415 -- it is loaded

    with trace.get_tracer("dag-acfl").start_as_current_span(name):
        yield


def headers() -> dict[str, str]:
    """What a request carries so that the server goes on with the trace."""
    carrier: dict[str, str] = {}
    if _is_on():
        from opentelemetry import propagate  # noqa: PLC0415 -- it is nearly loaded

        propagate.inject(carrier)
    return carrier
