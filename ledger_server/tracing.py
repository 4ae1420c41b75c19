"""OpenTelemetry traces: what a server adds to FastAPI's spans of requests, so that an update can be followed.

A trace begins at the client or with its request, goes on through ``append``, along with the announcement to each peer,
and ends there with ``gossip receive`` and its ``append``. Without a provider all of this does nothing.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context

from fl_core.wire import v1

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

_PREFIX: Final = "dag_acfl."


def _is_untraced(scope: MutableMapping[str, Any]) -> bool:
    """Supervisors; peers that ask what is new; and a token in the URL, which would stand in the trace."""
    path = scope.get("path", "")
    is_poll = path.startswith("/v1/gossip/") and all(name != b"traceparent" for name, _ in scope.get("headers", ()))
    return path in v1.SUPERVISION or is_poll or b"token" in scope.get("query_string", b"")


HOW_REQUESTS_ARE_TRACED: Final["TelemetryConfig"] = {
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "exclude": _is_untraced,
}
"""FastAPI's setting ``telemetry``: a span for each request; metrics and logs have their own ways here."""


@contextmanager
def span(name: str, **about: str) -> Iterator[None]:
    """The block as a span of the trace at hand; outside of any it is not traced."""
    if not trace.get_current_span().get_span_context().is_valid:
        yield
        return
    with trace.get_tracer("dag-acfl").start_as_current_span(name, attributes=_attributes(about)):
        yield


def describe(about: Mapping[str, str]) -> None:
    """Add attributes to the span at hand."""
    trace.get_current_span().set_attributes(_attributes(about))


def _attributes(about: Mapping[str, str]) -> dict[str, str]:
    return {_PREFIX + name: value for name, value in about.items()}


def current() -> Context | None:
    """The trace at hand, for ``resumed``; None outside of any."""
    at_hand = trace.get_current_span()
    return trace.set_span_in_context(at_hand, Context()) if at_hand.get_span_context().is_valid else None


@contextmanager
def resumed(kept: Context | None) -> Iterator[None]:
    """The block as part of a trace that was kept; for None, of no trace."""
    token = context.attach(Context() if kept is None else kept)
    try:
        yield
    finally:
        context.detach(token)


def headers() -> dict[str, str]:
    """What a request carries so that its receiver goes on with the trace: ``traceparent``."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier
