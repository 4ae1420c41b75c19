import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ledger_server.http.middleware import RequestMiddleware
from ledger_server.http.state import ServerState
from ledger_server.settings import Settings, load_settings


@dataclass
class Sent:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def exchange(
    app: ASGIApp,
    *,
    server: ServerState | None = None,
    method: str = "GET",
    path: str = "/a",
    headers: Sequence[tuple[str, str]] = (),
    body: Sequence[bytes] = (b"",),
) -> Sent:
    """One request through the middleware, without a network."""
    sent = Sent()
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]
    parts[-1]["more_body"] = False
    scope = {
        "type": "http", "method": method, "path": path, "client": ("192.0.2.1", 5), "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }  # fmt: skip

    async def receive() -> Message:
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not sent.status, "two answers"
            sent.status = message["status"]
            sent.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            sent.body += message.get("body", b"")

    guarded = RequestMiddleware(app, server or ServerState(Settings()))
    asyncio.run(guarded(scope, receive, send))
    return sent


async def answer(send: Send, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b"ok"})


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send)


async def reader(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await answer(send)


def sample(server: ServerState, name: str, **labels: str) -> float | None:
    return server.metrics.registry.get_sample_value(f"dag_acfl_{name}", labels)


def test_a_sane_request_id_is_kept_and_any_other_replaced() -> None:
    assert exchange(ok, headers=[("x-request-id", "abc-1.2_Z")]).headers["x-request-id"] == "abc-1.2_Z"
    for bad in ("", "a b", "a" * 65, "é", "a\x1b[0m"):
        given = exchange(ok, headers=[("x-request-id", bad)]).headers["x-request-id"]
        assert given != bad
        assert len(given) == 16
    twice = exchange(ok, headers=[("x-request-id", "a"), ("x-request-id", "b")])
    assert len(twice.headers["x-request-id"]) == 16


def test_the_application_sees_the_request_id() -> None:
    seen: list[Any] = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["state"]["request_id"])
        await answer(send)

    exchange(look, headers=[("x-request-id", "abc")])
    assert seen == ["abc"]


def test_every_answer_has_security_headers_and_the_application_s_own_win() -> None:
    headers = exchange(ok).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none'")

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, (b"content-type", b"text/html"), (b"referrer-policy", b"same-origin"))

    headers = exchange(page).headers
    assert "content-security-policy" not in headers
    assert headers["referrer-policy"] == "same-origin"


def test_a_read_body_keeps_the_connection_and_an_unread_one_closes_it() -> None:
    post: dict[str, Any] = {"method": "POST", "headers": [("content-length", "3")], "body": [b"abc"]}
    assert "connection" not in exchange(reader, **post).headers
    assert exchange(ok, **post).headers["connection"] == "close"
    assert "connection" not in exchange(ok).headers


def test_a_draining_server_closes_its_connections() -> None:
    sent = exchange(ok, server=ServerState(Settings(), draining=True))
    assert (sent.status, sent.headers["connection"]) == (200, "close")


def test_in_a_crowd_nobody_keeps_a_connection() -> None:
    server = ServerState(load_settings(http={"max_connections": 4}))
    for connections, kept in ((3, True), (4, False)):
        server.connections.take(None, connections - server.connections.total)
        assert ("connection" not in exchange(ok, server=server).headers) == kept


def test_nothing_is_in_progress_or_in_flight_afterwards() -> None:
    server = ServerState(Settings())
    exchange(reader, server=server, method="POST", headers=[("content-length", "6")], body=[b"abc", b"def"])
    assert server.admission.requests.total == server.body_bytes.total == 0


@pytest.mark.parametrize(("path", "room"), [("/a", 1), ("/healthz", 0), ("/readyz", 0), ("/metrics", 0)])
def test_supervisors_take_nobodys_room(path: str, room: int) -> None:
    server, seen = ServerState(Settings()), list[int]()

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(server.admission.requests.total)
        await answer(send)

    exchange(look, server=server, path=path)
    assert (seen, server.admission.requests.total) == ([room], 0)


def test_a_bug_after_the_answer_began_does_not_pretend_to_be_a_second_answer() -> None:
    async def halfway(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError

    sent = exchange(halfway)
    assert (sent.status, sent.body) == (200, b"")


@pytest.mark.parametrize(
    ("path", "status", "level"),
    [
        ("/v1/tips", 200, logging.INFO),
        ("/v1/gossip/changes", 200, logging.DEBUG),
        ("/v1/gossip/changes", 401, logging.INFO),
        ("/healthz", 200, logging.DEBUG),
    ],
)
def test_what_peers_and_supervisors_ask_all_the_time_is_logged_at_debug(
    path: str, status: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def says(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, status)

    with caplog.at_level(logging.DEBUG, logger="ledger_server.access"):
        exchange(says, path=path)
    assert [record.levelno for record in caplog.records if record.name == "ledger_server.access"] == [level]


def test_one_event_and_bounded_metrics_per_request(caplog: pytest.LogCaptureFixture) -> None:
    router = APIRouter(prefix="/v1")

    @router.post("/items/{item}")
    async def item(item: str) -> str:
        return item

    app, server = FastAPI(), ServerState(Settings())
    app.include_router(router)
    with caplog.at_level(logging.INFO, logger="ledger_server.access"):
        for path in ("/v1/items/1", "/v1/items/2", "/nowhere/1", "/nowhere/2"):
            exchange(app, server=server, method="POST", path=path, headers=[("content-length", "2")], body=[b"{}"])
    assert sample(server, "requests_total", method="POST", route="/v1/items/{item}", status="200") == 2
    assert sample(server, "requests_total", method="POST", route="(none)", status="404") == 2
    assert sample(server, "response_body_bytes_total", route="/v1/items/{item}") == 6
    events = [record for record in caplog.records if record.name == "ledger_server.access"]
    assert len(events) == 4
    assert events[0].__dict__["route"] == "/v1/items/{item}"
    assert events[0].__dict__["status"] == 200
