"""Fetch models and aggregates by the SHA-256 of their bytes."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from fl_core.models import Buffer
from fl_core.types import Digest
from fl_core.wire import v1
from ledger_server.api.dependencies import HexPath, server_of, service_lately
from ledger_server.api.documentation import binary, problems
from ledger_server.api.model_response import bytes_response
from ledger_server.http.access import Access, requires
from ledger_server.http.threads import in_worker
from ledger_server.publishing import LedgerService

router: APIRouter = APIRouter(tags=["models"])

MODEL_ANSWERS = {
    200: binary(v1.MODEL_MEDIA_TYPE, "The whole model."),
    206: binary(v1.MODEL_MEDIA_TYPE, "The range that was asked for."),
    304: {"description": "The client's copy is current; content-addressed bytes always are."},
    307: {"description": "With `redirect=true`: the bytes are at `Location`, for five minutes."},
    **problems(404, 410, 416),
}


@router.get(
    v1.MODEL,
    response_class=Response,
    responses=MODEL_ANSWERS,
    summary="A model's bytes",
)
@router.head(v1.MODEL, response_class=Response, responses=MODEL_ANSWERS)
@requires(Access.READ)
async def get_model(
    digest: HexPath,
    request: Request,
    *,
    redirect: Annotated[bool, Query(description="Whether a redirect to the server's bucket will do.")] = False,
) -> Response:
    """The safetensors bytes that hash to ``digest``: a transaction's model, or an aggregate."""
    service = service_lately(request)
    may_redirect = redirect and request.method == "GET" and server_of(request).settings.blobs.redirect
    if may_redirect and "if-none-match" not in request.headers:
        link = await in_worker(service.store.link, Digest(digest))
        if link is not None:  # not an average, which lies in no bucket
            return RedirectResponse(link, 307, {"cache-control": "no-store"})
    data = await model_bytes(service, Digest(digest))
    return bytes_response(Digest(digest), data, method=request.method, request_headers=request.headers)


async def model_bytes(service: LedgerService, digest: Digest) -> Buffer:
    """A model's bytes; what is in memory needs no thread. Raises as ``Aggregates.model``."""
    data = service.models.cached(digest)
    return await in_worker(service.aggregates.model, digest) if data is None else data
