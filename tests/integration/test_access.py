"""Who may call what: every route, every role, held to the tables of docs/protocol.md."""

import asyncio
import http.client
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute
from httpx2 import Response
from starlette.testclient import TestClient
from starlette.types import Message

from dag_acfl.__main__ import main
from docs.parts.protocol import routes
from fl_client import LedgerClient
from fl_core.dag.signature import public_key_of
from fl_core.errors import (
    CredentialsMismatchError,
    ParameterError,
    TokenInvalidError,
    TokenRequiredError,
    TokenScopeError,
)
from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.http.access import MAX_PEER_BODY, Access, PeerDep, RequestGuard, access_of, requires
from ledger_server.http.body import read_body
from ledger_server.http.middleware import RequestMiddleware
from ledger_server.http.middleware import logger as access_log
from ledger_server.http.peer_signature import PeerVerifier, sign_request
from ledger_server.http.problems import Problem, register
from ledger_server.http.state import ServerState
from ledger_server.peers import Peer
from ledger_server.settings import Guarded, load_settings
from ledger_server.tokens import FILE, Scope, TokenFile, TokenRecord, new_token, token_digest
from tests.builders import ISSUER, key_from_seed, model
from tests.live import run_app
from tests.serving import NOW_MS, Server, prepare, serving, signed

PROTOCOL: Final = Path(__file__).parents[2] / "docs" / "protocol.md"
PEER_KEY: Final = key_from_seed(7)
PEER: Final = Peer("b", "http://b:8900", public_key_of(PEER_KEY))
EVERYTHING: Final[tuple[Guarded, ...]] = ("reads", "writes", "metrics")
ROLES: Final = ("nobody", "client's token", "monitor's token", "operator's token", "peer's signature")
HERE: Final = "http://127.0.0.1"
CLIENT, MONITOR, OPERATOR = new_token(), new_token(), new_token()
TOKENS: Final = {"client's token": CLIENT, "monitor's token": MONITOR, "operator's token": OPERATOR}
RECORDS: Final = [
    TokenRecord(sha256=token_digest(CLIENT), name="c", scope=Scope.CLIENT, created_at_ms=NOW_MS),
    TokenRecord(sha256=token_digest(MONITOR), name="m", scope=Scope.METRICS, created_at_ms=NOW_MS),
    TokenRecord(sha256=token_digest(OPERATOR), name="o", scope=Scope.OPERATOR, created_at_ms=NOW_MS),
]


def promised() -> dict[str, dict[str, str]]:
    """The table of roles in the protocol: access, role, what is answered."""
    text = PROTOCOL.read_text("utf-8")
    head, rows = re.search(r"^\| access \| (.*) \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert tuple(head.split(" | ")) == ROLES
    cells = [row.strip("| ").split(" | ") for row in rows.splitlines()]
    return {access: dict(zip(ROLES, answers, strict=True)) for access, *answers in cells}


def listed_access() -> dict[tuple[str, str], str]:
    """The access of each method and path, as the protocol's table of routes has it."""
    rows = re.findall(r"^\| `((?:[A-Z]+ )+)(/\S*)` \| (\w+) \| ", PROTOCOL.read_text("utf-8"), re.MULTILINE)
    return {(method, path): access for methods, path, access in rows for method in methods.split()}


class Counter:
    """Nonces that are never the same."""

    value = 0

    @classmethod
    def next(cls) -> bytes:
        cls.value += 1
        return cls.value.to_bytes(16, "big")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def peer_headers(method: str, target: str, body: bytes = b"") -> dict[str, str]:
    return sign_request(
        PEER_KEY, method=method, target=target, body=body, recipient=public_key_of(ISSUER),
        created_s=NOW_MS // 1000, nonce=Counter.next(),
    )  # fmt: skip


def headers_of(role: str, method: str, target: str) -> dict[str, str]:
    if role == "nobody":
        return {}
    return peer_headers(method, target) if role == "peer's signature" else bearer(TOKENS[role])


def matches(answer: str, response: Response) -> bool:
    return response.status_code not in (401, 403) if answer == "yes" else response.status_code == int(answer)


def add_tokens(data_dir: Path, records: Sequence[TokenRecord] = RECORDS) -> None:
    tokens = TokenFile(data_dir / FILE, now_ms=lambda: NOW_MS)
    for record in records:
        tokens.add(record)


@contextmanager
def guarded(database_url: str, tmp_path: Path, *required_for: Guarded) -> Iterator[Server]:
    add_tokens(tmp_path)
    with serving(database_url, tmp_path, auth={"required_for": required_for}, peers=(str(PEER),)) as server:
        yield server


# -- the real server -------------------------------------------------------------------------------


def test_every_route_declares_the_access_that_the_protocol_lists() -> None:
    declared = {
        (method, path): access_of(route).value for (path, _), route in routes().items() for method in route.methods
    }
    listed = listed_access()
    assert declared.items() <= listed.items()
    heads = {(method, path): access for (method, path), access in listed.items() if method == "HEAD"}
    assert heads == {("HEAD", path): listed["GET", path] for _, path in heads}
    assert len(listed) > 20
    assert set(promised()) == {access.value for access in Access}


def test_every_route_answers_every_role_as_the_protocol_says(tmp_path: Path, database_url: str) -> None:
    table, asked = promised(), 0
    with guarded(database_url, tmp_path, *EVERYTHING) as server:
        for (method, template), access in listed_access().items():
            target = re.sub(r"\{\w+\}", "0" * 64, template)
            for role in ROLES:
                # A listener with a wrong cursor is answered at once instead of being kept.
                headers = {**headers_of(role, method, target), "last-event-id": "none"}
                response = server.client.request(method, target, headers=headers)
                assert matches(table[access][role], response), (method, template, role, response.status_code)
                asked += 1
    assert asked > 80


def test_what_is_not_named_in_the_settings_asks_nothing(tmp_path: Path, sqlite_url: str) -> None:
    with guarded(sqlite_url, tmp_path, "writes") as server:
        assert server.client.get(v1.TIPS).status_code == 200
        assert server.client.get(v1.TIPS, headers=bearer("nonsense")).status_code == 200
        assert server.client.get("/metrics").status_code == 200
        assert server.select(server.ledger_id).status_code == 401
        assert server.client.get("/healthz").status_code == 200


def test_a_round_with_a_token_is_a_round(tmp_path: Path, database_url: str) -> None:
    with guarded(database_url, tmp_path, *EVERYTHING) as server:
        server.client.headers.update(bearer(CLIENT))
        selection = server.join(model(1, 2, 3)).json()
        published = server.publish(model=model(3, 2, 1), selection=selection["id"])
        assert server.client.get(v1.path(v1.TRANSACTION, transaction=published["id"])).status_code == 200


def test_a_token_publishes_for_its_authors_alone(tmp_path: Path, sqlite_url: str) -> None:
    mine, other = ("key:" + public_key_of(key_from_seed(seed)) for seed in (7, 8))
    with guarded(sqlite_url, tmp_path, "writes") as server:
        server.client.headers.update(bearer(CLIENT))
        assert main(["tokens", "bind", "c", mine, "--data-dir", str(tmp_path)]) == 0
        assert server.post(signed(server, model(1), seed=7), model(1)).status_code == 201
        refused = server.post(signed(server, model(2), seed=8), model(2))
        assert (refused.status_code, refused.json()["type"]) == (403, "/problems/token-author")
        assert f"for {mine} alone, not for {other}" in refused.json()["detail"]
        server.client.headers.update(bearer(OPERATOR))
        assert server.post(signed(server, model(2), seed=8), model(2)).status_code == 201, "this one is bound to nobody"


def callers(caplog: pytest.LogCaptureFixture) -> list[str | None]:
    """Whom the log names for each request, in their order; no credential stands in any line."""
    lines = [record.__dict__ for record in caplog.records if record.name == access_log.name]
    assert not any(token in str(line) for line in lines for token in TOKENS.values())
    return [line.get("caller") for line in lines]


def test_the_log_names_the_token_that_proved_who_calls(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with guarded(sqlite_url, tmp_path, "writes") as server, caplog.at_level(logging.INFO, logger=access_log.name):
        server.client.get(v1.TIPS, headers=bearer(CLIENT))
        assert server.select(server.ledger_id).status_code == 401
        server.client.headers.update(bearer(CLIENT))
        assert server.join(model(1, 2, 3)).status_code == 201
    assert callers(caplog) == [None, None, "token:c"], "an open route looks at no token"


def test_the_log_names_the_author_that_signed_a_new_transaction_and_nobody_for_its_repetition(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(sqlite_url, tmp_path) as server, caplog.at_level(logging.INFO, logger=access_log.name):
        mine = signed(server, model(1), seed=7)
        assert [server.post(mine, model(1)).status_code for _ in range(2)] == [201, 200]
        server.publish(parents=[server.ledger_id], model=model(2))
    assert callers(caplog) == [f"key:{public_key_of(key_from_seed(7))}", None, None], "nobody signed the last"


def test_the_log_names_each_update_and_its_author(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(sqlite_url, tmp_path) as server, caplog.at_level(logging.INFO, logger=access_log.name):
        mine = signed(server, model(1), seed=7)
        assert [server.post(mine, model(1)).status_code for _ in range(2)] == [201, 200]
        assert server.post({**mine, "num_examples": 0}, model(1)).status_code == 422
    lines = [record.__dict__ for record in caplog.records if record.name == access_log.name]
    named = [(line.get("transaction"), line.get("author")) for line in lines]
    assert named == [(mine["id"], mine["author"])] * 2 + [(None, None)], "a refused one is no update"
    assert [line.get("code") for line in lines] == [None, None, "request-invalid"]


@pytest.mark.parametrize(
    ("headers", "status", "code", "challenge"),
    [
        ([], 401, "token-required", 'Bearer realm="dag-acfl"'),
        ([("authorization", "")], 401, "token-invalid", 'error="invalid_token"'),
        ([("authorization", "Bearer")], 401, "token-invalid", 'error="invalid_token"'),
        ([("authorization", "Basic dXNlcjpwYXNz")], 401, "token-invalid", 'error="invalid_token"'),
        ([("authorization", f"Bearer {new_token()}")], 401, "token-invalid", 'error="invalid_token"'),
        ([("authorization", f"Bearer {CLIENT} x")], 401, "token-invalid", 'error="invalid_token"'),
        ([("authorization", f"Bearer {CLIENT}")] * 2, 401, "token-invalid", 'error="invalid_token"'),
        ([("authorization", f"bEARER  {CLIENT}")], 200, "", ""),
    ],
)  # fmt: skip
def test_a_token_is_asked_for_in_the_words_of_rfc_6750(
    headers: list[tuple[str, str]], status: int, code: str, challenge: str, *, tmp_path: Path, sqlite_url: str
) -> None:
    with guarded(sqlite_url, tmp_path, "reads") as server:
        response = server.client.get(v1.TIPS, headers=headers)
        assert response.status_code == status
        if status != 200:
            assert response.json()["type"] == v1.path(v1.PROBLEM, code=code)
            assert challenge in response.headers["www-authenticate"]
            assert all(token not in response.text for token in TOKENS.values())


def test_a_scope_too_small_is_named(tmp_path: Path, sqlite_url: str) -> None:
    with guarded(sqlite_url, tmp_path, "metrics") as server:
        response = server.client.get("/metrics", headers=bearer(CLIENT))
        assert response.status_code == 403
        assert 'error="insufficient_scope", scope="metrics"' in response.headers["www-authenticate"]
        exposition = server.client.get("/metrics", headers=bearer(OPERATOR)).text
        assert 'code="token-scope"' in exposition
        assert re.search(r'route="/metrics",status="403"', exposition)


@pytest.mark.parametrize("query", ["access_token={}", "token={}", "limit=1&access%5Ftoken={}", "token="])
def test_a_token_in_the_url_is_refused_even_beside_a_good_one(query: str, tmp_path: Path, sqlite_url: str) -> None:
    with guarded(sqlite_url, tmp_path, "reads") as server:
        response = server.client.get(f"{v1.TRANSACTIONS}?{query.format(CLIENT)}", headers=bearer(CLIENT))
        assert (response.status_code, response.json()["type"]) == (400, v1.path(v1.PROBLEM, code="token-in-query"))
        assert CLIENT not in response.text


def test_a_token_that_is_made_or_revoked_elsewhere_counts_without_a_restart(tmp_path: Path, sqlite_url: str) -> None:
    with serving(sqlite_url, tmp_path, auth={"required_for": ("reads",)}) as server:
        tips = partial(server.client.get, v1.TIPS)
        assert tips(headers=bearer(CLIENT)).status_code == 401
        add_tokens(tmp_path)
        assert tips(headers=bearer(CLIENT)).status_code == 200
        program = "import sys; from dag_acfl.__main__ import main; sys.exit(main(sys.argv[1:]))"
        subprocess.run(
            [sys.executable, "-c", program, "tokens", "revoke", "c", "--data-dir", str(tmp_path)],
            check=True,
            capture_output=True,
        )
        assert tips(headers=bearer(CLIENT)).status_code == 401
        assert tips(headers=bearer(OPERATOR)).status_code == 200


def test_an_expired_token_is_refused(tmp_path: Path, sqlite_url: str) -> None:
    token = new_token()
    late = TokenRecord(
        sha256=token_digest(token), name="late", scope=Scope.CLIENT, created_at_ms=1, expires_at_ms=NOW_MS
    )
    add_tokens(tmp_path, [late])
    with guarded(sqlite_url, tmp_path, "reads") as server:
        assert server.client.get(v1.TIPS, headers=bearer(token)).status_code == 401


def test_tokens_that_cannot_be_read_let_nobody_in(tmp_path: Path, sqlite_url: str) -> None:
    with guarded(sqlite_url, tmp_path, "reads") as server:
        (tmp_path / FILE).unlink()
        (tmp_path / FILE).mkdir()
        response = server.client.get(v1.TIPS, headers=bearer(CLIENT))
        assert (response.status_code, response.json()["type"]) == (503, v1.path(v1.PROBLEM, code="store-unavailable"))
        assert "retry-after" in response.headers


def test_damaged_tokens_stop_the_start(tmp_path: Path, sqlite_url: str) -> None:
    prepare(sqlite_url, tmp_path)
    (tmp_path / FILE).write_text('{"expires_at_ms": "tomorrow"}\n')
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url, auth={"required_for": ("reads",)})
    with pytest.raises(ParameterError, match=f"{FILE}, line 1"):
        create_app(settings, key=ISSUER)


# -- the SDK and the command -----------------------------------------------------------------------


def test_the_sdk_sends_its_token_and_raises_what_the_server_says(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(sqlite_url, tmp_path)
    add_tokens(tmp_path)
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url, auth={"required_for": EVERYTHING})
    token_file = tmp_path / "site.token"
    token_file.write_text(f"{CLIENT}\n")
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        with LedgerClient(live.url) as nobody, pytest.raises(TokenRequiredError, match="dag-acfl tokens create"):
            nobody.genesis()
        with LedgerClient(live.url, token=new_token()) as stranger, pytest.raises(TokenInvalidError):
            stranger.clients()
        with LedgerClient(live.url, token=CLIENT) as client:
            assert client.genesis().model_size == client.genesis().genesis.layout.nbytes
        for command in ("inspect", "verify", "join"):
            capsys.readouterr()
            assert main(["ledger", command, live.url]) == 1
            line = capsys.readouterr().err
            assert "asks for a bearer token" in line
            assert "hand one over with --token-file" in line
        assert main(["ledger", "verify", live.url, "--token-file", str(token_file)]) == 0
        monkeypatch.setenv("DAG_ACFL_TOKEN", CLIENT)
        assert main(["ledger", "inspect", live.url, "--json"]) == 0
    assert {TokenScopeError.code, CredentialsMismatchError.code} == {"token-scope", "credentials-mismatch"}


def test_tokens_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (["--data-dir", str(tmp_path / name)] for name in "ab")
    for name in "ab":
        (tmp_path / name).mkdir()
    file = tmp_path / "c.token"
    assert main(["tokens", "create", "site-3", "--out", str(file), "--days", "1", *a]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    assert token not in capsys.readouterr().out
    assert main(["tokens", "create", "site-3", *a]) == 1, "the name is taken"
    capsys.readouterr()
    assert main(["tokens", "create", "other", "--out", str(file), *a]) == 1, "the file is there"
    assert capsys.readouterr().err == f"error: {file} exists already; choose another --out\n"
    assert main(["tokens", "create", "site-3", "--token-file", str(file), *b]) == 0, "the same token on another server"
    assert main(["tokens", "create", "taken", "--token-file", str(file), *a]) == 1
    taken = tmp_path / "taken.token"
    assert main(["tokens", "create", "site-3", "--out", str(taken), *a]) == 1
    assert not taken.exists(), "no file for a token that is not kept"
    capsys.readouterr()
    assert main(["tokens", "create", "boss", "--scope", "operator", *a]) == 0
    assert re.fullmatch(r"dagacfl_[\w-]{43}\n", capsys.readouterr().out)
    assert main(["tokens", "revoke", "boss", *a]) == 0
    author = "hash:" + "5" * 64
    assert main(["tokens", "create", "bound", "--author", author, *a]) == 0
    capsys.readouterr()
    assert main(["tokens", "list", *a]) == 0
    assert f"  bound  for {author}\n" in capsys.readouterr().out
    assert main(["tokens", "bind", "bound", *a]) == 0
    assert capsys.readouterr().out.endswith(" for bound publishes for anybody\n")
    assert main(["tokens", "create", "no author", "--author", "site-3", *a]) == 1
    assert "key: or hash: and 64" in capsys.readouterr().err
    assert main(["tokens", "revoke", "bound", *a]) == 0
    capsys.readouterr()
    assert main(["tokens", "list", *a]) == 0
    (site,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[0-9a-f]{12}  client    made [\d-]{10}  until [\d-]{10}  site-3", site)
    old = TokenRecord(sha256="0" * 64, name="old", scope=Scope.CLIENT, created_at_ms=0, expires_at_ms=86_400_000)
    TokenFile(tmp_path / "a" / FILE, now_ms=lambda: NOW_MS).add(old)
    assert main(["tokens", "list", *a]) == 0
    assert capsys.readouterr().out.splitlines() == [site, "000000000000  client    made 1970-01-01  expired  old"]


def test_a_server_s_entry_for_its_peers_is_one_that_they_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "peer", "https://b.example", "--name", "b", "--data-dir", str(tmp_path / "site-b")]) == 0
    entry = capsys.readouterr().out.strip()
    (peer,) = load_settings(peers=(entry,)).peers
    assert (peer.name, peer.url) == ("b", "https://b.example")
    assert main(["keys", "peer", "--data-dir", str(tmp_path / "site-b")]) == 0
    assert capsys.readouterr().out.strip() == f"site-b=http://127.0.0.1:8900#{peer.public_key}"


# -- peers' routes, which this app has for the test --------------------------------------------------


def peers_app(*, has_peers: bool = True, required_for: Sequence[Guarded] = EVERYTHING) -> FastAPI:
    """One route of each access, guarded as ``create_app`` guards its own."""
    router = APIRouter()
    for access in Access:
        if access is not Access.PEER:
            router.add_api_route(f"/{access.value}", _plain(access), methods=["GET"])

    @router.post("/peer/{what}")
    @requires(Access.PEER)
    async def ask(
        what: str, request: Request, peer: PeerDep, *, limit: str = "", x: str = "", a: str = ""
    ) -> dict[str, str]:
        return {"peer": peer.name, "what": what, "body": bytes(await read_body(request, limit=100)).decode()}

    @router.get("/peer")
    @requires(Access.PEER)
    async def who(peer: PeerDep) -> dict[str, str]:
        return {"peer": peer.name}

    server = ServerState(load_settings(auth={"required_for": tuple(required_for)}))
    return _app(router, server, has_peers=has_peers)


def _app(router: APIRouter, server: ServerState, *, has_peers: bool = True) -> FastAPI:
    app = FastAPI(dependencies=[Depends(_guard(router, server, has_peers=has_peers))])
    app.include_router(router)
    register(app)
    app.add_middleware(RequestMiddleware, server=server)
    return app


def _guard(router: APIRouter, server: ServerState, *, has_peers: bool = True) -> RequestGuard:
    return RequestGuard(
        _routes_of(router),
        server=server,
        tokens=KnownTokens(Path("no file"), now_ms=lambda: NOW_MS),
        peers=PeerVerifier(public_key_of(ISSUER), [PEER] if has_peers else [], started_s=0),
        now_s=lambda: NOW_MS / 1000,
    )


class KnownTokens(TokenFile):
    async def find(self, token: str) -> TokenRecord | None:
        return dict(zip((CLIENT, MONITOR, OPERATOR), RECORDS, strict=True)).get(token)


def _plain(access: Access) -> Any:
    @requires(access)
    async def answer() -> str:
        return access.value

    return answer


def _routes_of(router: APIRouter) -> list[APIRoute]:
    return [route for route in router.routes if isinstance(route, APIRoute)]


def test_each_access_answers_each_role_as_the_protocol_says() -> None:
    client = TestClient(peers_app(), raise_server_exceptions=False)
    for access, answers in promised().items():
        for role, answer in answers.items():
            response = client.get(f"/{access}", headers=headers_of(role, "GET", f"/{access}"))
            assert matches(answer, response), (access, role, response.status_code)


def test_operators_routes_ask_for_an_operator_whatever_the_settings_say() -> None:
    client = TestClient(peers_app(required_for=()), base_url=HERE)
    assert client.get("/reads").status_code == 200
    assert client.get("/operate").status_code == 401
    assert client.get("/operate", headers=bearer(CLIENT)).status_code == 403
    assert client.get("/operate", headers=bearer(OPERATOR)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"host": "127.0.0.1:8900"}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:8900"}, 200),
        ({"host": "LOCALHOST:8900", "origin": "http://127.0.0.1:8900"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8900"}, 421),
        ({"host": "192.0.2.1"}, 421),
        ({"host": "[::1"}, 421),
        ({"host": ""}, 421),
        ({"host": "127.0.0.1:8900", "origin": "https://evil.example"}, 421),
        ({"host": "127.0.0.1:8900", "origin": "null"}, 421),
    ],
)
def test_no_page_of_elsewhere_reaches_a_server_that_asks_no_token(fields: dict[str, str], status: int) -> None:
    client = TestClient(peers_app(required_for=("metrics", "writes")), base_url=HERE)
    answer = client.get("/reads", headers=fields)
    assert answer.status_code == status
    if status == 421:
        assert "set host, trusted_proxies, auth.required_for, or public" in answer.json()["detail"]
    assert client.get("/open", headers=fields).status_code == 200, "it tells nothing"
    assert client.get("/writes", headers=bearer(CLIENT) | fields).status_code == 200, "a page has no token"


@pytest.mark.parametrize(
    "settings",
    [
        {"public": True},
        {"host": "0.0.0.0", "public": True},
        {"trusted_proxies": ("127.0.0.1",), "public": True},
        {"auth": {"required_for": ("reads", "writes")}},
    ],
)
def test_where_others_may_come_or_a_token_is_asked_for_any_name_will_do(settings: dict[str, Any]) -> None:
    router = APIRouter()
    router.add_api_route("/a", _plain(Access.READ), methods=["GET"])
    client = TestClient(_app(router, ServerState(load_settings(**settings))), base_url="http://ledger.example")
    asked = {"origin": "https://console.example", **bearer(CLIENT)}
    assert client.get("/a", headers=asked).status_code == 200


def test_a_busy_server_takes_trained_models_longer_than_questions_and_answers_supervisors_always() -> None:
    router = APIRouter()
    router.add_api_route(v1.SELECTIONS, _plain(Access.WRITE), methods=["POST"])
    router.add_api_route(v1.TRANSACTIONS, _plain(Access.WRITE), methods=["POST"])
    router.add_api_route("/readyz", _plain(Access.OPEN), methods=["GET"])
    server = ServerState(load_settings(http={"max_concurrent_requests": 8}))
    client = TestClient(_app(router, server), base_url=HERE)
    for others, question, publication in ((1, 200, 200), (2, 503, 200), (8, 503, 503)):
        server.admission.requests.take("others", others)
        assert client.post(v1.SELECTIONS).status_code == question
        assert client.post(v1.TRANSACTIONS).status_code == publication
        assert client.get("/readyz").status_code == 200
        assert server.admission.requests.total == others
        server.admission.requests.give_back("others", others)


def test_who_shows_a_token_is_not_refused_for_what_others_of_its_address_hold() -> None:
    router = APIRouter()
    router.add_api_route("/a", _plain(Access.READ), methods=["GET"])
    router.add_api_route("/b", _plain(Access.WRITE), methods=["GET"])
    server = ServerState(load_settings(http={"max_concurrent_requests": 8}, auth={"required_for": ("writes",)}))
    client = TestClient(_app(router, server), base_url=HERE)
    server.admission.requests.take("testclient", 5)
    assert client.get("/a").status_code == 503
    assert client.get("/b", headers=bearer(CLIENT)).status_code == 200
    server.admission.requests.take("token:c", 2)
    assert client.get("/b", headers=bearer(CLIENT)).status_code == 503, "nor does a caller hold more than is left"
    assert server.admission.requests.total == 7


def test_the_log_names_the_peer_that_signed_and_whose_token_was_too_small(caplog: pytest.LogCaptureFixture) -> None:
    client = TestClient(peers_app())
    with caplog.at_level(logging.INFO, logger=access_log.name):
        assert client.get("/peer", headers=peer_headers("GET", "/peer")).status_code == 200
        assert client.get("/peer").status_code == 401
        assert client.get("/operate", headers=bearer(CLIENT)).status_code == 403
        assert client.get("/operate", headers=bearer(OPERATOR)).status_code == 200
    assert callers(caplog) == ["peer:b", None, "token:c", "token:o"]


def test_a_peer_s_route_gets_the_peer_and_the_signed_body() -> None:
    client, body = TestClient(peers_app()), b'{"after": null}'
    headers = peer_headers("POST", "/peer/a%20b?limit=2", body)
    response = client.post("/peer/a%20b?limit=2", content=body, headers=headers)
    assert response.json() == {"peer": "b", "what": "a b", "body": body.decode()}
    again = client.post("/peer/a%20b?limit=2", content=body, headers=headers)
    assert (again.status_code, again.json()["type"]) == (401, v1.path(v1.PROBLEM, code="peer-nonce-used"))
    other = client.post("/peer/a%20b", content=b"x", headers=peer_headers("POST", "/peer/a%20b", body))
    assert (other.status_code, other.json()["type"]) == (401, v1.path(v1.PROBLEM, code="peer-digest-mismatch"))


@pytest.mark.parametrize("target", ["/peer/a%20b?limit=2&x=%2F", "/peer/%C3%A9?", "/peer/%7e~", "/peer/x?a=?&&x"])
def test_path_and_query_are_signed_as_they_go_over_the_wire(target: str) -> None:
    settings, body = load_settings(), b"1234"
    headers = peer_headers("POST", target, body)
    with run_app(peers_app(), settings) as live:
        connection = http.client.HTTPConnection(live.host, live.port, timeout=10)
        for encode in (body, iter([body[:2], body[2:]])):  # with a length, and in chunks
            connection.request("POST", target, body=encode, headers=headers)
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["body"]) == (200, "1234")
            headers = peer_headers("POST", target, body)
        connection.close()


@pytest.mark.parametrize("size", [101, MAX_PEER_BODY + 1])
def test_a_signed_body_is_bounded_like_any_other(size: int) -> None:
    body = bytes(size)
    response = TestClient(peers_app()).post("/peer/x", content=body, headers=peer_headers("POST", "/peer/x", body))
    assert response.status_code == 413


def test_without_a_list_of_peers_nobody_is_one() -> None:
    client = TestClient(peers_app(has_peers=False))
    response = client.get("/peer", headers=peer_headers("GET", "/peer"))
    assert (response.status_code, response.json()["type"]) == (401, v1.path(v1.PROBLEM, code="peer-unknown"))


def test_who_may_not_ask_has_no_body_read() -> None:
    async def receive() -> Message:
        raise AssertionError("the body was read")

    def asked(path: str, headers: Mapping[str, str]) -> str:
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        endpoint = next(route.endpoint for route in _routes_of(router) if route.path == path)
        with pytest.raises(Problem) as caught:
            asyncio.run(guard(Request({**scope, "headers": fields, "endpoint": endpoint}, receive)))
        return caught.value.code

    router = APIRouter()
    router.add_api_route("/write", _plain(Access.WRITE), methods=["POST"])
    router.add_api_route("/peer", _plain(Access.PEER), methods=["POST"])
    guard = _guard(router, ServerState(load_settings(auth={"required_for": ("writes",)})))
    assert asked("/write", {}) == "token-required"
    assert asked("/write", bearer("x")) == "token-invalid"
    assert asked("/peer", {}) == "peer-signature-required"
    assert asked("/peer", bearer(OPERATOR)) == "credentials-mismatch"
    assert asked("/peer", peer_headers("POST", "/other")) == "peer-signature-invalid"


def test_a_route_that_declares_nothing_stops_the_server_from_starting() -> None:
    router = APIRouter()
    router.add_api_route("/open", lambda: "to all", methods=["GET"])
    with pytest.raises(TypeError, match="does not say who may call it"):
        _guard(router, ServerState(load_settings()))
