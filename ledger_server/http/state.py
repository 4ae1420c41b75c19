"""What the parts of one server share: its settings and metrics, what is in progress, and whether it is closing."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ledger_server.metrics import Metrics
from ledger_server.settings import Settings

SPARE: Final = "dag_acfl_spare"
"""In a request's state: whether its connection is there for supervisors alone."""


@dataclass(slots=True)
class ServerState:
    """One per application; ``create_app`` makes it and keeps it as ``app.state.server``.

    Attributes:
        settings: The server's settings.
        metrics: Where everything is counted.
        draining: Whether the server has been told to stop; ``/readyz`` answers 503 from then on.
        readiness_asked_s: When ``/readyz`` was last asked, by ``time.monotonic``.
        in_progress: Requests that are being answered, supervisors' apart.
        bytes_in_flight: Body bytes received of requests in progress.
        on_drain: Called when the port closes, to end answers that would not end by themselves.
    """

    settings: Settings
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False
    readiness_asked_s: float = -math.inf
    in_progress: int = 0
    bytes_in_flight: int = 0
    on_drain: list[Callable[[], None]] = field(default_factory=list)
