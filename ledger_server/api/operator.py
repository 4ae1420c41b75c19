"""What an operator does from elsewhere than the server's machine: members, quarantine, tokens, pruning.

Every route asks for an operator's token, whatever the settings say; bodies are ``application/json``, so that no form
posts here. What is done, and by whose token, is in the log; what it does is what the commands of ``dag-acfl`` do.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from fl_core.trust.lineage import Suspects
from fl_core.trust.report import descents
from fl_core.types import AuthorId, Digest, TxId
from fl_core.wire import operator_v1 as wire
from fl_core.wire.v1 import Answer
from ledger_server.api.dependencies import ServerDep, ServiceDep, service_now
from ledger_server.api.documentation import json_of, problems
from ledger_server.api.parsing import M, json_body
from ledger_server.api.serializers import rfc3339
from ledger_server.http.access import Access, requires, token_of
from ledger_server.http.body import media_type
from ledger_server.http.problems import Problem
from ledger_server.http.threads import in_worker
from ledger_server.members import Membership, Standing, subjects_of
from ledger_server.peers import parse_peers
from ledger_server.pruning import DAY_MS, PruneReport, prune, prune_served
from ledger_server.publishing import LedgerService
from ledger_server.tokens import Scope, TokenFile, TokenRecord, new_record, new_token

logger: logging.Logger = logging.getLogger(__name__)
router: APIRouter = APIRouter(tags=["operator"])

_PRUNE_S: Final = 5.0
"""For so long one request prunes; the next goes on where it stopped."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a server hands to its operators, beside the ledger.

    Attributes:
        members: Makes the members of the ledger, as this server sees and signs what they decide; reads the journal.
        tokens: Of this server.
        now_ms: Milliseconds since 1970 UTC.
    """

    members: Callable[[], Membership]
    tokens: TokenFile
    now_ms: Callable[[], int]


async def _tools(request: Request) -> Tools:
    await service_now(request)
    tools = request.app.state.operator
    assert isinstance(tools, Tools), "create_app sets it"
    return tools


ToolsDep = Annotated[Tools, Depends(_tools)]
"""As of now: what another process has decided is in view."""


async def _asked(request: Request, message: type[M]) -> M:
    """The body, of a type that no form can have.

    Raises:
        Problem: 415 for another type; else as ``json_body``.
    """
    if media_type(request) != "application/json":
        raise Problem("unsupported-media-type", "send application/json", headers={"accept-post": "application/json"})
    return await json_body(request, message)


def _answer(message: Answer, *, status: int = 200) -> Response:
    """Kept by nobody on the way, and not compressed: one of them holds a secret."""
    headers = {"cache-control": "no-store"}
    return Response(message.model_dump_json(), status, headers, media_type="application/json")


def _log(request: Request, done: str, /, **about: object) -> None:
    token = token_of(request.scope)
    assert token is not None, "the guard has checked it"
    logger.info("an operator has %s", done, extra={"operator": token.name, **about})


@router.get(wire.MEMBERS, response_model=wire.MembersOut, summary="Members of the ledger, and their acts")
@requires(Access.OPERATE)
def get_members(tools: ToolsDep) -> Response:
    """Who may sign what, what waits for signatures, and whether this server is a member."""
    found = tools.members()
    listed, standings = found.acts.members(), found.standings()
    return _answer(
        wire.MembersOut(
            ledger=found.ledger,
            public_key=found.own_key,
            is_member=found.own_key in found.acts.effect.members,
            needed=found.acts.votes_needed(len(listed)) if listed else 0,
            members=[wire.MemberOut(name=found.name(each.key), key=each.key, url=each.url) for each in listed],
            acts=[_act_out(found, each) for each in standings[: wire.MAX_SHOWN]],
            acts_in_all=len(standings),
        )
    )


@router.post(
    wire.MEMBERS,
    response_model=wire.DecidedOut,
    responses=problems(409),
    openapi_extra=json_of(wire.MembersRequest),
    summary="Propose members, or sign what proposes them",
)
@requires(Access.OPERATE)
async def add_members(request: Request, tools: ToolsDep) -> Response:
    """As ``dag-acfl members add``; who is a member already is passed over."""
    asked = await _asked(request, wire.MembersRequest)
    servers = parse_peers(asked.servers)
    return await _decided(request, tools, lambda found: found.add(servers, now_ms=tools.now_ms()))


@router.post(
    wire.REMOVALS,
    response_model=wire.DecidedOut,
    responses=problems(409),
    openapi_extra=json_of(wire.RemovalRequest),
    summary="Propose to remove a member, or sign what does",
)
@requires(Access.OPERATE)
async def remove_member(request: Request, tools: ToolsDep) -> Response:
    """As ``dag-acfl members remove``."""
    asked = await _asked(request, wire.RemovalRequest)
    return await _decided(request, tools, lambda found: [found.remove(found.find(asked.member), now_ms=tools.now_ms())])


@router.post(
    wire.SIGNATURES,
    response_model=wire.DecidedOut,
    responses=problems(409),
    openapi_extra=json_of(wire.SignatureRequest),
    summary="Sign what another member has proposed",
)
@requires(Access.OPERATE)
async def sign(request: Request, tools: ToolsDep) -> Response:
    """As ``dag-acfl members sign``, but of erasures, which a stolen token must not reach."""
    asked = await _asked(request, wire.SignatureRequest)
    return await _decided(request, tools, lambda found: [found.sign(asked.act, erasures=False)])


@router.post(
    wire.QUARANTINES,
    response_model=wire.QuarantinedOut,
    responses=problems(409),
    openapi_extra=json_of(wire.QuarantineRequest),
    summary="Quarantine an author or an update, or see what would be withheld",
)
@requires(Access.OPERATE)
async def quarantine(request: Request, service: ServiceDep, tools: ToolsDep) -> Response:
    """As ``dag-acfl trust quarantine``; with ``dry_run``, which is the default, as ``dag-acfl trust taint``."""
    asked = await _asked(request, wire.QuarantineRequest)
    kind, _, digits = asked.subject.partition(":")
    suspects = (
        Suspects(updates=frozenset({TxId(digits)}))
        if kind == "update"
        else Suspects(authors=frozenset({AuthorId(asked.subject)}))
    )
    found = await in_worker(partial(_withheld, service, suspects))
    if asked.dry_run:
        return _answer(found)
    acts = await _acts(
        request, tools, lambda those: those.quarantine(suspects, reason=asked.reason, now_ms=tools.now_ms())
    )
    return _answer(found.model_copy(update={"acts": acts}))


@router.post(
    wire.LIFTS,
    response_model=wire.DecidedOut,
    responses=problems(409),
    openapi_extra=json_of(wire.LiftRequest),
    summary="End a quarantine",
)
@requires(Access.OPERATE)
async def lift(request: Request, tools: ToolsDep) -> Response:
    """As ``dag-acfl trust lift``."""
    asked = await _asked(request, wire.LiftRequest)
    return await _decided(
        request, tools, lambda found: [found.lift(TxId(asked.act), reason=asked.reason, now_ms=tools.now_ms())]
    )


@router.get(wire.TOKENS, response_model=wire.TokensOut, summary="This server's tokens, without their secrets")
@requires(Access.OPERATE)
def get_tokens(request: Request, tools: ToolsDep) -> Response:
    """Whom each is for, what it may do, and until when."""
    return _answer(wire.TokensOut(items=[_token_out(each, request, tools) for each in tools.tokens.records()]))


@router.post(
    wire.TOKENS,
    status_code=201,
    response_model=wire.NewTokenOut,
    openapi_extra=json_of(wire.TokenRequest),
    summary="Make a client's token",
)
@requires(Access.OPERATE)
async def make_token(request: Request, tools: ToolsDep) -> Response:
    """As ``dag-acfl tokens create``, for clients alone: a stolen operator's token makes no other that outlives it."""
    asked = await _asked(request, wire.TokenRequest)
    secret = new_token()
    authors = [AuthorId(each) for each in asked.authors]
    record = new_record(
        secret, name=asked.name, scope=Scope.CLIENT, days=asked.days, authors=authors, now_ms=tools.now_ms()
    )
    await in_worker(partial(tools.tokens.add, record))
    _log(request, "made a token", token=record.id, name_of_token=record.name, days=asked.days, authors=asked.authors)
    return _answer(wire.NewTokenOut(secret=secret, token=_token_out(record, request, tools)), status=201)


@router.post(
    wire.REVOCATIONS,
    response_model=wire.TokenOut,
    openapi_extra=json_of(wire.RevocationRequest),
    summary="Revoke a token",
)
@requires(Access.OPERATE)
async def revoke(request: Request, tools: ToolsDep) -> Response:
    """As ``dag-acfl tokens revoke``; every process that serves from the data folder refuses it at once."""
    asked = await _asked(request, wire.RevocationRequest)
    record = await in_worker(partial(tools.tokens.revoke, asked.token))
    _log(request, "revoked a token", token=record.id, name_of_token=record.name, scope=record.scope)
    return _answer(_token_out(record, request, tools))


@router.post(
    wire.PRUNING,
    response_model=wire.PrunedOut,
    openapi_extra=json_of(wire.PruneRequest),
    summary="Drop models that nobody can be offered any more, or count them",
)
@requires(Access.OPERATE)
async def prune_models(request: Request, service: ServiceDep, server: ServerDep, tools: ToolsDep) -> Response:
    """As ``dag-acfl ledger prune``, for some seconds: with ``after`` of the answer the next request goes on."""
    asked = await _asked(request, wire.PruneRequest)
    until_s = monotonic() + _PRUNE_S

    def is_enough() -> bool:
        return server.draining or monotonic() > until_s

    report = await in_worker(partial(_pruned, service, asked, is_enough, tools.now_ms))
    if not asked.dry_run:
        about = {"models": report.models, "freed_bytes": report.nbytes}
        _log(request, "pruned models", keep_days=asked.keep_days, is_whole=report.is_whole, **about)
        if report.models:
            server.metrics.count_pruned(report)
    return _answer(
        wire.PrunedOut(
            dry_run=asked.dry_run,
            transactions=report.transactions,
            kept=report.kept,
            models=report.models,
            nbytes=report.nbytes,
            held=report.held,
            is_whole=report.is_whole,
            after=report.after,
            storage_bytes=service.store.storage_bytes(),
        )
    )


def _pruned(
    service: LedgerService, asked: wire.PruneRequest, is_enough: Callable[[], bool], now_ms: Callable[[], int]
) -> PruneReport:
    keep_ms, after = int(asked.keep_days * DAY_MS), None if asked.after is None else Digest(asked.after)
    if asked.dry_run:
        snapshot = service.snapshot(keep_ms=keep_ms)
        return prune(service.store, snapshot, now_ms=now_ms, dry_run=True, after=after, stop=is_enough)
    report = prune_served(service, keep_ms=keep_ms, now_ms=now_ms, after=after, stop=is_enough)
    if report.is_whole:
        service.store.database.shorten_log()
    return report


async def _acts(
    request: Request, tools: Tools, decide: Callable[[Membership], Iterable[Standing]]
) -> list[wire.ActOut]:
    """What comes of proposing and signing; it is kept, and other servers are told, when this returns."""

    def work() -> list[wire.ActOut]:
        found = tools.members()
        return [_act_out(found, each) for each in decide(found)]

    acts = await in_worker(work)
    for each in acts:
        _log(request, "signed an act", act=each.act, kind=each.kind, what=each.what, state=each.state)
    return acts


async def _decided(request: Request, tools: Tools, decide: Callable[[Membership], Iterable[Standing]]) -> Response:
    return _answer(wire.DecidedOut(acts=await _acts(request, tools, decide)))


def _act_out(members: Membership, standing: Standing) -> wire.ActOut:
    act, waits = standing.signed.act, standing.signed.id in members.acts.effect.waiting
    return wire.ActOut(
        act=standing.signed.id,
        kind=act.kind.name.lower(),
        what=members.words(standing),
        reason=act.details.get("reason", ""),
        created_at=rfc3339(act.created_at_ms),
        state="in effect" if standing.is_in_effect else "proposed" if waits else "past",
        needed=standing.needed,
        signed_by=list(standing.signed_by),
        waits_for=list(standing.waits_for),
        is_signed_here=members.own_key in standing.signed.signatures,
    )


def _withheld(service: LedgerService, suspects: Suspects) -> wire.QuarantinedOut:
    """What would be offered to nobody if these were quarantined."""
    authors, bound = service.acts.authors, service.genesis.bounds.max_taint
    meant = Suspects(authors.all_names(suspects.authors), suspects.updates)
    # Without the service's lock, for which publications would wait: it reads the whole journal.
    found = sorted(descents(service.node.graph, meant, max_taint=bound), key=lambda each: -each.descendants)
    return wire.QuarantinedOut(
        acts=[],
        subjects=subjects_of(suspects, authors),
        max_taint=bound,
        descendants=sum(each.descendants for each in found),
        beyond=sum(each.beyond for each in found),
        authors_in_all=len(found),
        authors=[
            wire.DescentOut(author=each.author, descendants=each.descendants, beyond=each.beyond, clean=each.clean)
            for each in found[: wire.MAX_SHOWN]
        ],
    )


def _token_out(record: TokenRecord, request: Request, tools: Tools) -> wire.TokenOut:
    shown = token_of(request.scope)
    return wire.TokenOut(
        id=record.id,
        name=record.name,
        scope=record.scope.value,
        created_at=rfc3339(record.created_at_ms),
        expires_at=None if record.expires_at_ms is None else rfc3339(record.expires_at_ms),
        authors=list(record.authors),
        is_valid=record.is_valid(tools.now_ms()),
        is_yours=shown is not None and shown.sha256 == record.sha256,
    )
