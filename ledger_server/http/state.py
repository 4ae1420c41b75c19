"""What the parts of one server's edge share: its limits, its metrics, and whether it is closing."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ledger_server.metrics import Metrics
from ledger_server.settings import Settings


@dataclass(slots=True)
class Edge:
    """One per application; ``create_app`` makes it and keeps it as ``app.state.edge``.

    Attributes:
        settings: The server's settings.
        metrics: Where the edge counts.
        draining: Whether the server has been told to stop; ``/readyz`` answers 503 from then on.
        in_progress: Requests that count towards the concurrency limit.
        on_drain: Called when the port closes, to end answers that would not end by themselves.
    """

    settings: Settings
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False
    in_progress: int = 0
    on_drain: list[Callable[[], None]] = field(default_factory=list)
