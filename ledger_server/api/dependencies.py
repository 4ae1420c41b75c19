"""What routes' functions take: the ledger, the server's state, ids in paths, cursors."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Depends, Path, Request
from prometheus_client import Counter, Histogram

from fl_core.errors import DagAcflError
from ledger_server.gossip.runtime import Gossip
from ledger_server.http.problems import Problem
from ledger_server.http.state import ServerState
from ledger_server.publishing import LedgerService

MAX_PAGE: Final = 1000
DEFAULT_PAGE: Final = 100


def service_of(request: Request) -> LedgerService:
    """The ledger that this app serves."""
    service = request.app.state.service
    assert isinstance(service, LedgerService), "create_app sets it"
    return service


def server_of(request: Request) -> ServerState:
    """The app's settings, metrics and state."""
    server = request.app.state.server
    assert isinstance(server, ServerState), "create_app sets it"
    return server


def client_of(request: Request) -> str:
    """Whose request it is, for bounds per client: its address."""
    return "" if request.client is None else request.client.host


def gossip_of(request: Request) -> Gossip | None:
    """The running gossip; None on a server without peers."""
    gossip: Gossip | None = request.app.state.gossip
    return gossip


async def _service(request: Request) -> LedgerService:
    return service_of(request)


async def _server(request: Request) -> ServerState:
    return server_of(request)


# What routes depend on is ``async`` although it waits for nothing: FastAPI would run each in a worker thread.
ServiceDep = Annotated[LedgerService, Depends(_service)]
ServerDep = Annotated[ServerState, Depends(_server)]
HexPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]


@contextmanager
def measured(outcomes: Counter, duration_s: Histogram) -> Iterator[Callable[[bool], None]]:
    """Count one piece of work by its outcome (``created``, ``known``, or an error's code) and time it."""
    began_s = time.perf_counter()
    try:
        yield lambda created: outcomes.labels("created" if created else "known").inc()
    except (Problem, DagAcflError) as error:
        outcomes.labels(error.code).inc()
        raise
    finally:
        duration_s.observe(time.perf_counter() - began_s)


class Cursors:
    """Cursors for ``?after=``: the journal's epoch, and the last arrival seen.

    Arrival order is each journal's own, so a cursor of another server, or from before a backup was put back, is
    refused rather than misread.
    """

    def __init__(self, service: LedgerService) -> None:
        self._epoch = service.epoch[:16]

    def encode(self, arrival: int) -> str:
        """The cursor after this arrival."""
        return f"{self._epoch}-{arrival}"

    def decode(self, cursor: str | None) -> int:
        """The arrival that a cursor names; -1 for none.

        Raises:
            Problem: 422 for what is no cursor, 410 for another journal's.
        """
        if cursor is None:
            return -1
        epoch, _, arrival = cursor.partition("-")
        if not (arrival.isascii() and arrival.isdigit() and len(arrival) <= 18) or len(epoch) != 16:
            raise Problem(422, "query-invalid", "after must be a cursor from an earlier page")
        if epoch != self._epoch:
            raise Problem(410, "cursor-unknown", "the cursor is of another journal; start again without one")
        return int(arrival)
