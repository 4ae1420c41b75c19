"""What pages draw of a ledger: parts of its journal as columns or counts, what is found, what is known of an update."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from math import isnan
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from fl_core.dag.figures import decode_figures
from fl_core.errors import DagAcflError
from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.api.dependencies import GossipDep, HexPath, LatelyDep, ServiceDep
from ledger_server.api.documentation import problems
from ledger_server.api.json_response import JsonResponse, PackedJson, answer, answer_unless_known
from ledger_server.api.serializers import alarm_out, peer_out
from ledger_server.gossip.runtime import Gossip
from ledger_server.gossip.views import PeerView
from ledger_server.http.access import Access, requires
from ledger_server.http.admission import too_busy
from ledger_server.http.problems import Problem
from ledger_server.journal_index import EVERYTHING, Axis, Filter, Lanes, begins
from ledger_server.publishing import LedgerService
from ledger_server.windows import MOST

router: APIRouter = APIRouter(tags=["views"])

_LAST = 1 << 62
_FOUND = 20
_KNOWN: dict[int | str, dict[str, str]] = {304: {"description": "What the client has is current."}}
Arrival = Annotated[int, Query(ge=0, le=_LAST)]
Most = Annotated[int, Query(ge=1, le=MOST, description="Of more updates, evenly spaced ones are shown.")]
Columns = Annotated[int, Query(ge=1, le=1000)]
Beginning = Annotated[str, Query(pattern="^(key:|hash:)?[0-9a-f]{0,64}$", max_length=69)]
Digits = Annotated[str, Query(pattern="^[0-9a-f]{0,64}$", max_length=64)]
Time = Annotated[int | None, Query(ge=0, le=_LAST, description="Milliseconds since 1970.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """What updates a page asks for, among all of the journal: all that it says must hold.

    Args:
        author: How its author's id begins.
        cluster: A place among those of ``/v1/clusters``.
        server: How the key of the server begins that it was published to.
        since: When it was received, or later.
        until: It was received before that.
        tips: Nobody names it as a parent yet.
        tainted: It has a quarantined step in it.
    """

    author: Beginning = ""
    cluster: Annotated[int | None, Query(ge=0, le=_LAST)] = None
    server: Digits = ""
    since: Time = None
    until: Time = None
    tips: bool = False
    tainted: bool = False

    def filter(self, service: LedgerService) -> Filter:
        """The same by authors instead of a cluster's place, which another update may change."""
        authors = None
        if self.cluster is not None:
            clusters = _clusters(service).clusters
            authors = frozenset(clusters[self.cluster].authors if self.cluster < len(clusters) else ())
        return Filter(self.author, authors, self.server, self.since, self.until, self.tips, self.tainted)


def _clusters(service: LedgerService) -> v1.ClustersOut:
    if (found := service.clusters.lately()) is None:
        raise too_busy()
    return found


AskedDep = Annotated[Asked, Depends()]


@router.get(v1.VIEW_SOURCE, response_model=v1.ViewSourceOut, summary="What the console shows, and which page it is")
@requires(Access.READ)
def get_source(request: Request) -> Response:
    """The ledger and the console's own version; of a simulation's results, its runs' rounds too."""
    try:
        return answer(request.app.state.source())
    except DagAcflError as error:  # a run that was sound at the start
        raise Problem("source-damaged", str(error)) from error


@router.get(
    v1.VIEW_UPDATES,
    response_model=v1.UpdatesViewOut,
    responses={**_KNOWN, **problems(410)},
    summary="A part of the journal, for drawing",
)
@requires(Access.READ)
def get_updates(
    request: Request,
    service: ServiceDep,
    asked: AskedDep,
    *,
    first: Arrival = 0,
    end: Arrival = _LAST,
    most: Most = MOST,
) -> Response:
    """Updates in order of arrival, from ``first`` on and before ``end``, in columns: all, or those asked for."""
    only = asked.filter(service)
    if only != EVERYTHING:
        return _unless_busy(service.windows.only(only, first, end, most=most))
    length = len(service.ledger)
    tag = f'W/"{service.epoch[:16]}-{length}-{first}-{min(end, length)}-{most}"'
    return answer_unless_known(request, tag, lambda: JsonResponse(service.windows.part(first, end, most=most)))


@router.get(
    v1.VIEW_DENSITY,
    response_model=v1.DensityViewOut,
    responses=problems(410),
    summary="How many updates there are where, for drawing",
)
@requires(Access.READ)
def get_density(
    service: ServiceDep,
    asked: AskedDep,
    *,
    by: Lanes = "author",
    over: Axis = "order",
    first: Arrival = 0,
    end: Arrival = _LAST,
    columns: Columns = 300,
) -> Response:
    """Counts by author, cluster or server, over order, depth or time, of more updates than can be drawn one by one."""
    clusters = _clusters(service) if by == "cluster" else None
    only = asked.filter(service)
    return _unless_busy(
        service.windows.density(first, end, by=by, over=over, columns=columns, clusters=clusters, asked=only)
    )


def _unless_busy(made: str | None) -> Response:
    if made is None:
        raise too_busy()
    return JsonResponse(made)


@router.get(
    v1.VIEW_SEARCH,
    response_model=v1.SearchViewOut,
    summary="Updates and authors by the beginning of their ids",
)
@requires(Access.READ)
def search(
    service: ServiceDep, text: Annotated[str, Query(pattern="^(key:|hash:)?[0-9a-f]{1,64}$", max_length=69)]
) -> Response:
    """Of the whole ledger, in order: at most 20 updates, and 20 authors."""
    updates = [] if ":" in text else service.beginning_with(text, limit=_FOUND + 1)
    with service.lock:
        nodes = [*service.node.graph.newest_nodes()]
    authors = nsmallest(_FOUND + 1, (node.author for node in nodes if begins(node.author, text)))
    found = [
        v1.FoundUpdateOut(
            transaction=stored.transaction.id, arrival=stored.arrival, author=stored.transaction.header.author
        )
        for stored in updates[:_FOUND]
    ]
    is_all = max(len(updates), len(authors)) <= _FOUND
    return answer(v1.SearchViewOut(updates=found, authors=[*authors[:_FOUND]], is_all=is_all))


@router.get(
    v1.VIEW_UPDATE,
    response_model=v1.UpdateViewOut,
    responses=problems(404),
    summary="What a server has recorded of an update",
)
@requires(Access.READ)
def get_update(request: Request, transaction: HexPath, service: ServiceDep) -> Response:
    """Its place, norms and shares, as computed when it was admitted; taint and alarms as of now."""
    return answer(_update_out(TxId(transaction), service, request.app.state.offered))


def _update_out(
    transaction: TxId, service: LedgerService, offered: Callable[[TxId], list[v1.OfferedOut] | None]
) -> v1.UpdateViewOut:
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
        offered=offered(transaction),
    )


@router.get(
    v1.VIEW_SERVERS,
    response_model=v1.ServersViewOut,
    responses=_KNOWN,
    summary="The servers as they see one another",
)
@requires(Access.READ)
async def get_servers(request: Request, service: LatelyDep, gossip: GossipDep) -> Response:
    """This server, and each neighbour, which this one asks, as a member, at most every five seconds: as of then."""
    shown = await gossip.views.lately(partial(_servers, service, gossip))
    return shown.response(request)


def _servers(service: LedgerService, gossip: Gossip, asked: Sequence[PeerView]) -> PackedJson:
    own = v1.ServerViewOut(
        name="this server",
        url=None,
        public_key=service.public_key,
        transactions=len(service.ledger),
        peers=[peer_out(state) for state in gossip.peers()],
    )
    others = [
        v1.ServerViewOut(
            name=view.peer.name,
            url=view.peer.url,
            public_key=view.peer.public_key,
            transactions=None if view.said is None else view.said.transactions,
            peers=[] if view.said is None else view.said.items,
            problem=view.problem,
        )
        for view in asked
    ]
    return PackedJson(v1.ServersViewOut(ledger=service.id, servers=[own, *others]).model_dump_json().encode())
