"""What servers ask of one another; every request is signed by a peer on the list (``http.peer_signature``).

Nothing here needs a client's token, and no client may call it. A banned peer is answered 403.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from fl_core.dag.acts import encode_signed_acts
from fl_core.errors import CursorUnknownError, GossipFrameError, ModelPrunedError, UnknownError
from fl_core.models import Buffer
from fl_core.sync.messages import (
    MAX_CHANGES,
    Acts,
    Changes,
    CursorUnknown,
    GetActs,
    GetChanges,
    GetTransactions,
    ReconcileAnswer,
    ReconcileFrame,
    Transactions,
)
from fl_core.types import Digest, TxId
from fl_core.wire import gossip_v1 as wire
from fl_core.wire import v1
from ledger_server.api.dependencies import CURRENT, HexPath, LatelyDep, ServerDep
from ledger_server.api.documentation import binary, problems
from ledger_server.api.json_response import answer
from ledger_server.api.model_response import BytesResponse, accepted_base, bytes_response
from ledger_server.api.models import MODEL_ANSWERS, model_bytes
from ledger_server.api.parsing import json_body
from ledger_server.api.serializers import peer_out
from ledger_server.gossip.framing import (
    LENGTH,
    MAX_TOGETHER_BYTES,
    NOT_HERE,
    PRUNED,
    TRANSACTIONS_MEDIA_TYPE,
    decode_announcement,
    encode_transactions,
)
from ledger_server.gossip.runtime import Gossip
from ledger_server.http.access import MAX_PEER_BODY, Access, PeerDep, requires, verified_peer
from ledger_server.http.body import read_body
from ledger_server.http.problems import Problem
from ledger_server.http.threads import in_worker

_BYTES: Final = "application/octet-stream"


async def _gossip(request: Request) -> Gossip:
    """The running gossip, for a peer that may ask it."""
    peer = await verified_peer(request)
    gossip = request.app.state.gossip
    assert isinstance(gossip, Gossip), "create_app sets it"
    if not gossip.knows(peer.public_key):
        raise Problem("peer-banned", "this server does not speak to this peer; ask its operator why")
    gossip.heard(peer.public_key)
    return gossip


GossipDep = Annotated[Gossip, Depends(_gossip)]
router: APIRouter = APIRouter(tags=["gossip"], dependencies=[Depends(_gossip)])


@router.post(wire.ANNOUNCEMENTS, status_code=204, summary="Say what came in")
@requires(Access.PEER)
async def announce(request: Request, peer: PeerDep, gossip: GossipDep) -> Response:
    """A peer holds these transactions; this server fetches the models that did not come along."""
    body = await read_body(request, limit=MAX_PEER_BODY)
    gossip.announced(peer.public_key, decode_announcement(body))
    return Response(status_code=204)


@router.get(wire.PEERS, response_model=wire.PeersSeenOut, dependencies=[CURRENT], summary="This server's peers")
@requires(Access.PEER)
async def get_peers(gossip: GossipDep, service: LatelyDep) -> Response:
    """What this server knows of its peers, for people who look at another one."""
    seen = [peer_out(state) for state in gossip.peers()[: wire.MAX_PEERS_SHOWN]]
    return answer(wire.PeersSeenOut(transactions=len(service.ledger), items=seen))


@router.get(
    wire.CHANGES,
    response_model=wire.ChangesOut,
    responses=problems(410),
    dependencies=[CURRENT],
    summary="Ids in order of arrival",
)
@requires(Access.PEER)
async def changes(
    gossip: GossipDep,
    after: Annotated[str | None, Query(max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_CHANGES)] = MAX_CHANGES,
) -> Response:
    """What came to this server after a cursor that it gave."""
    page = await in_worker(gossip.answer, GetChanges(after, limit))
    if isinstance(page, CursorUnknown):
        raise CursorUnknownError("the cursor is of another journal; start again without one")
    assert isinstance(page, Changes), "what answers GetChanges"
    return answer(wire.ChangesOut(ids=list(page.ids), next=page.next, more=page.more))


@router.post(
    wire.TRANSACTIONS,
    response_class=Response,
    responses={200: binary(TRANSACTIONS_MEDIA_TYPE, "Transactions as bytes.")},
    summary="Transactions by id",
)
@requires(Access.PEER)
async def get_transactions(request: Request, peer: PeerDep, gossip: GossipDep, server: ServerDep) -> Response:
    """Headers, signatures and attachments; what does not fit into one answer is asked for again."""
    asked = await json_body(request, wire.TransactionsRequest)
    found = await in_worker(gossip.answer, GetTransactions(tuple(map(TxId, asked.ids))))
    assert isinstance(found, Transactions), "what answers GetTransactions"
    data = encode_transactions(found.found, found.unknown)
    server.metrics.gossip_served_bytes.labels(peer.name, "transactions").inc(len(data))
    return Response(data, media_type=TRANSACTIONS_MEDIA_TYPE)


@router.get(wire.MODEL, response_class=Response, responses=MODEL_ANSWERS, summary="A model for a peer")
@requires(Access.PEER)
async def get_model(
    digest: HexPath, request: Request, peer: PeerDep, service: LatelyDep, server: ServerDep
) -> Response:
    """A transaction's model; ``Range`` goes on where an earlier fetch broke off; ``Accept`` may name a base."""
    base = accepted_base(request.headers)
    if base is not None and "range" not in request.headers:
        coded = await in_worker(service.aggregates.coded, Digest(digest), base)
        if coded is not None:
            server.metrics.gossip_served_bytes.labels(peer.name, "model").inc(len(coded))
            headers = {"content-length": str(len(coded)), "vary": "accept"}
            return BytesResponse(memoryview(coded), status=200, headers=headers, media_type=v1.STEP_MEDIA_TYPE)
    data = await model_bytes(service, Digest(digest))
    response = bytes_response(Digest(digest), data, method="GET", request_headers=request.headers)
    sent = int(response.headers.get("content-length", "0"))
    server.metrics.gossip_served_bytes.labels(peer.name, "model").inc(sent)
    return response


@router.post(
    wire.MODELS,
    response_class=Response,
    responses={200: binary(_BYTES, "Each model after its length; 0: not here, 2^32 - 1: pruned.")},
    summary="Several small models",
)
@requires(Access.PEER)
async def get_models(request: Request, peer: PeerDep, service: LatelyDep, server: ServerDep) -> Response:
    """In the order asked; those beyond 4 MiB are left out and asked for again."""
    asked = await json_body(request, wire.ModelsRequest)

    def read() -> bytes:
        parts: list[Buffer] = []
        for digest in asked.digests[: MAX_TOGETHER_BYTES // service.genesis.layout.nbytes]:
            try:
                model = service.aggregates.model(Digest(digest))
            except ModelPrunedError:
                parts.append(LENGTH.pack(PRUNED))
            except UnknownError:
                parts.append(LENGTH.pack(NOT_HERE))
            else:
                parts += [LENGTH.pack(len(model)), model]
        return b"".join(parts)

    data = await in_worker(read)
    server.metrics.gossip_served_bytes.labels(peer.name, "model").inc(len(data))
    return Response(data, media_type=_BYTES)


@router.get(
    wire.SUMMARY,
    response_class=Response,
    responses={200: binary(_BYTES, "The summary and its signature.")},
    summary="What this server holds, signed",
)
@requires(Access.PEER)
async def summary(gossip: GossipDep) -> Response:
    """Equal summaries mean equal ledgers."""
    return Response(gossip.signed_summary(), media_type=_BYTES)


@router.post(
    wire.RECONCILIATION,
    response_class=Response,
    responses={200: binary(_BYTES, "A frame in answer.")},
    summary="One frame of reconciliation",
)
@requires(Access.PEER)
async def reconcile(request: Request, gossip: GossipDep) -> Response:
    """For large ledgers that differ in little."""
    frame = bytes(await read_body(request, limit=MAX_PEER_BODY))
    reply = gossip.answer(ReconcileFrame(frame))
    assert isinstance(reply, ReconcileAnswer), "what answers ReconcileFrame"
    return Response(reply.frame, media_type=_BYTES)


@router.get(
    wire.CHECKPOINT,
    response_class=Response,
    responses={200: binary(_BYTES, "Length, signed checkpoint, ids below its horizon."), **problems()},
    summary="What stands for models that were pruned",
)
@requires(Access.PEER)
async def checkpoint(peer: PeerDep, gossip: GossipDep, server: ServerDep) -> Response:
    """For a peer that joins and needs models that nobody serves any more."""
    data = await in_worker(gossip.checkpoint)
    server.metrics.gossip_served_bytes.labels(peer.name, "checkpoint").inc(len(data))
    return Response(data, media_type=_BYTES)


@router.post(
    wire.ACTS,
    response_class=Response,
    responses={200: binary(_BYTES, "Signed acts, one behind the other.")},
    summary="Acts that the peer lacks",
)
@requires(Access.PEER)
async def get_acts(request: Request, gossip: GossipDep) -> Response:
    """All but those whose digests the body names, 32 bytes each; as many as fit into one answer."""
    body = bytes(await read_body(request, limit=MAX_PEER_BODY))
    if len(body) % 32:
        raise GossipFrameError("digests have 32 bytes each")
    found = gossip.answer(GetActs(tuple(Digest(body[at : at + 32].hex()) for at in range(0, len(body), 32))))
    assert isinstance(found, Acts), "what answers GetActs"
    return Response(encode_signed_acts(found.acts), media_type=_BYTES)
