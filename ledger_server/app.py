"""``create_app``: the only place where a server's parts meet. Nothing is global, so several fit in a process.

    app = create_app(load_settings(data_dir="site-a"))

The app owns what it opens: the store and the listeners' streams end with its lifespan.
"""

import logging
import os
import time
from asyncio import Event, create_task, wait
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

from anyio.to_thread import current_default_thread_limiter, run_sync
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import RedirectResponse

from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.api import (
    console,
    events,
    gossip,
    health,
    ledger,
    models,
    operator,
    pages,
    selections,
    transactions,
    views,
)
from ledger_server.api.documentation import EVERYWHERE, describe
from ledger_server.api.listings import Listings
from ledger_server.build import build
from ledger_server.election import Election, election_of
from ledger_server.following import Following
from ledger_server.gossip.authorities import authorities
from ledger_server.gossip.runtime import Gossip
from ledger_server.http.access import RequestGuard
from ledger_server.http.middleware import RequestMiddleware
from ledger_server.http.peer_signature import PeerVerifier
from ledger_server.http.problems import register
from ledger_server.http.state import ServerState
from ledger_server.keys import key_file
from ledger_server.leading import Leading
from ledger_server.members import Membership
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer, noted_peers, peers_of, retire_key, retired_keys
from ledger_server.pruning import DAY_MS, HOUR_MS, AutomaticPruning
from ledger_server.publishing import LedgerService
from ledger_server.quotas import Quotas
from ledger_server.serving_key import claim, serving_key
from ledger_server.settings import Settings
from ledger_server.store import open_store_of
from ledger_server.tokens import FILE, TokenFile
from ledger_server.tracing import HOW_REQUESTS_ARE_TRACED

logger: logging.Logger = logging.getLogger(__name__)

MODULES: Final = (selections, models, transactions, ledger, views, operator, gossip, events, health, pages, console)
"""The modules of routes, in the order in which they are tried."""


HOW_PAGES_ASK: Final[dict[str, Any]] = {
    "allow_methods": ("GET", "HEAD", "POST"),
    "allow_headers": ("Authorization", "If-None-Match", "If-Range", "Last-Event-ID", "Range", "X-Request-Id"),
    "expose_headers": ("Content-Range", "ETag", "Link", "Location", "Repr-Digest", "Retry-After", "X-Request-Id"),
    "allow_private_network": True,  # a page of elsewhere asks a server of its user's machine
    "max_age": 7200,  # seconds for which a browser need not ask again; more than that it does not believe
}
"""What a web page of ``cors_origins`` may send and read."""


def now_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def _ms(value: float | None, unit_ms: int) -> int | None:
    return None if value is None else int(value * unit_ms)


def create_app(
    settings: Settings,
    *,
    key: Ed25519PrivateKey | None = None,
    clock_ms: Callable[[], int] = now_ms,
    place: int = 0,
    alone: bool = False,
    source: Callable[[], v1.ViewSourceOut] | None = None,
    offered: Callable[[TxId], list[v1.OfferedOut] | None] = lambda _: None,
) -> FastAPI:
    """A server for the ledger in ``settings.resolved_database_url``.

    Args:
        settings: All settings.
        key: The server's key; default: ``keys.server_key``.
        clock_ms: Milliseconds since 1970 UTC; tests bring their own.
        place: A number of this process's own among those that serve from the data folder.
        alone: Whether it speaks to no other server, whatever members the ledger lists.
        source: What the console is told of where the ledger comes from; default: from this server.
        offered: Who was compared for an update whose selection is not in the ledger, as of a simulation.

    Raises:
        StoreError: The database cannot be opened, or is behind (the message names the command).
        GenesisError: It holds no ledger.
        ParameterError: The key, the tokens, or the file of the peers' authorities cannot be read.
    """
    trust = None if settings.peers_ca_file is None else authorities(settings.peers_ca_file)
    tokens = TokenFile(settings.data_dir / FILE, now_ms=clock_ms)
    tokens.records()  # so that a damaged file stops the start
    with ExitStack() as opened:  # closed here if anything below fails, else when the lifespan ends
        store = open_store_of(settings, upgrade=True)
        opened.callback(store.close)
        own_key = key or serving_key(store, settings)
        service = LedgerService(
            store,
            key=own_key,
            now_ms=clock_ms,
            cache_bytes=settings.cache.model_bytes,
            quotas=Quotas(per_author=settings.quota.author_updates, per_token=settings.quota.token_updates),
        )
        opened.callback(service.close)
        claim(store, service.acts, service.public_key, file=key_file(settings))
        state = ServerState(settings, Metrics(build=build(), ledger=service.id), on_drain=[service.listeners.close])
        service.alarms.on_alarm = lambda alarm: state.metrics.alarms.labels(alarm.kind).inc()
        metrics = state.metrics
        store.database.on_written = metrics.write_lock_s.observe
        metrics.measured(metrics.token_ends_s, tokens.next_end_s)
        metrics.measured(metrics.cache_bytes, lambda: service.models.cached_bytes)
        metrics.measured(metrics.event_streams, lambda: len(service.listeners))
        noted = noted_peers(settings.data_dir)

        def peers() -> tuple[Peer, ...]:
            if alone:
                return ()
            members = service.acts.members(service.public_key)
            return peers_of(service.public_key, members, configured=settings.peers, noted=noted)

        verifier = PeerVerifier(
            service.public_key,
            peers(),
            started_s=clock_ms() // 1000,
            retired=retired_keys(settings.data_dir),
            on_retired=lambda former: retire_key(settings.data_dir, former),
        )
        guard = RequestGuard(
            api_routes(),
            server=state,
            tokens=tokens,
            peers=verifier,
            now_s=lambda: clock_ms() / 1000,
        )
        pruning = AutomaticPruning(
            service,
            keep_ms=_ms(settings.prune.keep_days, DAY_MS),
            pack_ms=_ms(settings.prune.pack_after_hours, HOUR_MS),
            every_s=settings.prune.every_s,
            now_ms=clock_ms,
            on_pruned=state.metrics.count_pruned,
        )
        service.on_decided = pruning.wake
        election = election_of(store.database)
        opened.callback(election.resign)

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            workers = current_default_thread_limiter()
            workers.total_tokens = settings.worker_threads
            metrics.measured(metrics.queue_length, lambda: state.threads.waiting + workers.statistics().tasks_waiting)
            async with AsyncExitStack() as running:
                running.callback(resources.close)
                following, gossip = app.state.following, app.state.gossip
                await running.enter_async_context(_at_work(gossip, following, pruning, election, metrics))
                facts = {
                    **build(),
                    "ledger": service.id,
                    "data_dir": str(settings.data_dir.absolute()),
                    "peers": [peer.name for peer in peers()],
                    "pid": os.getpid(),
                }
                logger.info("server started", extra=facts)
                yield
            logger.info("server stopped", extra={"ledger": service.id})

        app = _api(lifespan, docs_enabled=settings.docs_enabled, guard=guard)
        app.state.service, app.state.server, app.state.operator = (
            service,
            state,
            operator.Tools(partial(Membership, store, key=own_key, acts=service.acts), tokens, clock_ms),
        )
        app.state.source, app.state.offered = (
            source or partial(v1.ViewSourceOut, kind="server", ledger=service.id, page=console.page_digest()),
            offered,
        )
        app.state.following, app.state.listings = Following(service.follow), Listings(service)
        app.state.gossip = Gossip(
            service,
            key=own_key,
            peers=peers,
            overlay=settings.overlay,
            is_coded=settings.peers_coded,
            on_peers=lambda found: verifier.set_peers(found, since_s=clock_ms() // 1000),
            metrics=state.metrics,
            data_dir=settings.data_dir,
            place=place,
            leader_has_caught_up=election.has_caught_up,
            trust=trust,
            now_ms=clock_ms,
        )
        register(app, rejected=state.metrics.rejected)
        if settings.cors_origins:
            app.add_middleware(CORSMiddleware, allow_origins=settings.cors_origins, **HOW_PAGES_ASK)
        app.add_middleware(RequestMiddleware, server=state)
        resources = opened.pop_all()
    return app


def create_console(settings: Settings, source: Callable[[], v1.ViewSourceOut]) -> FastAPI:
    """The console alone, for results without a ledger."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.state.source, app.state.server = source, ServerState(settings)
    app.include_router(console.router)
    app.add_api_route(v1.VIEW_SOURCE, views.get_source)
    app.add_api_route("/", lambda: RedirectResponse("/ui/"))
    register(app, rejected=app.state.server.metrics.rejected)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])  # no page by a name of its own
    app.add_middleware(RequestMiddleware, server=app.state.server)
    return app


@asynccontextmanager
async def _at_work(
    gossip: Gossip, following: Following, pruning: AutomaticPruning, election: Election, metrics: Metrics
) -> AsyncIterator[None]:
    """What goes on beside requests, until the block ends."""
    ending, leading = Event(), Leading(election, gossip, pruning, on_look=metrics.refresh)
    await leading.look()
    gossip.start()
    looks = [create_task(following.until(ending)), create_task(leading.until(ending))]
    try:
        yield
    finally:
        ending.set()
        await wait(looks)  # not cancelled: their threads would still read
        await gossip.stop()
        await run_sync(pruning.stop)


def api_routes() -> list[APIRoute]:
    """Every route of the API, in the order in which they are tried."""
    return [route for module in MODULES for route in module.router.routes if isinstance(route, APIRoute)]


def openapi_document() -> dict[str, Any]:
    """What ``/openapi.json`` answers on every server of this version, without a ledger; docs/openapi.json holds it."""
    return _api(None, docs_enabled=True).openapi()


def _operation_id(route: APIRoute) -> str:
    """What a generated client calls a route: its function's name, which GET and HEAD share, and peers' routes too."""
    prefix = "gossip_" if "gossip" in route.tags else ""
    return f"{prefix}{route.name}{'_head' if route.methods == {'HEAD'} else ''}"


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            describe(super().openapi(), api_routes())
        assert self.openapi_schema is not None, "made by the line above"
        return self.openapi_schema


def _api(
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None,
    *,
    docs_enabled: bool,
    guard: RequestGuard | None = None,
) -> FastAPI:
    app = _Api(
        title="DAG-ACFL ledger server",
        summary="Federated learning without a coordinator, without rounds, without a preset number of clusters.",
        version="1",
        lifespan=lifespan,
        responses=EVERYWHERE,
        dependencies=[] if guard is None else [Depends(guard)],
        docs_url=None,  # FastAPI's page takes its script from elsewhere; ``api.pages`` has ours
        redoc_url=None,
        telemetry=HOW_REQUESTS_ARE_TRACED,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,  # a redirect would repeat a token of the query, and a Host that nobody has checked
        openapi_url="/openapi.json" if docs_enabled else None,
    )
    for module in MODULES:
        app.include_router(module.router)
    return app
