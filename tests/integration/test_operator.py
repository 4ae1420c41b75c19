"""What an operator does over HTTP: members, quarantine, tokens, pruning; who may not, and what of it is in the log."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Response

from fl_core.dag.acts import ActKind, sign_act
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.types import TxId
from fl_core.wire import operator_v1 as wire
from fl_core.wire import v1
from ledger_server.api import operator
from ledger_server.app import api_routes
from ledger_server.tokens import FILE, Scope, TokenFile, TokenRecord, new_token, token_digest
from tests.builders import ISSUER, author_of, key_from_seed, make_genesis, model
from tests.serving import NOW_MS, Server, serving, serving_together, signed

CLIENT, OPERATOR = new_token(), new_token()
FOUNDER = Member(public_key_of(ISSUER), "founder")
SECOND = public_key_of(key_from_seed(1001))
ENTRY = f"second=http://second.example:8900#{SECOND}"
OF_MEMBERS = replace(make_genesis(freshness_s=1), members=(FOUNDER,))
OF_TWO = replace(make_genesis(), members=tuple(sorted((FOUNDER, Member(SECOND, "second")), key=lambda each: each.key)))
BAD, GOOD = author_of(key_from_seed(50)), author_of(key_from_seed(51))
DAY_MS = 86_400_000


def add_tokens(data_dir: Path) -> None:
    tokens = TokenFile(data_dir / FILE, now_ms=lambda: NOW_MS)
    for name, scope, secret in (("site-1", Scope.CLIENT, CLIENT), ("ada", Scope.OPERATOR, OPERATOR)):
        tokens.add(TokenRecord(name=name, scope=scope, sha256=token_digest(secret), created_at_ms=NOW_MS - DAY_MS))


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """Two processes that serve one ledger and are asked in turn; the server is its only member."""
    add_tokens(tmp_path)
    with serving_together(database_url, tmp_path, genesis=OF_MEMBERS) as running:
        yield running


@pytest.fixture
def small(sqlite_url: str, tmp_path: Path) -> Iterator[Server]:
    """One process on SQLite, for what asks nothing of a database."""
    add_tokens(tmp_path)
    with serving(sqlite_url, tmp_path, genesis=OF_MEMBERS) as running:
        yield running


def bearer(token: str = OPERATOR) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def got(server: Server, path: str) -> Any:
    answer = server.client.get(path, headers=bearer())
    assert answer.status_code == 200, answer.text
    return answer.json()


def posted(server: Server, path: str, *, headers: Mapping[str, str] | None = None, **body: object) -> Response:
    return server.client.post(path, json=body, headers=bearer() if headers is None else headers)  # type: ignore[no-any-return]


def done(server: Server, path: str, **body: object) -> Any:
    answer = posted(server, path, **body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def refused(answer: Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == v1.PROBLEM_MEDIA_TYPE
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


def grown(server: Server) -> tuple[str, str]:
    """A bad author's update, and a good one's that was trained from it."""
    first = server.post(signed(server, model(1, 0, 0, 0), seed=50), model(1, 0, 0, 0))
    assert first.status_code == 201, first.text
    bad = first.json()["id"]
    return bad, server.publish(parents=[bad], model=model(0, 1, 0, 0), secret="5e" * 32)["id"]


BODIES: dict[str, dict[str, object]] = {
    wire.MEMBERS: {"servers": [ENTRY]},
    wire.REMOVALS: {"member": FOUNDER.key},
    wire.SIGNATURES: {"act": "0" * 64},
    wire.QUARANTINES: {"subject": BAD, "reason": "flips labels", "dry_run": False},
    wire.LIFTS: {"act": "0" * 64},
    wire.TOKENS: {"name": "thief"},
    wire.REVOCATIONS: {"token": "ada"},
    wire.PRUNING: {"keep_days": 0, "dry_run": False},
}


# -- who may ------------------------------------------------------------------------------------------


def test_every_route_of_operators_is_among_those_that_are_tried_here() -> None:
    paths = {route.path for route in api_routes() if route.path.startswith("/v1/operator/")}
    assert paths == BODIES.keys()


@pytest.mark.parametrize("path", BODIES)
def test_nobody_but_an_operator_is_answered(small: Server, path: str) -> None:
    body = BODIES[path]
    assert refused(posted(small, path, headers={}, **body)) == (401, "token-required")
    assert refused(posted(small, path, headers=bearer(CLIENT), **body)) == (403, "token-scope")
    assert refused(posted(small, path, headers=bearer(new_token()), **body)) == (401, "token-invalid")
    assert refused(posted(small, f"{path}?token={OPERATOR}", headers={}, **body)) == (400, "token-in-query")
    if path in (wire.MEMBERS, wire.TOKENS):
        for headers, status in (({}, 401), (bearer(CLIENT), 403)):
            assert small.client.get(path, headers=headers).status_code == status
    assert got(small, wire.MEMBERS)["acts"] == []
    assert [each["name"] for each in got(small, wire.TOKENS)["items"]] == ["site-1", "ada"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_no_form_does_anything(small: Server, path: str, kind: str) -> None:
    content = json.dumps(BODIES[path])
    answer = small.client.post(path, content=content, headers={**bearer(), "content-type": kind})
    assert refused(answer) == (415, "unsupported-media-type")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1"}, 200),
        ({"origin": "https://ledger.example", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://console.example"}, 421),
        ({"origin": "null"}, 421),
        ({"origin": "http://127.0.0.1:8901"}, 421),
        ({"origin": "http://127.0.0.1", "sec-fetch-site": "same-site"}, 421),
        ({"sec-fetch-site": "cross-site"}, 421),
    ],
)
def test_no_page_of_another_origin_operates_even_with_a_token(
    sqlite_url: str, tmp_path: Path, fields: dict[str, str], status: int
) -> None:
    add_tokens(tmp_path)
    with serving(sqlite_url, tmp_path, cors_origins="https://console.example") as server:
        answer = server.client.get(wire.TOKENS, headers={**bearer(), **fields})
        assert answer.status_code == status
        if status == 421:
            assert refused(answer) == (421, "elsewhere")
            assert server.client.get(v1.TIPS, headers={"origin": "https://console.example"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (wire.MEMBERS, {"servers": []}),
        (wire.MEMBERS, {"servers": ["no entry"]}),
        (wire.MEMBERS, {"servers": [f"a=file:///etc/passwd#{SECOND}"]}),
        (wire.REMOVALS, {"member": "founder"}),
        (wire.SIGNATURES, {"act": "0" * 63}),
        (wire.QUARANTINES, {"subject": BAD}),
        (wire.QUARANTINES, {"subject": BAD, "reason": ""}),
        (wire.QUARANTINES, {"subject": BAD, "reason": "x" * 5000, "dry_run": False}),
        (wire.QUARANTINES, {"subject": "act:" + "0" * 64, "reason": "x"}),
        (wire.QUARANTINES, {"subject": BAD, "reason": "x", "dry_run": "no"}),
        (wire.QUARANTINES, {"subject": BAD, "reason": "\u202eevil", "dry_run": False}),
        (wire.TOKENS, {"name": ""}),
        (wire.TOKENS, {"name": " padded "}),
        (wire.TOKENS, {"name": "ada"}),
        (wire.TOKENS, {"name": "x", "days": 0}),
        (wire.TOKENS, {"name": "x", "days": 10**9}),
        (wire.TOKENS, {"name": "x", "authors": ["somebody"]}),
        (wire.TOKENS, {"name": "x", "scope": "operator"}),
        (wire.REVOCATIONS, {"token": "nobody"}),
        (wire.PRUNING, {}),
        (wire.PRUNING, {"keep_days": -1}),
        (wire.PRUNING, {"keep_days": "7"}),
        (wire.PRUNING, {"keep_days": 1, "after": "first"}),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(small: Server, path: str, body: dict[str, Any]) -> None:
    status, _ = refused(posted(small, path, **body))
    assert status == 422
    assert got(small, wire.MEMBERS)["acts"] == []
    assert len(got(small, wire.TOKENS)["items"]) == 2


# -- members ------------------------------------------------------------------------------------------


def test_members_and_what_they_decided_are_listed(server: Server) -> None:
    first = got(server, wire.MEMBERS)
    assert (first["is_member"], first["needed"], first["public_key"]) == (True, 1, FOUNDER.key)
    assert [each["name"] for each in first["members"]] == ["founder"]
    (act,) = done(server, wire.MEMBERS, servers=[ENTRY])["acts"]
    assert (act["state"], act["what"], act["signed_by"]) == ("in effect", "second is a member", ["founder"])
    after = got(server, wire.MEMBERS)
    assert {each["name"]: each["url"] for each in after["members"]}["second"] == "http://second.example:8900"
    assert (after["needed"], after["acts"]) == (2, [act])
    assert done(server, wire.MEMBERS, servers=[ENTRY])["acts"] == [], "it is one already"


def test_what_one_signature_does_not_decide_waits_for_others_and_is_proposed_once(server: Server) -> None:
    done(server, wire.MEMBERS, servers=[ENTRY])
    (act,) = done(server, wire.REMOVALS, member=SECOND)["acts"]
    assert (act["state"], act["needed"], act["waits_for"]) == ("proposed", 2, ["second"])
    assert done(server, wire.REMOVALS, member=SECOND)["acts"] == [act]
    assert done(server, wire.SIGNATURES, act=act["act"])["acts"] == [act], "signed already"
    listed = got(server, wire.MEMBERS)["acts"]
    assert [(each["state"], each["is_signed_here"]) for each in listed] == [("proposed", True), ("in effect", True)]


def test_the_last_member_stays_and_an_act_that_is_not_here_cannot_be_signed(small: Server) -> None:
    assert refused(posted(small, wire.REMOVALS, member=FOUNDER.key)) == (409, "members-refused")
    answer = posted(small, wire.SIGNATURES, act="0" * 64)
    assert refused(answer) == (409, "members-refused")
    assert "no proposal here" in answer.json()["detail"]


def test_a_server_that_is_no_member_says_so_and_signs_nothing(sqlite_url: str, tmp_path: Path) -> None:
    add_tokens(tmp_path)
    with serving(sqlite_url, tmp_path) as server:
        assert got(server, wire.MEMBERS)["is_member"] is False
        for path in (wire.MEMBERS, wire.QUARANTINES, wire.LIFTS, wire.SIGNATURES):
            answer = posted(server, path, **BODIES[path])
            assert refused(answer) == (409, "members-refused")
            assert "no member of the ledger" in answer.json()["detail"]


# -- quarantine ---------------------------------------------------------------------------------------


def test_a_quarantine_says_first_what_it_withholds_and_changes_nothing(server: Server) -> None:
    grown(server)
    would = done(server, wire.QUARANTINES, subject=BAD, reason="flips labels")
    assert (would["subjects"], would["descendants"], would["beyond"], would["authors_in_all"]) == ([BAD], 2, 2, 2)
    assert would["acts"] == []
    assert server.get(v1.QUARANTINE).json()["decisions"] == []


def test_a_quarantine_holds_for_every_process_once_however_often_it_is_asked_for(server: Server) -> None:
    _, good = grown(server)
    (act,) = done(server, wire.QUARANTINES, subject=BAD, reason="flips labels", dry_run=False)["acts"]
    assert (act["state"], act["reason"]) == ("in effect", "flips labels")
    for _ in range(2):  # each process
        found = server.get(v1.QUARANTINE).json()
        assert [(each["subject"], each["reach"]) for each in found["decisions"]] == [(BAD, "everywhere")]
        assert found["withheld"] == 2
        assert server.get(v1.path(v1.VIEW_UPDATE, transaction=good)).json()["is_withheld"]
        assert done(server, wire.QUARANTINES, subject=BAD, reason="again", dry_run=False)["acts"] == [act]


def test_a_lifted_quarantine_withholds_nothing_and_is_lifted_once(server: Server) -> None:
    bad, _ = grown(server)
    subject = f"update:{bad}"
    (act,) = done(server, wire.QUARANTINES, subject=subject, reason="a broken sensor", dry_run=False)["acts"]
    (lifted,) = done(server, wire.LIFTS, act=act["act"], reason="mended")["acts"]
    assert lifted["state"] == "in effect"
    assert done(server, wire.LIFTS, act=act["act"])["acts"] == [lifted]
    for _ in range(2):
        found = server.get(v1.QUARANTINE).json()
        assert (found["withheld"], found["decisions"][0]["reach"]) == (0, "lifted")
    (again,) = done(server, wire.QUARANTINES, subject=subject, reason="it is back", dry_run=False)["acts"]
    assert again["act"] != act["act"]
    assert server.get(v1.QUARANTINE).json()["withheld"] == 2


def test_what_too_few_have_signed_says_who_may_and_is_taken_back_by_its_only_signer(
    sqlite_url: str, tmp_path: Path
) -> None:
    add_tokens(tmp_path)
    with serving(sqlite_url, tmp_path, genesis=OF_TWO) as server:
        grown(server)
        (act,) = done(server, wire.QUARANTINES, subject=BAD, reason="flips labels", dry_run=False)["acts"]
        assert server.get(v1.QUARANTINE).json()["withheld"] == 2
        waits = {"state": "proposed", "signed_by": ["founder"], "needed": 2, "waits_for": ["second"]}
        assert waits.items() <= act.items()
        (back,) = done(server, wire.LIFTS, act=act["act"], reason="mended")["acts"]
        assert (back["state"], back["what"]) == ("in effect", f"founder took back: quarantine {BAD}: flips labels")
        assert server.get(v1.QUARANTINE).json()["withheld"] == 0
        assert {each["state"] for each in got(server, wire.MEMBERS)["acts"]} == {"in effect", "past"}

        (signed_once,) = [each.act for each in server.service.acts.all() if each.id == act["act"]]
        server.service.acts.admit(sign_act(signed_once, key_from_seed(1001)))  # before it heard of the lift
        assert server.get(v1.QUARANTINE).json()["withheld"] == 2
        (lifted,) = done(server, wire.LIFTS, act=act["act"])["acts"]
        assert waits.items() <= lifted.items()
        assert done(server, wire.LIFTS, act=act["act"])["acts"] == [lifted], "it is proposed once"
        assert server.get(v1.QUARANTINE).json()["withheld"] == 2


def test_an_erasure_that_another_member_proposes_is_not_signed_over_http(sqlite_url: str, tmp_path: Path) -> None:
    add_tokens(tmp_path)
    with serving(sqlite_url, tmp_path, genesis=OF_TWO) as server:
        bad, _ = grown(server)
        (act,) = done(server, wire.QUARANTINES, subject=BAD, reason="flips labels", dry_run=False)["acts"]
        (quarantine,) = [each.act for each in server.service.acts.all() if each.id == act["act"]]
        erasure = sign_act(replace(quarantine, kind=ActKind.ERASE), key_from_seed(1001))
        server.service.acts.admit(erasure)
        answer = posted(server, wire.SIGNATURES, act=erasure.id)
        assert refused(answer) == (409, "members-refused")
        assert f"dag-acfl members sign {erasure.id[:8]}" in answer.json()["detail"]
        assert server.get(f"/v1/transactions/{bad}/model").status_code == 200
        (waiting,) = [each for each in got(server, wire.MEMBERS)["acts"] if each["act"] == erasure.id]
        assert waiting["signed_by"] == ["second"]


def test_only_a_quarantine_can_be_lifted(small: Server) -> None:
    (member,) = done(small, wire.MEMBERS, servers=[ENTRY])["acts"]
    for act in (member["act"], "0" * 64):
        answer = posted(small, wire.LIFTS, act=act)
        assert refused(answer) == (409, "members-refused")
        assert "no quarantine here" in answer.json()["detail"]


# -- tokens -------------------------------------------------------------------------------------------


def test_tokens_are_listed_without_secrets_and_one_of_them_is_yours(server: Server) -> None:
    answer = server.client.get(wire.TOKENS, headers=bearer())
    items = answer.json()["items"]
    assert [(each["name"], each["scope"], each["is_valid"], each["is_yours"]) for each in items] == [
        ("site-1", "client", True, False),
        ("ada", "operator", True, True),
    ]
    for secret in (CLIENT, OPERATOR):
        assert secret not in answer.text
        assert token_digest(secret) not in answer.text


def test_a_token_is_shown_once_to_nobody_else_and_counts_at_once_in_every_process(
    sqlite_url: str, tmp_path: Path
) -> None:
    add_tokens(tmp_path)
    with serving_together(sqlite_url, tmp_path, auth={"required_for": ("reads",)}) as server:
        answer = posted(server, wire.TOKENS, name="site-2", days=90, authors=[GOOD])
        assert answer.status_code == 201
        assert answer.headers["cache-control"] == "no-store"
        assert "content-encoding" not in answer.headers
        secret, token = answer.json()["secret"], answer.json()["token"]
        assert (token["scope"], token["authors"]) == ("client", [GOOD])
        assert token["expires_at"] == "2024-02-12T22:13:21.000Z"
        for _ in range(2):
            assert server.client.get(v1.TIPS, headers=bearer(secret)).status_code == 200
            assert secret not in server.client.get(wire.TOKENS, headers=bearer()).text
        done(server, wire.REVOCATIONS, token=token["id"])
        for _ in range(2):
            assert refused(server.client.get(v1.TIPS, headers=bearer(secret))) == (401, "token-invalid")


def test_an_operator_who_revokes_its_own_token_is_out(server: Server) -> None:
    assert done(server, wire.REVOCATIONS, token="ada")["is_yours"]
    for _ in range(2):
        assert refused(server.client.get(wire.TOKENS, headers=bearer())) == (401, "token-invalid")


# -- pruning ------------------------------------------------------------------------------------------


def chained(server: Server, count: int) -> list[str]:
    ids: list[str] = [server.ledger_id]
    for place in range(count):
        ids.append(server.publish(parents=ids[-1:], model=model(place + 2, 0, 0, 0), secret="5e" * 32)["id"])
    return ids


def held(server: Server, ids: list[str]) -> list[str]:
    """Those whose model the store has."""
    found = server.service.store.transactions([TxId(each) for each in ids])
    here = {each.digest for each in server.service.store.removal.held(after=None, limit=1000)}
    return [each.transaction.id for each in found if each.transaction.header.model_digest in here]


def test_pruning_says_first_what_would_go(server: Server) -> None:
    ids = chained(server, 6)
    would = done(server, wire.PRUNING, keep_days=0)
    assert (would["dry_run"], would["models"], would["held"], would["is_whole"]) == (True, 5, 2, True)
    assert held(server, ids) == ids
    went = done(server, wire.PRUNING, keep_days=0, dry_run=False)
    assert {**went, "dry_run": True, "storage_bytes": 0} == {**would, "storage_bytes": 0}
    assert held(server, ids) == [ids[0], ids[-1]]
    assert server.service.store.storage_bytes() == went["storage_bytes"]
    assert done(server, wire.PRUNING, keep_days=0, dry_run=False)["models"] == 0, "there is nothing more"


def test_pruning_that_takes_long_goes_on_where_it_stopped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    chained(server, 9)
    monkeypatch.setattr("ledger_server.pruning._PAGE", 3)
    whole = done(server, wire.PRUNING, keep_days=0)
    looked: list[int] = []

    def page_by_page(server: Server, *, dry_run: bool) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        while not parts or not parts[-1]["is_whole"]:
            after = parts[-1]["after"] if parts else None
            parts.append(done(server, wire.PRUNING, keep_days=0, dry_run=dry_run, after=after))
        return parts

    times = iter(range(10_000))
    monkeypatch.setattr(operator, "_PRUNE_S", 3)
    monkeypatch.setattr(operator, "monotonic", lambda: next(times))
    for dry_run in (True, False):
        parts = page_by_page(server, dry_run=dry_run)
        looked.append(len(parts))
        for name in ("models", "held", "kept", "nbytes"):
            assert sum(part[name] for part in parts) == whole[name], (dry_run, name)
    assert min(looked) > 1
    assert done(server, wire.PRUNING, keep_days=0)["models"] == 0


# -- the log ------------------------------------------------------------------------------------------


@contextmanager
def noted(caplog: pytest.LogCaptureFixture) -> Iterator[list[tuple[str, str]]]:
    lines: list[tuple[str, str]] = []
    with caplog.at_level(logging.INFO, logger=operator.logger.name):
        yield lines
    lines += [
        (record.getMessage(), record.__dict__["operator"])
        for record in caplog.records
        if record.name == operator.logger.name
    ]


def test_what_an_operator_does_is_logged_with_the_tokens_name_and_without_a_secret(
    small: Server, caplog: pytest.LogCaptureFixture
) -> None:
    grown(small)
    with noted(caplog) as lines:
        done(small, wire.QUARANTINES, subject=BAD, reason="flips labels")
        (act,) = done(small, wire.QUARANTINES, subject=BAD, reason="flips labels", dry_run=False)["acts"]
        done(small, wire.LIFTS, act=act["act"])
        done(small, wire.MEMBERS, servers=[ENTRY])
        done(small, wire.REMOVALS, member=SECOND)
        secret = done(small, wire.TOKENS, name="site-9")["secret"]
        done(small, wire.REVOCATIONS, token="site-9")
        done(small, wire.PRUNING, keep_days=7)
        done(small, wire.PRUNING, keep_days=7, dry_run=False)
    said = [
        *["an operator has signed an act"] * 4,
        "an operator has made a token",
        "an operator has revoked a token",
        "an operator has pruned models",
    ]
    assert lines == [(each, "ada") for each in said], "what was only asked for is in the log of requests"
    assert secret not in str([record.__dict__ for record in caplog.records])
