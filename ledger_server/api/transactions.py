"""Publish a model as a transaction, and read the ledger's transactions."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator
from starlette.responses import Response

from fl_core.dag.author import shown_author
from fl_core.node import Publication
from fl_core.types import AuthorId, Digest, PublicKey, TxId
from fl_core.wire import v1
from ledger_server.api.dependencies import (
    DEFAULT_PAGE,
    MAX_PAGE,
    Brief,
    Cursors,
    HexPath,
    ServiceDep,
    gossip_of,
    measured,
    run_with_peers,
    server_of,
    service_lately,
)
from ledger_server.api.documentation import binary, named, problems
from ledger_server.api.json_response import answer
from ledger_server.api.model_response import bytes_response
from ledger_server.api.models import MODEL_ANSWERS
from ledger_server.api.parsing import publication_form
from ledger_server.api.serializers import transaction_out
from ledger_server.http.access import Access, hold, name_caller, name_update, requires, token_of
from ledger_server.selecting import ForwardedEvidence

router: APIRouter = APIRouter(tags=["transactions"])

_REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["transaction", "model"],
                    "additionalProperties": False,
                    "properties": {
                        "transaction": named(v1.PublishRequest),
                        "model": {"type": "string", "format": "binary"},
                    },
                },
                "encoding": {
                    "transaction": {"contentType": "application/json"},
                    "model": {"contentType": f"{v1.MODEL_MEDIA_TYPE}, {v1.STEP_MEDIA_TYPE}"},
                },
            }
        },
    }
}


@router.post(
    v1.TRANSACTIONS,
    status_code=201,
    response_model=v1.TransactionOut,
    responses={
        200: {"model": v1.TransactionOut, "description": "This very transaction was here before."},
        **problems(404, 409),
    },
    openapi_extra=_REQUEST_BODY,
    summary="Publish a trained model",
)
@requires(Access.WRITE)
async def publish(request: Request, *, brief: Brief = False) -> Response:
    """Two parts: ``transaction`` (JSON) and ``model`` (safetensors, or coded). Acknowledged only once it is durable.

    Publishing the same bytes again is answered 200 with the same transaction.
    """
    service, server = service_lately(request), server_of(request)
    asked, model, is_coded = await publication_form(request, model_bytes=service.genesis.layout.nbytes)
    if is_coded:
        hold(request.scope, service.genesis.layout.nbytes)
    with measured(server.metrics.published, server.metrics.publish_s) as outcome:
        forwarded = None if asked.evidence is None else _forwarded(asked.evidence)
        publication, token = _publication(asked), token_of(request.scope)
        if token is not None and token.authors:
            author = shown_author(publication.author, secret=publication.secret)
            token.check_author(author, service.acts.authors)
        by = None if token is None else token.id
        work = partial(service.publish, publication, model, is_coded=is_coded, forwarded=forwarded, token=by)
        published = await run_with_peers(work, gossip=gossip_of(request), request=request)
        outcome(published.created)
    transaction = published.view.stored.transaction
    name_update(request.scope, transaction.id, transaction.header.author)
    # A repetition may be anybody's who has read the first.
    if published.created and transaction.author_signature is not None:
        name_caller(request.scope, transaction.header.author)
    headers = {"location": v1.path(v1.TRANSACTION, transaction=published.transaction)}
    status = 201 if published.created else 200
    return answer(transaction_out(published.view), status=status, headers=headers, brief=brief)


def _publication(asked: v1.PublishRequest) -> Publication:
    return Publication(
        num_examples=asked.num_examples,
        selection=None if asked.selection is None else Digest(asked.selection),
        parents=None if asked.parents is None else tuple(TxId(parent) for parent in asked.parents),
        start=None if asked.start is None else Digest(asked.start),
        noise_std=asked.noise_std,
        metrics=asked.metrics,
        extensions={name: bytes.fromhex(value) for name, value in asked.extensions.items()},
        secret=asked.secret,
        author=None if asked.author is None else AuthorId(asked.author),
        sequence=asked.sequence,
        created_at_ms=asked.created_at_ms,
        signature=None if asked.signature is None else bytes.fromhex(asked.signature),
        claimed_id=None if asked.id is None else TxId(asked.id),
        claimed_model=None if asked.model_digest is None else Digest(asked.model_digest),
    )


def _forwarded(evidence: v1.CarriedEvidence) -> ForwardedEvidence:
    return ForwardedEvidence(
        evidence.document.encode("utf-8"), PublicKey(evidence.issuer), bytes.fromhex(evidence.signature)
    )


def _digits_only(value: object) -> object:
    # int("1_000") and int("١") are numbers to Python; a query says digits or is refused.
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise ValueError("must be a whole number in digits")
    return value


Limit = Annotated[
    int,
    BeforeValidator(_digits_only),
    Query(ge=1, le=MAX_PAGE, description="At most so many transactions."),
]
After = Annotated[str | None, Query(max_length=64, description="Cursor of an earlier page's next; none: from genesis.")]


@router.get(
    v1.TRANSACTIONS,
    response_model=v1.TransactionPage,
    responses=problems(410),
    summary="Transactions in order of arrival",
)
@requires(Access.READ)
def list_transactions(service: ServiceDep, after: After = None, limit: Limit = DEFAULT_PAGE) -> Response:
    """A page of transactions, parents always before children; follow ``next`` until it is null."""
    cursors = Cursors(service)
    views = service.page(after=cursors.decode(after), limit=limit + 1)
    items, more = views[:limit], len(views) > limit
    following = cursors.encode(items[-1].stored.arrival) if more else None
    headers = {}
    if following is not None:
        headers["link"] = f'<{v1.TRANSACTIONS}?after={following}&limit={limit}>; rel="next"'
    page = v1.TransactionPage(items=[transaction_out(view) for view in items], next=following)
    return answer(page, headers=headers)


@router.get(
    v1.TRANSACTION,
    response_model=v1.TransactionOut,
    responses=problems(404),
    summary="One transaction",
)
@requires(Access.READ)
def get_transaction(transaction: HexPath, service: ServiceDep) -> Response:
    """A transaction with its signatures and its exact header bytes."""
    return answer(transaction_out(service.view(TxId(transaction))))


@router.get(
    v1.TRANSACTION_MODEL,
    response_class=Response,
    responses=MODEL_ANSWERS,
    summary="A transaction's model",
)
@router.head(v1.TRANSACTION_MODEL, response_class=Response, responses=MODEL_ANSWERS)
@requires(Access.READ)
def get_transaction_model(transaction: HexPath, request: Request, service: ServiceDep) -> Response:
    """The model's bytes, as under its digest."""
    digest = service.view(TxId(transaction)).stored.transaction.header.model_digest
    return bytes_response(
        digest, service.aggregates.model(digest), method=request.method, request_headers=request.headers
    )


@router.get(
    v1.TRANSACTION_HEADER,
    response_class=Response,
    responses={200: binary("application/octet-stream", "The header."), **problems(404)},
    summary="A transaction's exact header bytes",
)
@requires(Access.READ)
def get_transaction_header(transaction: HexPath, service: ServiceDep) -> Response:
    """The canonical bytes whose domain-separated SHA-256 is the transaction's id."""
    stored = service.view(TxId(transaction)).stored
    return Response(stored.transaction.header_bytes, media_type="application/octet-stream")


@router.get(
    v1.TRANSACTION_ATTACHMENT,
    response_class=Response,
    responses={200: binary("application/json", "Genesis document or selection evidence."), **problems(404, 410)},
    summary="A transaction's attachment",
)
@requires(Access.READ)
def get_transaction_attachment(transaction: HexPath, service: ServiceDep) -> Response:
    """The exact bytes that the header's attachment digest names."""
    return Response(service.attachment(TxId(transaction)), media_type="application/json")
