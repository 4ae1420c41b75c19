"""What pages draw of a ledger: parts of its journal as columns, and what is recorded of one update."""

from math import isnan
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from fl_core.dag.figures import decode_figures
from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.api.dependencies import HexPath, ServiceDep
from ledger_server.api.documentation import problems
from ledger_server.api.json_response import JsonResponse, answer
from ledger_server.api.model_response import matches
from ledger_server.api.serializers import alarm_out
from ledger_server.http.access import Access, requires
from ledger_server.publishing import LedgerService
from ledger_server.windows import MOST

router: APIRouter = APIRouter(tags=["views"])

_LAST = 1 << 62
Arrival = Annotated[int, Query(ge=0, le=_LAST)]
Most = Annotated[int, Query(ge=1, le=MOST, description="Of more updates, evenly spaced ones are shown.")]


@router.get(v1.VIEW_SOURCE, response_model=v1.ViewSourceOut, summary="What the console shows, and which page it is")
@requires(Access.READ)
def get_source(request: Request) -> Response:
    """The ledger and the console's own version; of a simulation's results, its runs' rounds too."""
    return answer(request.app.state.source())


@router.get(
    v1.VIEW_UPDATES,
    response_model=v1.UpdatesViewOut,
    responses={304: {"description": "What the client has is current."}, **problems(410)},
    summary="A part of the journal, for drawing",
)
@requires(Access.READ)
def get_updates(
    request: Request, service: ServiceDep, first: Arrival = 0, end: Arrival = _LAST, most: Most = MOST
) -> Response:
    """Updates in order of arrival, from ``first`` on and before ``end``, in columns."""
    length = len(service.ledger)
    tag = f'W/"{service.epoch[:16]}-{length}-{first}-{min(end, length)}-{most}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return JsonResponse(service.windows.updates(first, end, most=most), headers=headers)


@router.get(
    v1.VIEW_UPDATE,
    response_model=v1.UpdateViewOut,
    responses=problems(404),
    summary="What a server has recorded of an update",
)
@requires(Access.READ)
def get_update(transaction: HexPath, service: ServiceDep) -> Response:
    """Its place, norms and shares, as computed when it was admitted; taint and alarms as of now."""
    return answer(_update_out(TxId(transaction), service))


def _update_out(transaction: TxId, service: LedgerService) -> v1.UpdateViewOut:
    stored = service.view(transaction).stored
    figures, header = decode_figures(stored.figures), stored.transaction.header
    lengths = () if figures.step is None else figures.step.by_tensor
    with service.lock:
        taint = service.node.offering.taint(stored.node)
        is_withheld = service.node.offering.withholds(stored.node)
    return v1.UpdateViewOut(
        transaction=transaction,
        arrival=stored.arrival,
        norm=None if isnan(figures.norm) else figures.norm,
        step=None if figures.step is None else figures.step.norm,
        tensors=[
            v1.TensorStepOut(tensor=tensor.name, step=length)
            for tensor, length in zip(service.genesis.layout.tensors, lengths, strict=False)
        ],
        parents=[
            v1.StepShareOut(transaction=parent, share=share)
            for parent, share in zip(header.parents, figures.shares, strict=False)
        ],
        taint=taint,
        is_withheld=is_withheld,
        alarms=[alarm_out(each) for each in service.alarms.standing() if each.update == transaction],
    )
