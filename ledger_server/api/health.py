"""Whether the server lives and can serve, what it is, its metrics, and what its problems mean."""

import shutil
from contextlib import suppress
from importlib.metadata import version

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from fl_core.errors import ERRORS_BY_CODE
from fl_core.wire import v1
from ledger_server.api.documentation import problems
from ledger_server.api.errors import CATALOGUE
from ledger_server.api.requests import EdgeDep, NoQuery, ServiceDep
from ledger_server.api.serializers import answer
from ledger_server.http.access import Access, needs
from ledger_server.http.problem_types import PROBLEM_TYPES
from ledger_server.http.problems import Problem
from ledger_server.metrics import CONTENT_TYPE
from ledger_server.store.errors import StoreError

router = APIRouter(tags=["operations"])


@router.get("/healthz", response_model=v1.HealthOut, responses=problems(), dependencies=[NoQuery])
@needs(Access.OPEN)
async def healthz() -> Response:
    """The process lives; answered without a worker thread, as all of these may be at work."""
    return answer(v1.HealthOut(status="ok"))


@router.get("/readyz", response_model=v1.HealthOut, responses=problems(), dependencies=[NoQuery])
@needs(Access.OPEN)
def readyz(service: ServiceDep) -> Response:
    """The database answers. While the server stops, its edge answers 503 here."""
    service.store.check()
    return answer(v1.HealthOut(status="ok", checks={"store": "ok", "ledger": service.id}))


@router.get("/version", response_model=v1.VersionOut, responses=problems(), dependencies=[NoQuery])
@needs(Access.OPEN)
def get_version(service: ServiceDep) -> Response:
    """What runs here."""
    return answer(
        v1.VersionOut(
            name="dag-acfl",
            version=version("dag-acfl"),
            api="v1",
            ledger=service.id,
            public_key=service.public_key,
        )
    )


@router.get("/metrics", response_class=Response, responses=problems(), dependencies=[NoQuery])
@needs(Access.METRICS)
def get_metrics(service: ServiceDep, edge: EdgeDep) -> Response:
    """Prometheus metrics."""
    count, header_bytes = service.header_bytes()
    model_bytes = service.genesis.layout.nbytes
    edge.metrics.transactions.set(count)
    edge.metrics.tips.set(service.tip_count())
    edge.metrics.cache_bytes.set(service.cached_bytes())
    edge.metrics.listeners.set(service.announcements.listeners())
    edge.metrics.paper_storage_bytes.set(count * model_bytes + header_bytes)
    with suppress(StoreError, OSError):  # of a disk that fails the last figures stay; /readyz says that it fails
        edge.metrics.free_bytes.set(shutil.disk_usage(edge.settings.data_dir).free)
        edge.metrics.storage_bytes.set(service.store.storage_bytes())
        edge.metrics.pruned_models.set(service.store.pruned_models())
    return Response(edge.metrics.exposition(), media_type=CONTENT_TYPE)


@router.get("/problems/{code}", response_class=HTMLResponse, include_in_schema=False)
@needs(Access.OPEN)
def get_problem(code: str) -> Response:
    """What a problem type means."""
    if code in ERRORS_BY_CODE:
        text = (ERRORS_BY_CODE[code].__doc__ or "").strip()
    elif code in CATALOGUE:
        text = f"{CATALOGUE[code].title}."
    elif code in PROBLEM_TYPES:
        text = PROBLEM_TYPES[code].meaning
    else:
        raise Problem(404, "not-found", "no such problem type")
    return HTMLResponse(f"<!doctype html><title>{code}</title><h1>{code}</h1><p>{text}</p>")
