"""What routes' functions share: the ledger, the server's state, ids in paths, cursors, work with peers' help."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Path, Query, Request
from prometheus_client import Counter, Histogram

from fl_core.errors import CursorUnknownError, DagAcflError, ParentsUnknownError, TransactionUnknownError
from fl_core.types import TxId
from ledger_server.api.listings import Listings
from ledger_server.following import Following
from ledger_server.gossip.runtime import Gossip
from ledger_server.http.access import holder_of
from ledger_server.http.problems import Problem
from ledger_server.http.state import ServerState
from ledger_server.http.threads import in_worker
from ledger_server.publishing import LedgerService

MAX_PAGE: Final = 1000
DEFAULT_PAGE: Final = 100

T = TypeVar("T")


# The three routes of a round call these themselves: solving what they depend on costs FastAPI a fifth of a request.


def service_lately(request: Request) -> LedgerService:
    """As ``LatelyDep``."""
    service = request.app.state.service
    assert isinstance(service, LedgerService), "create_app sets it"
    return service


async def service_now(request: Request) -> LedgerService:
    """As ``ServiceDep``."""
    following = request.app.state.following
    assert isinstance(following, Following), "create_app sets it"
    await following.now()
    return service_lately(request)


def server_of(request: Request) -> ServerState:
    """As ``ServerDep``."""
    server = request.app.state.server
    assert isinstance(server, ServerState), "create_app sets it"
    return server


def gossip_of(request: Request) -> Gossip:
    """As ``GossipDep``."""
    gossip = request.app.state.gossip
    assert isinstance(gossip, Gossip), "create_app sets it"
    return gossip


def listings_of(request: Request) -> Listings:
    """As ``ListingsDep``."""
    listings = request.app.state.listings
    assert isinstance(listings, Listings), "create_app sets it"
    return listings


# ``async`` although they wait for nothing: FastAPI would run each in a worker thread.


async def _service_lately(request: Request) -> LedgerService:
    return service_lately(request)


async def _server(request: Request) -> ServerState:
    return server_of(request)


async def _gossip(request: Request) -> Gossip:
    return gossip_of(request)


ServiceDep = Annotated[LedgerService, Depends(service_now)]
"""The ledger that this app serves, with all that any process had published when the request came."""
LatelyDep = Annotated[LedgerService, Depends(_service_lately)]
"""The same as of a moment ago: for what never changes, or asks again itself."""
ServerDep = Annotated[ServerState, Depends(_server)]
"""The app's settings, metrics and state."""
CURRENT: Final = Depends(service_now)
"""As ``ServiceDep``, for a route that asks something else."""


async def _listings(request: Request, _: ServiceDep) -> Listings:
    return listings_of(request)


ListingsDep = Annotated[Listings, Depends(_listings)]
"""The ledger's lists of tips and clients, likewise."""
GossipDep = Annotated[Gossip, Depends(_gossip)]
"""The app's gossip, also where there are no peers yet."""
Brief = Annotated[bool, Query(description="Leave out what a small device needs for no further call.")]
"""``?brief=1`` of a route."""
HexPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]


async def run_with_peers(work: Callable[[], T], *, gossip: Gossip, request: Request) -> T:
    """Do the work in a thread; when transactions are unknown and peers can bring them, once more.

    A client may have come from another server: what it was told there may be on its way.
    """
    try:
        return await in_worker(work)
    except (TransactionUnknownError, ParentsUnknownError) as error:
        unknown = error.missing if isinstance(error, ParentsUnknownError) else (error.transaction,)
        if not await gossip.seek([TxId(each) for each in unknown], client=holder_of(request.scope)):
            raise
        return await in_worker(work)


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
            Problem: 422 for what is no cursor.
            CursorUnknownError: It is another journal's.
        """
        if cursor is None:
            return -1
        epoch, _, arrival = cursor.partition("-")
        if not (arrival.isascii() and arrival.isdigit() and len(arrival) <= 18) or len(epoch) != 16:
            raise Problem("query-invalid", "after must be a cursor from an earlier page")
        if epoch != self._epoch:
            raise CursorUnknownError("the cursor is of another journal; start again without one")
        return int(arrival)
