"""Who may call which route: declared beside each route, checked before its body is read.

    @router.get(v1.TIPS, ...)
    @needs(Access.READ)
    def get_tips(...): ...

What a declaration means is the table of docs/protocol.md: a bearer token where the settings ask for one, an operator's
for what changes the server, a peer's signature under ``/v1/gossip/``. A route without a declaration stops the server
from starting. Where nothing has to be checked on any route, there is no ``AccessGate`` at all.

Decides between who asks and what is asked; whether a signature verifies is ``edge.peer_signature``'s, which token is
valid ``tokens``'s.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Protocol, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from fl_core.errors import DagAcflError
from ledger_server.http.peer_signature import CHALLENGE, PeerVerifier
from ledger_server.http.problems import Problem
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer
from ledger_server.settings import Guarded
from ledger_server.tokens import Scope as TokenScope
from ledger_server.tokens import TokenRecord

_REALM: Final = 'Bearer realm="dag-acfl"'
_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*)")
_QUERY_NAMES: Final = ("access_token", "token")
_DECLARED: Final = "dag_acfl_access"
_CALLER: Final = "caller"

Endpoint = TypeVar("Endpoint", bound=Callable[..., object])


class Access(Enum):
    """What a route asks of who calls it."""

    OPEN = "open"
    """Nothing, ever: supervisors, and what explains the API."""
    READ = "reads"
    """A token where ``auth.required_for`` names ``reads``."""
    WRITE = "writes"
    """A token where ``auth.required_for`` names ``writes``."""
    METRICS = "metrics"
    """An operator's token where ``auth.required_for`` names ``metrics``."""
    OPERATE = "operate"
    """An operator's token, always."""
    PEER = "peer"
    """A signature of a peer on the list, always."""


def needs(access: Access) -> Callable[[Endpoint], Endpoint]:
    """Declare what a route asks; stands directly above its function."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _DECLARED, access)
        return endpoint

    return declare


def access_of(route: APIRoute) -> Access:
    """What a route declares.

    Raises:
        TypeError: It declares nothing, or a peer's route does not ask who the peer is; a fault of the program.
    """
    access = getattr(route.endpoint, _DECLARED, None)
    if not isinstance(access, Access):
        raise TypeError(f"route {route.path} does not say who may call it; put @needs(...) above its function")
    if access is Access.PEER and all(each.call is not _verified_peer for each in route.dependant.dependencies):
        raise TypeError(f"route {route.path} is for peers; its function must take a PeerDep")
    return access


class Tokens(Protocol):
    """Where a token's record is looked up; ``ledger_server.tokens.TokenBook``."""

    async def find(self, token: str) -> TokenRecord | None:
        """The record of a token that is valid now, else None; raises a ``DagAcflError`` when it cannot say."""
        ...


def scope_required(access: Access, required_for: Collection[Guarded]) -> TokenScope | None:
    """The scope that a token must have for a route of this kind; None where none is asked for."""
    if access is Access.OPERATE:
        return TokenScope.OPERATOR
    if access in (Access.READ, Access.WRITE, Access.METRICS) and access.value in required_for:
        return TokenScope.OPERATOR if access is Access.METRICS else TokenScope.CLIENT
    return None


@dataclass(frozen=True, slots=True)
class _Rule:
    """One route and what it asks; neither a scope nor a peer: nothing."""

    route: APIRoute
    scope: TokenScope | None
    is_peers: bool


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


class AccessRules:
    """What each route of an application asks under its settings.

    Args:
        routes: The application's routes in the order in which they are tried.
        required_for: ``auth.required_for``.
        has_peers: Whether there is a list of peers; without it ``PeerDep`` refuses all, and nothing is checked here.

    Raises:
        TypeError: A route declares nothing.
    """

    def __init__(self, routes: Sequence[APIRoute], *, required_for: Collection[Guarded], has_peers: bool) -> None:
        self._rules = [
            _Rule(route, scope_required(access, required_for), is_peers=access is Access.PEER and has_peers)
            for route in routes
            for access in [access_of(route)]
        ]
        self.need_tokens = any(rule.scope is not None for rule in self._rules)
        self.check_anything = self.need_tokens or any(rule.is_peers for rule in self._rules)

    def rule_for(self, method: str, path: str) -> _Rule | None:
        """The rule of the route that will answer; None where none will (404, 405)."""
        for rule in self._rules:
            if method in (rule.route.methods or ()) and rule.route.path_regex.match(path):
                return rule
        return None


class AccessGate:
    """Lets a request through to its route, or refuses it; ``EdgeMiddleware`` asks it before anything else reads.

    Args:
        rules: What each route asks.
        metrics: Where refusals are counted.
        tokens: Needed where a rule asks for a token.
        peers: Needed where a rule asks for a peer.
        now_s: Seconds since 1970 UTC.
    """

    def __init__(
        self,
        rules: AccessRules,
        *,
        metrics: Metrics,
        tokens: Tokens | None,
        peers: PeerVerifier | None,
        now_s: Callable[[], float],
    ) -> None:
        self._rules, self._metrics, self._now_s = rules, metrics, now_s
        self._tokens, self._peers = tokens, peers

    async def admit(self, scope: Scope, receive: Receive) -> Receive:
        """Check one request; returns what to receive its body from.

        Raises:
            Problem: 401 or 403; 400 for a token in the URL; 503 when the tokens cannot be read.
        """
        rule = self._rules.rule_for(scope["method"], scope["path"])
        if rule is None:
            return receive
        try:
            if self._tokens is not None:
                _refuse_token_in_query(scope["query_string"])
            if rule.is_peers:
                return await self._check_peer(scope, receive)
            if rule.scope is not None:
                await self._check_token(scope, rule.scope)
        except Problem as problem:
            self._metrics.refusals.labels(problem.code).inc()
            scope["route"] = rule.route  # the label of this refusal in the metrics
            raise
        return receive

    async def _check_token(self, scope: Scope, wanted: TokenScope) -> None:
        assert self._tokens is not None, "create_app brings them where a rule asks for a token"
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if not given:
            if _has(scope, b"signature-input"):
                raise Problem(403, "credentials-mismatch", "this route takes a bearer token, not a peer's signature")
            raise Problem(
                401,
                "token-required",
                "this server asks for a bearer token here; its keeper makes one with: dag-acfl tokens create",
                headers={"www-authenticate": _REALM},
            )
        match = _BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
        try:
            record = await self._tokens.find(match[1].decode("ascii")) if match is not None else None
        except DagAcflError as error:
            raise Problem(503, "store-unavailable", str(error)) from error
        if record is None:
            raise Problem(
                401,
                "token-invalid",
                "the bearer token is malformed, unknown to this server, expired or revoked",
                headers={"www-authenticate": f'{_REALM}, error="invalid_token"'},
            )
        name_caller(scope, f"token:{record.name}")
        if not record.scope.covers(wanted):
            raise Problem(
                403,
                "token-scope",
                f"this route asks for a token of scope {wanted}",
                headers={"www-authenticate": f'{_REALM}, error="insufficient_scope", scope="{wanted}"'},
            )

    async def _check_peer(self, scope: Scope, receive: Receive) -> Receive:
        """See that a peer signed the request; keeps the peer for ``PeerDep``, returns what gives its body again."""
        assert self._peers is not None, "create_app brings them where a rule asks for a peer"
        if _has(scope, b"authorization") and not _has(scope, b"signature-input"):
            raise Problem(403, "credentials-mismatch", "this route takes a peer's signature, not a bearer token")
        head = self._peers.head(
            method=scope["method"],
            path=(scope.get("raw_path") or scope["path"].encode()).decode("latin-1"),
            query=scope["query_string"].decode("latin-1"),
            fields=scope["headers"],
            now_s=self._now_s(),
        )
        body = await _whole_body(receive)
        head.check_body(body)
        scope.setdefault("state", {})["peer"] = head.peer
        name_caller(scope, f"peer:{head.peer.name}")
        return _Again(body, receive)


class _Again:
    """A body that was read, to be received once more."""

    def __init__(self, body: bytearray, receive: Receive) -> None:
        self._body: bytearray | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": bytes(body), "more_body": False}


async def _whole_body(receive: Receive) -> bytearray:
    """All of a body; what it may weigh is the route's rule, kept by ``EdgeMiddleware``."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body


def _has(scope: Scope, name: bytes) -> bool:
    return any(each == name for each, _ in scope["headers"])


def _refuse_token_in_query(query: bytes) -> None:
    # A parameter's name may be percent-encoded, so the query is read wherever there is one.
    if query and any(name in _QUERY_NAMES for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)):
        raise Problem(
            400, "token-in-query", "send the token as Authorization: Bearer …; a URL ends up in logs and histories"
        )


async def _verified_peer(request: Request) -> Peer:
    peer = request.scope.get("state", {}).get("peer")
    if not isinstance(peer, Peer):
        # Nothing verified a signature before this route: there is no list of peers.
        raise Problem(401, "peer-unknown", "this server has no peers; see the setting `peers`", headers=CHALLENGE)
    return peer


PeerDep = Annotated[Peer, Depends(_verified_peer)]
"""The peer that signed this request, for a route that declares ``@needs(Access.PEER)``; refuses without one."""
