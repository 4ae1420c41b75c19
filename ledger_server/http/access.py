"""What is checked of every request that a route will answer, before the route's function runs.

    @router.get(v1.TIPS, ...)
    @requires(Access.READ)
    def get_tips(...): ...

``RequestGuard`` is a dependency of the whole application: who asks, whether there is room for one more request, and
that the query has only the parameters that the route's function takes. What a declaration means is the table of
docs/protocol.md: a bearer token where the settings ask for one, an operator's for what changes the server, a peer's
signature under ``/v1/gossip/``. A route without a declaration stops the server from starting.

Whether a signature verifies is decided in ``http.peer_signature``, which token is valid in ``tokens``.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial, wraps
from inspect import iscoroutinefunction
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.types import Scope

from fl_core.types import AuthorId, TxId
from fl_core.wire import v1
from ledger_server import tracing
from ledger_server.http.body import read_body
from ledger_server.http.limits import TimedExchange
from ledger_server.http.peer_signature import PeerVerifier
from ledger_server.http.problems import Problem
from ledger_server.http.state import EXCHANGE, ServerState
from ledger_server.http.threads import in_worker
from ledger_server.peers import Peer
from ledger_server.settings import Guarded, is_loopback
from ledger_server.tokens import Scope as TokenScope
from ledger_server.tokens import TokenFile, TokenRecord

_REALM: Final = 'Bearer realm="dag-acfl"'
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*)")
_TOKEN_NAMES: Final = ("access_token", "token")
MAX_PEER_BODY: Final = 1 << 20
"""Largest body of a peer's request, in bytes."""
_DECLARED: Final = "dag_acfl_access"
_CALLER: Final = "caller"
_RECORD: Final = "token_record"
_UPDATE: Final = "update"


class Access(Enum):
    """What a route asks of who calls it."""

    OPEN = "open"
    """Nothing, ever: supervisors, and what explains the API."""
    READ = "reads"
    """A token where the settings ask for one for ``reads``."""
    WRITE = "writes"
    """A token where the settings ask for one for ``writes``."""
    METRICS = "metrics"
    """A monitor's token, or an operator's, where the settings ask for one for ``metrics``."""
    OPERATE = "operate"
    """An operator's token, always."""
    PEER = "peer"
    """A signature of a peer on the list, always."""


def requires(access: Access) -> Callable[[Callable[..., object]], Callable[..., Awaitable[object]]]:
    """Declare what a route asks; stands directly above its function, which is done in a worker thread unless async."""

    def declare(function: Callable[..., object]) -> Callable[..., Awaitable[object]]:
        @wraps(function)
        async def endpoint(**arguments: object) -> object:
            return await in_worker(partial(function, **arguments))

        found: Callable[..., Awaitable[object]] = function if iscoroutinefunction(function) else endpoint
        setattr(found, _DECLARED, access)
        return found

    return declare


def access_of(route: APIRoute) -> Access:
    """What a route declares.

    Raises:
        TypeError: It declares nothing; a fault of the program.
    """
    access = getattr(route.endpoint, _DECLARED, None)
    if not isinstance(access, Access):
        raise TypeError(f"route {route.path} does not say who may call it; put @requires(...) above its function")
    return access


def name_caller(scope: Scope, caller: str) -> None:
    """Say who has been found to call, for the log; what was found first stays.

    Args:
        scope: The request's.
        caller: ``token:NAME``, ``peer:NAME`` or an author's id; never the credential itself.
    """
    scope.setdefault("state", {}).setdefault(_CALLER, caller)


def caller_of(scope: Scope) -> str | None:
    """Who calls, where something proved it."""
    caller = scope.get("state", {}).get(_CALLER)
    return caller if isinstance(caller, str) else None


def token_of(scope: Scope) -> TokenRecord | None:
    """The token by which a request was let through; None where none was asked for."""
    record = scope.get("state", {}).get(_RECORD)
    return record if isinstance(record, TokenRecord) else None


def _know(scope: Scope, caller: str) -> None:
    """Who calls is known, before anything of the body is read: what the request holds counts as theirs.

    Not so for an author, whom a publication shows: in an open ledger, each connection could bring a new one.
    """
    name_caller(scope, caller)
    _exchange_of(scope).belongs_to(caller)


def holder_of(scope: Scope) -> str:
    """Whose a request is, for what it may make the server do: who has been found to call, or its address."""
    return _exchange_of(scope).holder


def hold(scope: Scope, size: int) -> None:
    """Count what a request's body unfolds to as if it had come so (``TimedExchange.hold``)."""
    _exchange_of(scope).hold(size)


def _exchange_of(scope: Scope) -> TimedExchange:
    exchange = scope["state"][EXCHANGE]
    assert isinstance(exchange, TimedExchange), "RequestMiddleware sets it"
    return exchange


def name_update(scope: Scope, transaction: TxId, author: AuthorId) -> None:
    """Say which update a request has brought, for the log and the trace.

    Args:
        scope: The request's.
        transaction: Its id.
        author: Its author, who need not have proved to be the caller.
    """
    scope.setdefault("state", {})[_UPDATE] = about = {"transaction": transaction, "author": author}
    tracing.describe(about)


def update_of(scope: Scope) -> Mapping[str, str]:
    """Which update a request has brought; nothing where it brought none."""
    update = scope.get("state", {}).get(_UPDATE)
    return update if isinstance(update, dict) else {}


def _query_names(of: Dependant) -> Iterator[str]:
    """The names of a route's query parameters, those of what it depends on included."""
    yield from (field.alias for field in of.query_params)
    for each in of.dependencies:
        yield from _query_names(each)


@dataclass(frozen=True, slots=True)
class _Rule:
    """What one route asks."""

    access: Access
    token_scope: TokenScope | None
    query_names: frozenset[str]


class RequestGuard:
    """Lets a request through to its route's function, or refuses it; a FastAPI dependency.

    Args:
        routes: All routes of the application.
        server: The server's settings and state.
        tokens: Knows who may pass where a token is asked for.
        peers: Checks peers' signatures; one that knows no peers refuses all.
        now_s: Seconds since 1970 UTC.

    Raises:
        TypeError: A route declares nothing.
    """

    def __init__(
        self,
        routes: Sequence[APIRoute],
        *,
        server: ServerState,
        tokens: TokenFile,
        peers: PeerVerifier,
        now_s: Callable[[], float],
    ) -> None:
        self._server, self._tokens, self._peers, self._now_s = server, tokens, peers, now_s
        settings = server.settings
        self._is_for_here = not (settings.is_reached_by_others or settings.public)
        """Whether programs of this machine alone may ask."""
        self._rules = {
            route.endpoint: _Rule(
                access_of(route),
                _scope_required(access_of(route), server.settings.needs_token_for),
                frozenset(_query_names(route.dependant)),
            )
            for route in routes
        }

    async def __call__(self, request: Request) -> None:
        """Check one request.

        Raises:
            Problem: 400 for a token in the URL; 401 or 403 for the caller; 421 for a page of elsewhere; 422 for the
                query; 503 when too many requests are in progress.
            StoreUnavailableError: The tokens cannot be read.
        """
        rule = self._rules[request.scope["endpoint"]]
        if any(name in request.query_params for name in _TOKEN_NAMES):
            detail = "send the token as Authorization: Bearer …; a URL ends up in logs and histories"
            raise Problem("token-in-query", detail)
        if rule.access is Access.OPERATE:
            _check_own_page(request)
        if rule.access is Access.PEER:
            await self._check_peer(request)
        elif rule.token_scope is not None:
            await self._check_token(request, rule.token_scope)
        elif rule.access is not Access.OPEN:
            self._check_place(request)
        if request.scope["path"] not in v1.SUPERVISION:
            self._check_room(request)
        _refuse_unknown_query(request, rule.query_names)

    def _check_place(self, request: Request) -> None:
        """See that no page of elsewhere asks, in a browser of this machine, where to be on this machine is enough.

        Such a page reaches the server by a name of its own that leads to 127.0.0.1 (DNS rebinding), or by a form.
        """
        if not self._is_for_here:
            return
        settings = self._server.settings
        places = [f"//{host}" for host in request.headers.getlist("host")]
        places += [origin for origin in request.headers.getlist("origin") if origin not in settings.cors_origins]
        if not all(map(_is_here, places)):
            raise Problem(
                "elsewhere",
                "this server serves programs of its machine and asks no token, so it answers to 127.0.0.1, [::1] and "
                "localhost alone; for others set host, trusted_proxies, auth.required_for, or public; for a web page "
                "cors_origins",
            )

    def _check_room(self, request: Request) -> None:
        """See that a request finds room whose caller its connection did not know."""
        exchange, path = _exchange_of(request.scope), request.scope["path"]
        if exchange.admitted_path != path:
            problem = self._server.admission.refusal(request.method, path, exchange.holder, is_counted=True)
            if problem is not None:
                raise problem

    async def _check_token(self, request: Request, wanted: TokenScope) -> None:
        given = request.headers.getlist("authorization")
        if not given:
            if "signature-input" in request.headers:
                raise Problem("credentials-mismatch", "this route takes a bearer token, not a peer's signature")
            raise Problem(
                "token-required",
                "this server asks for a bearer token here; its operator makes one with: dag-acfl tokens create",
                headers={"www-authenticate": _REALM},
            )
        match = _BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
        record = await self._tokens.find(match[1]) if match is not None else None
        if record is None:
            raise Problem(
                "token-invalid",
                "the bearer token is malformed, unknown to this server, expired or revoked",
                headers={"www-authenticate": f'{_REALM}, error="invalid_token"'},
            )
        _know(request.scope, f"token:{record.name}")
        request.scope["state"][_RECORD] = record
        if not record.scope.covers(wanted):
            raise Problem(
                "token-scope",
                f"this route asks for a token of scope {wanted}",
                headers={"www-authenticate": f'{_REALM}, error="insufficient_scope", scope="{wanted}"'},
            )

    async def _check_peer(self, request: Request) -> None:
        """See that a peer signed the request; keeps the peer and the body in the request's state."""
        if "authorization" in request.headers and "signature-input" not in request.headers:
            raise Problem("credentials-mismatch", "this route takes a peer's signature, not a bearer token")
        scope = request.scope
        head = self._peers.head(
            method=scope["method"],
            path=(scope.get("raw_path") or scope["path"].encode()).decode("latin-1"),
            query=scope["query_string"].decode("latin-1"),
            fields=scope["headers"],
            now_s=self._now_s(),
        )
        _know(scope, f"peer:{head.peer.name}")
        body = await read_body(request, limit=MAX_PEER_BODY)
        head.check_body(body)
        request.state.peer, request.state.body = head.peer, body


def _check_own_page(request: Request) -> None:
    """See that no page of another origin does what operators do, not even one of ``cors_origins`` that has a token.

    A browser says where a page is from in Sec-Fetch-Site, which a proxy leaves as it is; over plain HTTP to a host's
    name it says Origin alone.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_own = (
        site in ("same-origin", "none")
        if site is not None
        else origin is None or origin.partition("//")[2] == request.headers.get("host")
    )
    if not is_own:
        raise Problem("elsewhere", "what operators do is done by pages of this server alone, and by programs")


def _scope_required(access: Access, required_for: Collection[Guarded]) -> TokenScope | None:
    """The scope that a token must have for a route of this kind; None where none is asked for."""
    if access is Access.OPERATE:
        return TokenScope.OPERATOR
    if access in (Access.READ, Access.WRITE, Access.METRICS) and access.value in required_for:
        return TokenScope.METRICS if access is Access.METRICS else TokenScope.CLIENT
    return None


@lru_cache(64)  # programs of this machine say the same again and again
def _is_here(place: str) -> bool:
    """Whether the host of a URL can only be this machine."""
    try:
        return is_loopback(urlsplit(place).hostname or "")
    except ValueError:
        return False


def _refuse_unknown_query(request: Request, names: frozenset[str]) -> None:
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in names or name in seen:
            known = f"known: {', '.join(sorted(names))}" if names else "there are none"
            fault = "stands twice" if name in seen else f"is unknown; {known}"
            raise Problem("query-invalid", f"query parameter {name[:40]!r} {fault}")
        seen.add(name)


async def verified_peer(request: Request) -> Peer:
    """The peer that signed this request."""
    peer = request.state.peer
    assert isinstance(peer, Peer), "the guard has checked it"
    return peer


PeerDep = Annotated[Peer, Depends(verified_peer)]
"""The peer that signed this request, for a route that declares ``@requires(Access.PEER)``."""
