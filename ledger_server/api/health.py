"""Whether the server lives and can serve, what it is, its metrics, and what its problems mean."""

import asyncio
import logging
import shutil
import time
from contextlib import suppress

from anyio.to_thread import run_sync
from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from fl_core.errors import ERRORS_BY_CODE
from fl_core.wire import v1
from ledger_server.api.dependencies import GossipDep, LatelyDep, ServerDep
from ledger_server.api.json_response import answer
from ledger_server.build import build
from ledger_server.http.access import Access, requires
from ledger_server.http.problem_types import PROBLEM_TYPES
from ledger_server.http.problems import Problem
from ledger_server.metrics import CONTENT_TYPE
from ledger_server.store.errors import StoreError

logger: logging.Logger = logging.getLogger(__name__)
router: APIRouter = APIRouter(tags=["operations"])


@router.get("/healthz", response_model=v1.HealthOut)
@requires(Access.OPEN)
async def healthz() -> Response:
    """The process lives; answered without a worker thread, as all of these may be at work."""
    return answer(v1.HealthOut(status="ok"))


@router.get("/readyz", response_model=v1.HealthOut)
@requires(Access.OPEN)
async def readyz(service: LatelyDep, server: ServerDep, gossip: GossipDep) -> Response:
    """A client would be served: the database answers, a model finds room, what peers hold is here, no stop is near."""
    server.readiness_asked_s = time.monotonic()
    if server.draining:
        raise Problem("draining", "the server is shutting down")
    try:
        async with server.checking:  # in a thread that no request takes
            await asyncio.to_thread(service.store.check, service.genesis.layout.nbytes)
    except StoreError as error:  # whoever asks needs no token
        logger.error("not ready", extra={"error": error.code, "reason": str(error)})  # noqa: TRY400 -- no bug
        raise Problem(error.code, "nothing can be stored now; the server's log says why") from None
    if not gossip.has_caught_up:
        raise Problem("catching-up", "the server is still fetching what its peers hold")
    return answer(v1.HealthOut(status="ok", checks={"store": "ok", "ledger": service.id}))


@router.get("/version", response_model=v1.VersionOut)
@requires(Access.OPEN)
def get_version(service: LatelyDep) -> Response:
    """What runs here."""
    what = build()
    return answer(
        v1.VersionOut(
            name="dag-acfl",
            version=what["version"],
            commit=what["commit"],
            database_schema=what["schema"],
            api="v1",
            ledger=service.id,
            public_key=service.public_key,
        )
    )


@router.get("/metrics", response_class=Response)
@requires(Access.METRICS)
async def get_metrics(service: LatelyDep, server: ServerDep, gossip: GossipDep) -> Response:
    """Prometheus metrics."""
    metrics = server.metrics

    def measure() -> None:
        count, header_bytes = service.header_bytes()
        metrics.transactions.set(count)
        metrics.tips.set(service.node.graph.tip_count())
        metrics.candidates.set(len(service.node.eligible))
        metrics.most_candidates.set(service.genesis.bounds.max_candidates)
        metrics.acts_waiting.set(len(service.acts.effect.waiting))
        metrics.payload_bytes.set(count * service.genesis.layout.nbytes + header_bytes)
        if gossip.leads:  # others hardly ask them anything
            metrics.show_peers(gossip.peers(), transactions=count)
        with suppress(StoreError, OSError):  # of a disk that fails the last figures stay; /readyz says that it fails
            metrics.free_bytes.set(shutil.disk_usage(server.settings.data_dir).free)
            metrics.log_bytes.set(service.store.database.log_bytes())
            metrics.storage_bytes.set(service.store.storage_bytes())
            metrics.pruned_models.set(service.store.removal.count())

    async with metrics.answering:
        return Response(await run_sync(metrics.exposition, measure), media_type=CONTENT_TYPE)


@router.get("/problems/{code}", response_class=HTMLResponse, include_in_schema=False)
@requires(Access.OPEN)
def get_problem(code: str) -> Response:
    """What a problem type means."""
    if code not in PROBLEM_TYPES:
        raise Problem("not-found", "no such problem type")
    error = ERRORS_BY_CODE.get(code)
    text = f"{PROBLEM_TYPES[code].title}." if error is None else (error.__doc__ or "").strip()
    return HTMLResponse(f"<!doctype html><title>{code}</title><h1>{code}</h1><p>{text}</p>")
