"""What the ledger as a whole looks like: its rules, tips, clusters, clients, peers and costs."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from fl_core.dag.acts import encode_signed_acts
from fl_core.wire import v1
from ledger_server.api.dependencies import (
    Brief,
    GossipDep,
    ListingsDep,
    ServerDep,
    ServiceDep,
    gossip_of,
    listings_of,
    server_of,
    service_lately,
)
from ledger_server.api.documentation import binary
from ledger_server.api.json_response import PackedJson, answer, answer_unless_known, tag_of
from ledger_server.api.serializers import alarm_out, model_reference, peer_out, quarantine_out, transaction_out
from ledger_server.gossip.runtime import Gossip
from ledger_server.http.access import Access, requires
from ledger_server.http.admission import too_busy
from ledger_server.http.state import ServerState
from ledger_server.http.threads import in_worker
from ledger_server.publishing import LedgerService

router: APIRouter = APIRouter(tags=["ledger"])

_KNOWN: Final[dict[int | str, dict[str, str]]] = {304: {"description": "Nothing was published since."}}
_HASH_BYTES: Final = 32
_ROUND: Final = (v1.SELECTIONS, v1.MODEL, v1.TRANSACTIONS)
"""The routes of a client's round."""
_KINDS: Final = {
    v1.SELECTIONS: "selections",
    v1.MODEL: "models and averages",
    v1.TRANSACTION_MODEL: "models and averages",
    v1.TRANSACTIONS: "publications",
    v1.EVENTS: "events",
    v1.VIEW_EVENTS: "events",
}
"""What is moved for what; beside it is what peers say to one another, and what else is read."""


@router.get(
    v1.GENESIS,
    response_model=v1.GenesisOut,
    summary="The ledger's rules and initial model",
)
@requires(Access.READ)
def get_genesis(service: ServiceDep, *, brief: Brief = False) -> Response:
    """The genesis document: model layout, selector, aggregator, training hints, policy."""
    view = service.view(service.id)
    header = view.stored.transaction.header
    message = v1.GenesisOut(
        ledger=service.id,
        name=service.genesis.name,
        document=json.loads(service.genesis.document),
        document_href=v1.path(v1.TRANSACTION_ATTACHMENT, transaction=service.id),
        model=model_reference(header.model_digest, header.model_size),
        transaction=transaction_out(view),
    )
    return answer(message, brief=brief)


@router.get(
    v1.TIPS,
    response_model=v1.TipsOut,
    responses=_KNOWN,
    summary="Transactions that nobody approves yet",
)
@requires(Access.READ)
def get_tips(request: Request, listings: ListingsDep) -> Response:
    """All tips, ascending by id."""
    return listings.tips.response(request)


@router.get(
    v1.CLUSTERS,
    response_model=v1.ClustersOut,
    responses=_KNOWN,
    summary="Communities of the approval graph",
)
@requires(Access.READ)
def get_clusters(request: Request, service: ServiceDep) -> Response:
    """Who approves whom among the latest 20,000 transactions: Louvain communities, and modularity (DAG-ACFL, Eq. 6)."""
    if (found := service.clusters.lately()) is None:
        raise too_busy()
    return answer_unless_known(request, tag_of(service, found.transactions), lambda: answer(found))


@router.get(
    v1.CLIENTS,
    response_model=v1.ClientsOut,
    responses=_KNOWN,
    summary="Who has published",
)
@requires(Access.READ)
def get_clients(request: Request, listings: ListingsDep) -> Response:
    """Each author's newest transaction and what it said of itself."""
    return listings.clients.response(request)


@router.get(
    v1.ALARMS,
    response_model=v1.AlarmsOut,
    summary="What is odd about updates",
)
@requires(Access.READ)
def get_alarms(service: ServiceDep) -> Response:
    """Of each author and kind the newest: copies, steps that stand out, averages that nobody is helped by."""
    return answer(_alarms(service))


def _alarms(service: LedgerService) -> v1.AlarmsOut:
    return v1.AlarmsOut(ledger=service.id, items=[alarm_out(each) for each in service.alarms.standing()])


@router.get(
    v1.ACTS,
    response_class=Response,
    responses={200: binary("application/octet-stream", "Signed acts, one behind the other.")},
    summary="What members have decided",
)
@requires(Access.READ)
def get_acts(service: ServiceDep) -> Response:
    """All acts that this server keeps, ascending by id, with the signatures that they have (docs/protocol.md)."""
    return Response(encode_signed_acts(service.acts.all()), media_type="application/octet-stream")


@router.get(
    v1.QUARANTINE,
    response_model=v1.QuarantineOut,
    summary="What is quarantined, and whom that affects",
)
@requires(Access.READ)
def get_quarantine(service: ServiceDep, *, brief: Brief = False) -> Response:
    """Members' quarantines and erasures with their reasons, and the clients that are led back to clean models."""
    return answer(quarantine_out(service), brief=brief)


@router.get(
    v1.PEERS,
    response_model=v1.PeersOut,
    summary="This server's key and its peers",
)
@requires(Access.READ)
def get_peers(service: ServiceDep, gossip: GossipDep) -> Response:
    """The other members whose address is known; without any, the server keeps its ledger alone."""
    return answer(_peers(service, gossip))


def _peers(service: LedgerService, gossip: Gossip) -> v1.PeersOut:
    return v1.PeersOut(public_key=service.public_key, items=[peer_out(state) for state in gossip.peers()])


@router.get(
    v1.COSTS,
    response_model=v1.CostsOut,
    summary="Bytes moved and stored, beside DAG-ACFL's formulas",
)
@requires(Access.READ)
def get_costs(service: ServiceDep, server: ServerDep) -> Response:
    """Measured since this process started, against Eq. 8 (traffic) and Eq. 10 (storage); /metrics has it in parts."""
    return answer(_costs(service, server))


def _costs(service: LedgerService, server: ServerState) -> v1.CostsOut:
    metrics = server.metrics
    received, sent = metrics.totals(metrics.request_bytes), metrics.totals(metrics.response_bytes)
    client_bytes = sum(moved.get(route, 0) for moved in (received, sent) for route in _ROUND)
    publications = metrics.totals(metrics.published).get("created", 0)
    model_bytes, pruned = service.genesis.layout.nbytes, service.store.removal.count()
    count, header_bytes = service.header_bytes()
    return v1.CostsOut(
        ledger=service.id,
        transactions=count,
        model_bytes=model_bytes,
        received_bytes=sum(received.values()),
        sent_bytes=sum(sent.values()),
        publications=publications,
        bytes_per_client_round=client_bytes / publications if publications else None,
        paper_bytes_per_client_round=2 * (_HASH_BYTES + model_bytes),
        storage_bytes=service.store.storage_bytes(),
        ledger_payload_bytes=count * model_bytes + header_bytes,
        pruned_models=pruned,
        pruned_bytes=pruned * model_bytes,
        kinds=_by_kind(received, sent),
        archived=service.store.archived(),
    )


def _by_kind(received: Mapping[str, int], sent: Mapping[str, int]) -> list[v1.MovedOut]:
    found = {kind: Counter[str]() for kind in (*dict.fromkeys(_KINDS.values()), "gossip", "everything else")}
    for route in received.keys() | sent.keys():
        kind = "gossip" if route.startswith("/v1/gossip/") else _KINDS.get(route, "everything else")
        found[kind].update(received=received.get(route, 0), sent=sent.get(route, 0))
    return [v1.MovedOut(kind=kind, received=moved["received"], sent=moved["sent"]) for kind, moved in found.items()]


@router.get(
    v1.VIEW_LEDGER,
    response_model=v1.LedgerViewOut,
    responses=_KNOWN,
    tags=["views"],
    summary="What all views of a page go by beside updates",
)
@requires(Access.READ)
async def get_view(request: Request) -> Response:
    """Clusters, clients, peers, costs, alarms and quarantine at once, as of a moment ago: one answer for all pages."""
    service = service_lately(request)  # not as of now, and no thread, for what most pages are given as it stands
    of = service.acts.effect
    view: PackedJson | None = service.shared.standing(of)
    if view is None:
        view = await in_worker(service.shared.get, of, partial(_view, request, service))
    assert view is not None, "made by the line above"
    return view.response(request)


def _view(request: Request, service: LedgerService) -> PackedJson:
    view = v1.LedgerViewOut(
        clusters=service.clusters.lately(),
        clients=v1.ClientsOut(ledger=service.id, items=[]),
        peers=_peers(service, gossip_of(request)),
        costs=_costs(service, server_of(request)),
        alarms=_alarms(service),
        quarantine=quarantine_out(service),
    )
    rest = view.model_dump_json(exclude={"clients"}).removesuffix("}").encode()
    return PackedJson(rest + b',"clients":' + listings_of(request).clients.now().text + b"}")
