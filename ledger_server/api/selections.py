"""Ask for a selection: by the id of one's newest transaction, or with one's model."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from fl_core.dag.author import AuthorKind, shown_author, split_author
from fl_core.dag.signature import Role, verify
from fl_core.types import AuthorId, Digest, PublicKey, TxId
from fl_core.wire import v1
from ledger_server.api.dependencies import (
    Brief,
    HexPath,
    ServiceDep,
    gossip_of,
    measured,
    run_with_peers,
    server_of,
    service_now,
)
from ledger_server.api.documentation import named, problems
from ledger_server.api.json_response import answer
from ledger_server.api.parsing import UPLOAD_SLACK, json_body
from ledger_server.api.serializers import model_reference, selection_out
from ledger_server.http.access import Access, requires, token_of
from ledger_server.http.body import media_type, read_body
from ledger_server.http.problems import Problem
from ledger_server.http.threads import in_worker

router: APIRouter = APIRouter(tags=["selections"])

_REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": named(v1.SelectRequest)},
            v1.MODEL_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post(
    v1.SELECTIONS,
    status_code=201,
    response_model=v1.SelectionOut,
    responses={
        200: {
            "model": v1.SelectionOut,
            "description": "The same question on the same candidates was answered a moment ago.",
        },
        **problems(404, 410),
    },
    openapi_extra=_REQUEST_BODY,
    summary="Select models and get their average",
)
@requires(Access.WRITE)
async def select(request: Request, *, brief: Brief = False) -> Response:
    """Send ``{"transaction": "<id>"}``; a client that has not published yet sends its model instead.

    The answer names the updates to approve and the digest of their average ([DAG-ACFL Alg. 1], steps 1 to 3).
    """
    service, server = await service_now(request), server_of(request)
    kind = media_type(request)
    if kind == "application/json":
        asked = await json_body(request, v1.SelectRequest)
        work = partial(service.selections.select_for, TxId(asked.transaction))
    elif kind == v1.MODEL_MEDIA_TYPE:
        model = await read_body(request, limit=service.genesis.layout.nbytes + UPLOAD_SLACK)
        work = partial(service.selections.select_with, model)
    else:
        raise Problem(
            "unsupported-media-type",
            f"send application/json with a transaction's id, or {v1.MODEL_MEDIA_TYPE} with a model",
            headers={"accept-post": f"application/json, {v1.MODEL_MEDIA_TYPE}"},
        )
    with measured(server.metrics.selections, server.metrics.selection_s) as outcome:
        record, created = await run_with_peers(work, gossip=gossip_of(request), request=request)
        outcome(created)
    evidence = record.evidence
    server.metrics.aggregates.labels(evidence.selection.source).inc()
    if created and evidence.selection.source == "parents":
        server.metrics.average_models.observe(len(evidence.selection.parents))
        server.metrics.too_few_models.inc(evidence.too_few is not None)
    headers = {"location": v1.path(v1.SELECTION, selection=record.id)}
    return answer(selection_out(record, service), status=201 if created else 200, headers=headers, brief=brief)


@router.get(
    v1.SELECTION,
    response_model=v1.SelectionOut,
    responses=problems(404),
    summary="A selection and its evidence",
)
@requires(Access.READ)
def get_selection(selection: HexPath, service: ServiceDep) -> Response:
    """Why these updates: what was compared, the change-point probabilities, and the cut."""
    return answer(selection_out(service.selections.selection(Digest(selection)), service))


@router.post(
    v1.SELECTION_WITHOUT,
    response_model=v1.ModelReference,
    responses=problems(404, 410),
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": named(v1.AskerRequest)}}}
    },
    summary="The average of a selection without one of its parents",
)
@requires(Access.WRITE)
async def select_without(selection: HexPath, parent: HexPath, request: Request, service: ServiceDep) -> Response:
    """What is left of a selection's average without this parent, for its asker; of this server's latest selections.

    Who trains on the average measures both, and so what that parent is worth to it. At most four parents of a selection
    can be left out, drawn by its id.
    """
    asked, token = await json_body(request, v1.AskerRequest), token_of(request.scope)
    asker = shown_author(None if asked.author is None else AuthorId(asked.author), secret=asked.secret)
    kind, key = split_author(asker)
    if kind is AuthorKind.ED25519:
        verify(PublicKey(key), TxId(selection), bytes.fromhex(asked.signature or ""), role=Role.ASKER)
    if token is not None:
        token.check_author(asker, service.acts.authors)
    digest = await in_worker(partial(service.selections.without, Digest(selection), TxId(parent), asker=asker))
    return answer(model_reference(digest, service.genesis.layout.nbytes))
