"""Live events: every admitted transaction as a server-sent event, resumable by ``Last-Event-ID``, and what is odd."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from fl_core.wire import v1
from ledger_server.api.dependencies import Cursors, ServiceDep
from ledger_server.api.documentation import problems
from ledger_server.api.serializers import alarm_out, transaction_out
from ledger_server.http.access import Access, requires
from ledger_server.http.threads import in_worker
from ledger_server.publishing import LedgerService
from ledger_server.reading import TransactionView

router: APIRouter = APIRouter(tags=["events"])

_HEARTBEAT_S: Final = 15.0
_PAGE: Final = 100


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
    last = request.headers.get("last-event-id")
    cursors = Cursors(service)
    arrival = cursors.decode(last) if last is not None else len(service.ledger) - 1
    service.check_cursor(arrival)
    return StreamingResponse(
        _stream(service, cursors, arrival),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _stream(service: LedgerService, cursors: Cursors, arrival: int) -> AsyncIterator[str]:
    with service.listeners.listening() as news:
        yield f": connected\nid: {cursors.encode(arrival)}\n\n"  # whoever is cut off before the first event has it, too
        while not service.listeners.closed:
            news.clear()  # before reading: what comes meanwhile sets it again
            while arrival < len(service.ledger) - 1:
                for view in await in_worker(partial(service.page, after=arrival, limit=_PAGE)):
                    arrival = view.stored.arrival
                    yield _event(view, cursors)
                    for alarm in service.alarms.of(view.stored.transaction.id):
                        yield f"event: alarm\ndata: {alarm_out(alarm).model_dump_json()}\n\n"
            try:
                await asyncio.wait_for(news.wait(), _HEARTBEAT_S)
            except TimeoutError:
                yield ": alive\n\n"


def _event(view: TransactionView, cursors: Cursors) -> str:
    cursor = cursors.encode(view.stored.arrival)
    return f"id: {cursor}\nevent: transaction\ndata: {transaction_out(view).model_dump_json()}\n\n"
