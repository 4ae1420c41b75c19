"""Which server to ask next: a list in the caller's order, with failed ones resting at the end.

Decides order and pauses only; what counts as a failure is the client's to say.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fl_client._http import Endpoint

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 60.0


@dataclass(slots=True, eq=False)
class Server:
    """An endpoint and how it has been doing. ``known_ledger`` is None until it was asked, and after a failure."""

    endpoint: Endpoint
    known_ledger: str | None = None
    failures: int = 0
    resting_until: float = 0.0
    closed_until: float = 0.0
    """Until when the server itself asked to be left alone (Retry-After)."""


class Servers:
    """The servers of one ledger, in health order.

    Args:
        endpoints: In order of preference.
        clock: Monotonic seconds.
    """

    def __init__(self, endpoints: Iterable[Endpoint], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = [Server(endpoint) for endpoint in endpoints]
        self._clock = clock
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._servers)

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers)

    def in_order(self, *, first: str | None = None) -> list[Server]:
        """All servers: healthy ones as given, then resting ones by when their rest ends.

        Args:
            first: Address of a server to ask before its healthy peers, such as the one that computed an aggregate.
        """
        now = self._clock()
        with self._lock:
            # sorted is stable: equal keys keep the caller's order.
            return sorted(
                self._servers,
                key=lambda server: (max(server.resting_until, now), server.endpoint.url != first),
            )

    def reopens_in(self) -> float:
        """Seconds until the first server may be asked again; 0 unless all have asked to be left alone."""
        now = self._clock()
        with self._lock:
            return max(0.0, min(server.closed_until for server in self._servers) - now)

    def failed(self, server: Server, *, retry_after_s: float | None = None) -> None:
        """Send a server to the end, for a pause that doubles with each failure in a row."""
        now = self._clock()
        with self._lock:
            server.failures += 1
            server.known_ledger = None  # whatever comes back at that address has to introduce itself again
            pause = min(FIRST_PAUSE_S * 2 ** min(server.failures - 1, 16), LONGEST_PAUSE_S)
            server.resting_until = now + max(pause, retry_after_s or 0.0)
            server.closed_until = now + (retry_after_s or 0.0)

    def answered(self, server: Server) -> None:
        """A server did its work: it is healthy again."""
        if server.failures:
            with self._lock:
                server.failures, server.resting_until, server.closed_until = 0, 0.0, 0.0
