"""Live events: every admitted transaction as a server-sent event, resumable by ``Last-Event-ID``, and what is odd.

Pages that draw the ledger are told ten times a second at most, where many listen five times, of all that has come since
in one event. What they are told is settled for all of them at the same times, so that it is made once; it is sent to
one after another, so that a publication never waits until all of them have it.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from fl_core.errors import CursorUnknownError
from fl_core.wire import v1
from ledger_server.api.dependencies import Cursors, ServiceDep
from ledger_server.api.documentation import problems
from ledger_server.api.serializers import alarm_out, transaction_out
from ledger_server.http.access import Access, requires
from ledger_server.http.threads import in_worker
from ledger_server.publishing import LedgerService
from ledger_server.reading import TransactionView
from ledger_server.windows import MOST

router: APIRouter = APIRouter(tags=["events"])

_HEARTBEAT_S: Final = 15.0
_ALIVE: Final = ": alive\n\n"
_PAGE: Final = 100
_TOLD_EVERY_S: Final = 0.1
_MANY: Final = 20
_MANY_TOLD_EVERY_S: Final = 0.2
"""What is written to a page costs 0.1 ms of a core, so to 50 pages ten times a second a twentieth of it."""
_APART_S: Final = 0.001
_LAST_S: Final = 0.06
"""Pages are told so long behind one another, and none later than that."""
_MOST_MISSED: Final = 4 * MOST
"""Updates that a page is sent again: one request for a stream would else cost a million updates' columns."""


@router.get(
    v1.EVENTS,
    response_class=Response,
    responses={
        200: {
            "description": "Events named `transaction`; `id` is a cursor for Last-Event-ID, `data` the transaction. "
            "Behind a late one that something is odd about, events named `alarm`, without an `id`.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **problems(410),
    },
    summary="Transactions as they are admitted",
)
@requires(Access.READ)
async def get_events(request: Request, service: ServiceDep) -> Response:
    """Without ``Last-Event-ID`` the stream starts now; with it, after that event. A slow reader is cut off."""
    arrival = _last_heard(request, service)
    return _streaming(_stream(service, Cursors(service), arrival))


@router.get(
    v1.VIEW_EVENTS,
    response_class=Response,
    responses={
        200: {
            "description": "Events named `updates`; `id` is a cursor for Last-Event-ID, `data` what has come since as "
            "`/v1/view/updates` has it.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **problems(410),
    },
    tags=["views"],
    summary="Updates as they come, several at a time, for drawing",
)
@requires(Access.READ)
async def get_view_events(request: Request, service: ServiceDep) -> Response:
    """As ``/v1/events``, in columns and ten times a second at most; who missed over 2,000 is told to begin anew."""
    arrival = _last_heard(request, service)
    if len(service.ledger) - 1 - arrival > _MOST_MISSED:
        raise CursorUnknownError("too much has come since; ask for a part of the updates, and listen without a cursor")
    return _streaming(_columns(service, Cursors(service), arrival))


def _last_heard(request: Request, service: LedgerService) -> int:
    """The arrival that who listens heard of last; of who names none, the newest."""
    last = request.headers.get("last-event-id")
    arrival = Cursors(service).decode(last) if last is not None else len(service.ledger) - 1
    service.check_cursor(arrival)
    return arrival


def _streaming(events: AsyncIterator[str]) -> Response:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _stream(service: LedgerService, cursors: Cursors, arrival: int) -> AsyncIterator[str]:
    with service.listeners.listening() as news:
        yield _connected(cursors, arrival)
        while not service.listeners.closed:
            news.clear()  # before reading: what comes meanwhile sets it again
            while arrival < len(service.ledger) - 1:
                for view in await in_worker(partial(service.page, after=arrival, limit=_PAGE)):
                    arrival = view.stored.arrival
                    yield _event(view, cursors)
                    for alarm in service.alarms.of(view.stored.transaction.id):
                        yield f"event: alarm\ndata: {alarm_out(alarm).model_dump_json()}\n\n"
            if not await _is_woken(news):
                yield _ALIVE


async def _columns(service: LedgerService, cursors: Cursors, arrival: int) -> AsyncIterator[str]:
    now_s = asyncio.get_running_loop().time
    with service.listeners.listening() as news:
        behind_s = min(_LAST_S, _APART_S * len(service.listeners))
        yield _connected(cursors, arrival)
        while not service.listeners.closed:
            news.clear()
            while len(service.ledger) > arrival + 1:
                every_s = _TOLD_EVERY_S if len(service.listeners) < _MANY else _MANY_TOLD_EVERY_S
                await asyncio.sleep(every_s - now_s() % every_s)
                first, end = arrival + 1, min(len(service.ledger), arrival + 1 + MOST)
                await asyncio.sleep(behind_s)
                data = await service.news.of(first, end)
                arrival = end - 1
                yield f"id: {cursors.encode(arrival)}\nevent: updates\ndata: {data}\n\n"
            if not await _is_woken(news):
                yield _ALIVE


def _connected(cursors: Cursors, arrival: int) -> str:
    return f": connected\nid: {cursors.encode(arrival)}\n\n"  # whoever is cut off before the first event has it, too


async def _is_woken(news: asyncio.Event) -> bool:
    """Wait for something new; False: nothing came for so long that the client should be told that it is connected."""
    try:
        await asyncio.wait_for(news.wait(), _HEARTBEAT_S)
    except TimeoutError:
        return False
    return True


def _event(view: TransactionView, cursors: Cursors) -> str:
    cursor = cursors.encode(view.stored.arrival)
    return f"id: {cursor}\nevent: transaction\ndata: {transaction_out(view).model_dump_json()}\n\n"
