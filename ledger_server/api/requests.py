"""What every route does with what it is asked: the service, paths, queries and JSON bodies."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final, NoReturn, TypeVar

from fastapi import Depends, Path, Request
from prometheus_client import Counter, Histogram
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header

from fl_core.errors import DagAcflError
from fl_core.models import Buffer
from ledger_server.gossip.runtime import Gossip
from ledger_server.http import strict_json
from ledger_server.http.problems import Problem
from ledger_server.http.state import Edge
from ledger_server.publishing import LedgerService

MAX_PAGE: Final = 1000
DEFAULT_PAGE: Final = 100
UPLOAD_SLACK: Final = 64 * 1024
"""A model a little too large is still read, so that the refusal can say what is wrong with it."""

M = TypeVar("M", bound=BaseModel)


def service_of(request: Request) -> LedgerService:
    """The ledger that this app serves."""
    service = request.app.state.service
    assert isinstance(service, LedgerService), "create_app sets it"
    return service


def edge_of(request: Request) -> Edge:
    """The app's limits, metrics and state."""
    edge = request.app.state.edge
    assert isinstance(edge, Edge), "create_app sets it"
    return edge


def gossip_of(request: Request) -> Gossip | None:
    """The running gossip; None on a server without peers."""
    gossip: Gossip | None = request.app.state.gossip
    return gossip


async def _service(request: Request) -> LedgerService:
    return service_of(request)


async def _edge(request: Request) -> Edge:
    return edge_of(request)


# What routes depend on is ``async`` although it waits for nothing: FastAPI would run each in a worker thread. Resolving
# it costs 30 microseconds apiece, so the three calls of a round ask for their parts themselves.
ServiceDep = Annotated[LedgerService, Depends(_service)]
EdgeDep = Annotated[Edge, Depends(_edge)]
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


class KnownQuery:
    """Refuses query parameters that the route does not know, or that stand twice."""

    def __init__(self, *names: str) -> None:
        self._names = names

    async def __call__(self, request: Request) -> None:
        """Check one request.

        Raises:
            Problem: 422.
        """
        seen: set[str] = set()
        for name, _ in request.query_params.multi_items():
            if name not in self._names or name in seen:
                known = f"known: {', '.join(self._names)}" if self._names else "there are none"
                fault = "stands twice" if name in seen else f"is unknown; {known}"
                raise Problem(422, "query-invalid", f"query parameter {name[:40]!r} {fault}")
            seen.add(name)


NoQuery = Depends(KnownQuery())


async def refuse_query(request: Request) -> None:
    """As ``NoQuery``, for routes that check it themselves."""
    if request.scope["query_string"]:
        await KnownQuery()(request)


def parse_json(body: Buffer, message: type[M]) -> M:
    """A JSON body as a message, strictly: nothing unknown, nothing coerced.

    Raises:
        Problem: 400 for what is no JSON, 422 for JSON that is refused.
    """
    value = strict_json.loads(body)
    try:
        return message.model_validate(value)
    except ValidationError as error:
        _refuse(error)


def _refuse(error: ValidationError) -> NoReturn:
    errors = [
        {"where": "/".join(map(str, fault["loc"])) or "body", "why": fault["msg"]}
        for fault in error.errors(include_url=False, include_input=False, include_context=False)[:20]
    ]
    first = f"{errors[0]['where']}: {errors[0]['why']}"
    raise Problem(422, "request-invalid", first, extensions={"errors": errors}) from error


def media_type(request: Request) -> str:
    """The request's media type, without parameters, lower case.

    Raises:
        Problem: 415 for another charset than UTF-8.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":
        raise Problem(415, "unsupported-media-type", "bodies are UTF-8")
    return kind.decode("latin-1").lower()


def declared_bytes(request: Request, *, limit: int) -> int:
    """The body's size as the request states it, at most ``limit``; 0 when it does not."""
    stated = request.headers.get("content-length", "")
    return min(int(stated), limit) if stated.isascii() and stated.isdigit() and len(stated) <= 18 else 0


class Received:
    """Bytes as they come, in one buffer of the size that was declared.

    A buffer that grows would be moved, all of it, each time that its place is too small.

    Args:
        declared: The size that is expected, in bytes.
    """

    def __init__(self, declared: int = 0) -> None:
        self._data = bytearray(declared)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, piece: bytes | memoryview) -> None:
        """Put the next bytes behind the others; more than was declared makes the buffer grow."""
        end = self._size + len(piece)
        self._data[self._size : end] = piece
        self._size = end

    def take(self) -> Buffer:
        """The bytes, without what was declared and did not come; this object is empty afterwards."""
        data, self._data = self._data, bytearray()
        size, self._size = self._size, 0
        del data[size:]
        return data


async def body_of(request: Request, *, limit: int) -> Buffer:
    """The whole body.

    Raises:
        Problem: 413 when it exceeds ``limit`` bytes.
    """
    received = Received(declared_bytes(request, limit=limit))
    async for chunk in request.stream():
        if len(received) + len(chunk) > limit:
            raise Problem(413, "body-too-large", f"the body exceeds {limit} bytes")
        received.add(chunk)
    return received.take()


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
