"""What the parts of one server share: its settings and metrics, who holds how much of it, and whether it is closing."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ledger_server.http.admission import Admission
from ledger_server.http.threads import WorkerThreads
from ledger_server.metrics import Metrics
from ledger_server.settings import Settings
from ledger_server.shares import Shares

EXCHANGE: Final = "dag_acfl_exchange"
"""In a request's state: its ``TimedExchange``."""


@dataclass(slots=True)
class ServerState:
    """One per application; ``create_app`` makes it and keeps it as ``app.state.server``.

    Attributes:
        settings: The server's settings.
        metrics: Where everything is counted.
        draining: Whether the server has been told to stop; ``/readyz`` answers 503 from then on.
        readiness_asked_s: When ``/readyz`` was last asked, by ``time.monotonic``.
        connections: Open connections, TLS handshakes included, by address, or by caller once a request has shown it.
        admission: Requests that are being answered, supervisors' apart, likewise, and which further ones are let in.
        threads: Worker threads of requests, likewise.
        checking: Held by the one that looks whether the server is ready.
        body_bytes: Body bytes received of requests in progress, likewise.
        on_drain: Called when the port closes, to end answers that would not end by themselves.
    """

    settings: Settings
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False
    readiness_asked_s: float = -math.inf
    on_drain: list[Callable[[], None]] = field(default_factory=list)
    connections: Shares = field(init=False)
    admission: Admission = field(init=False)
    body_bytes: Shares = field(init=False)
    threads: WorkerThreads = field(init=False)
    checking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        limits = self.settings.http
        self.connections = Shares(limits.max_connections)
        self.admission = Admission(limits.max_concurrent_requests)
        self.threads = WorkerThreads(self.settings.worker_threads)
        self.body_bytes = Shares(limits.max_bytes_in_flight)
