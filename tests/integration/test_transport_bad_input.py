"""Bad input at the socket: the transport groups of the bad-input list, against a real server of a tiny application.

Each case is bytes as they go on the wire, the status that must come back, and the problem's code. After every
case the same server answers an honest request.
"""

import asyncio
import contextlib
import hashlib
import json
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import Response, StreamingResponse

from fl_core.types import PublicKey
from ledger_server.http import limits
from ledger_server.http.access import Access, RequestGuard, requires
from ledger_server.http.body import body_stream, read_body
from ledger_server.http.door import SPARE_CONNECTIONS
from ledger_server.http.middleware import RequestMiddleware
from ledger_server.http.peer_signature import PeerVerifier
from ledger_server.http.problems import register
from ledger_server.http.state import ServerState
from ledger_server.http.strict_json import loads
from ledger_server.settings import Settings, load_settings
from ledger_server.tokens import TokenFile
from tests.live import Live, eventually, run_app

MODEL_LIMIT = 200_000
JSON_LIMIT = 4096
LARGE = 20_000_000  # more than the system keeps for a socket
HTTP = {"max_concurrent_requests": 8, "max_connections": 60, "max_bytes_in_flight": 300_000}
IMPATIENT = {"timeout_s": 0.2, "min_bytes_per_s": 10_000, "keep_alive_s": 1, "max_concurrent_requests": 100}


@pytest.fixture(autouse=True, scope="module")
def _short_linger() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LINGER_S", 0.1)
        yield


def tiny_app(settings: Settings, *, gate: threading.Event | None = None) -> FastAPI:
    """Routes that read bodies in the ways that matter here: whole, streamed, not at all."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield

    server = ServerState(settings)
    router = APIRouter()

    @router.get("/healthz")
    @requires(Access.OPEN)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/items/{item}")
    @requires(Access.READ)
    async def item(item: str, request: Request) -> dict[str, Any]:
        return {"item": item, "trailers": "x-trailer" in request.headers, "client": request.client}

    @router.post("/json")
    @requires(Access.WRITE)
    async def json_body(request: Request) -> dict[str, Any]:
        return {"value": loads(await read_body(request, limit=JSON_LIMIT))}

    @router.post("/models")
    @requires(Access.WRITE)
    async def models(request: Request) -> dict[str, Any]:
        digest, size = hashlib.sha256(), 0
        async for chunk in body_stream(request, limit=MODEL_LIMIT):
            digest.update(chunk)
            size += len(chunk)
        return {"size": size, "digest": digest.hexdigest(), "trailers": "x-trailer" in request.headers}

    @router.post("/unread")
    @requires(Access.WRITE)
    async def unread() -> Response:
        return Response(status_code=204)

    @router.post("/late")
    @requires(Access.WRITE)
    async def late(request: Request) -> dict[str, int]:
        await asyncio.sleep(0.4)  # longer than the body's deadline: the server, not the client, is slow
        return {"size": len(await request.body())}

    @router.get("/wait")
    @requires(Access.READ)
    async def wait() -> dict[str, str]:
        while gate is not None and not gate.is_set():  # noqa: ASYNC110 -- another thread opens it
            await asyncio.sleep(0.01)
        return {"status": "done"}

    @router.get("/endless")
    @requires(Access.READ)
    async def endless() -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0)
                yield b"x" * 1024

        return StreamingResponse(pieces())

    @router.get("/large")
    @requires(Access.READ)
    async def large() -> Response:
        return Response(bytes(LARGE))

    @router.get("/boom")
    @requires(Access.READ)
    async def boom() -> None:
        raise RuntimeError("secret inner state")

    guard = RequestGuard(
        [route for route in router.routes if isinstance(route, APIRoute)],
        server=server,
        tokens=TokenFile(settings.data_dir / "no tokens", now_ms=lambda: 0),
        peers=PeerVerifier(PublicKey("0" * 64), [], started_s=0),
        now_s=lambda: 0.0,
    )
    app = FastAPI(lifespan=lifespan, openapi_url=None, dependencies=[Depends(guard)])
    app.state.server = server
    app.include_router(router)
    register(app)
    app.add_middleware(RequestMiddleware, server=server)
    return app


@pytest.fixture(scope="module")
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, gate: threading.Event) -> Iterator[Live]:
    settings = load_settings(data_dir=tmp_path_factory.mktemp("data"), http=HTTP, public=True)
    with run_app(tiny_app(settings, gate=gate), settings) as running:
        yield running
        gate.set()


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server whose deadlines are short: for clients that are meant to miss them."""
    settings = load_settings(data_dir=tmp_path_factory.mktemp("data"), http=IMPATIENT, public=True)
    with run_app(tiny_app(settings), settings) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Answer:
    """One response off the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        content = json.loads(self.body)
        assert content["status"] == self.status
        assert content["title"]
        return str(content["type"]).removeprefix("/problems/")


class Wire:
    """A raw connection."""

    def __init__(self, live: Live, *, receive_buffer: int | None = None, address: str = "") -> None:
        self.socket = socket.socket()
        self.socket.bind((address, 0))
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10.0)
        self.socket.connect((live.host, live.port))
        self.unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Self:
        # It may be refused before all of it is sent; the answer is what counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)
        return self

    def _more(self) -> bool:
        try:
            data = self.socket.recv(65_536)
        except ConnectionResetError:
            return False
        self.unread += data
        return bool(data)

    def answer(self, *, head_only: bool = False) -> Answer:
        """The next final response."""
        while b"\r\n\r\n" not in self.unread:
            assert self._more(), f"the connection ended without an answer: {self.unread!r}"
        head, self.unread = self.unread.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        size = 0 if head_only or status in (100, 204) else int(headers.get("content-length", 0))
        while len(self.unread) < size:
            assert self._more(), "the answer was cut"
        body, self.unread = self.unread[:size], self.unread[size:]
        return Answer(status, headers, body)

    def drip(self, byte: bytes) -> Answer:
        """Send the same byte again and again, until there is an answer."""
        while not select.select([self.socket], [], [], 0.02)[0]:
            self.send(byte)
        return self.answer()

    def ended(self) -> bool:
        """Whether the server has closed its side and sent nothing more."""
        while self._more():
            pass
        return not self.unread


def ask(live: Live, data: bytes, *, address: str = "") -> Answer:
    with Wire(live, address=address) as wire:
        return wire.send(data).answer()


def head(line: str = "GET /items/a HTTP/1.1", *fields: str, host: bool = True) -> bytes:
    return "\r\n".join([line, *(["Host: localhost"] if host else []), *fields, "", ""]).encode("latin-1")


def post(*fields: str, body: bytes = b"", path: str = "/models") -> bytes:
    return head(f"POST {path} HTTP/1.1", *fields) + body


def alive(live: Live) -> None:
    assert ask(live, head("GET /healthz HTTP/1.1", "Connection: close")).status == 200


CHUNKED = "Transfer-Encoding: chunked"
MALFORMED = "request-malformed"
CASES: dict[str, tuple[bytes, int, str]] = {
    "1 length and chunked": (post("Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"), 400, MALFORMED),
    "1 chunked and length": (post(CHUNKED, "Content-Length: 5", body=b"0\r\n\r\n"), 400, MALFORMED),
    "2 two lengths": (post("Content-Length: 5", "Content-Length: 6", body=b"hello!"), 400, MALFORMED),
    "2 the same length twice": (post("Content-Length: 5", "Content-Length: 5", body=b"hello"), 400, MALFORMED),
    "2 a list of lengths": (post("Content-Length: 5, 5", body=b"hello"), 400, MALFORMED),
    "3 negative length": (post("Content-Length: -1"), 400, MALFORMED),
    "3 length 1e30": (post("Content-Length: 1e30"), 400, MALFORMED),
    "3 length of 40 digits": (post("Content-Length: " + "9" * 40), 400, MALFORMED),
    "3 length with plus": (post("Content-Length: +5", body=b"hello"), 400, MALFORMED),
    "3 empty length": (post("Content-Length:"), 400, MALFORMED),
    "4 chunk size not hexadecimal": (post(CHUNKED, body=b"zz\r\nhello\r\n0\r\n\r\n"), 400, MALFORMED),
    "4 chunk size beyond 64 bits": (post(CHUNKED, body=b"f" * 17 + b"\r\n"), 400, MALFORMED),
    "4 chunk longer than its size": (post(CHUNKED, body=b"2\r\nhello\r\n0\r\n\r\n"), 400, MALFORMED),
    "5 chunk extension of 1 MB": (
        post(CHUNKED, body=b"5;" + b"e" * 1_000_000 + b"\r\nhello\r\n0\r\n\r\n"), 431, "headers-too-large",
    ),
    "5 trailers of 1 MB": (
        post(CHUNKED, body=b"0\r\n" + b"X-Trailer: " + b"t" * 1_000_000 + b"\r\n\r\n"), 431, "headers-too-large",
    ),
    "6 chunked then gzip": (post("Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"), 400, MALFORMED),
    "6 chunked twice": (post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"), 400, MALFORMED),
    "6 hidden chunked": (post("Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 400, MALFORMED),
    "8 folded header": (head("GET /items/a HTTP/1.1", "X-A: b", " c"), 400, MALFORMED),
    "8 space before colon": (head("GET /items/a HTTP/1.1", "X-A : b"), 400, MALFORMED),
    "8 NUL in a value": (head("GET /items/a HTTP/1.1", "X-A: b\0c"), 400, MALFORMED),
    "8 NUL in a name": (head("GET /items/a HTTP/1.1", "X-\0A: b"), 400, MALFORMED),
    "8 line without colon": (head("GET /items/a HTTP/1.1", "nonsense"), 400, MALFORMED),
    "8 unknown version": (head("GET /items/a HTTP/9.9"), 400, MALFORMED),
    "8 HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, MALFORMED),
    "8 raw bytes in the target": (b"GET /items/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, MALFORMED),
    "9 1 MB in one header": (head("GET /items/a HTTP/1.1", "X-A: " + "a" * 1_000_000), 431, "headers-too-large"),
    "9 unfinished 1 MB header": (
        b"GET /items/a HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 1_000_000, 431, "headers-too-large",
    ),
    "9 100,000 headers": (
        head("GET /items/a HTTP/1.1", *(f"X-{n}: a" for n in range(100_000))), 431, "headers-too-large",
    ),
    "10 unfinished target of 1 MB": (b"GET /" + b"a" * 1_000_000, 431, "headers-too-large"),
    "13 unknown method": (head("FROBNICATE /items/a HTTP/1.1"), 400, MALFORMED),
    "13 a method of WebDAV": (head("PROPFIND /items/a HTTP/1.1"), 405, "method-not-allowed"),
    "13 CONNECT": (head("CONNECT test:443 HTTP/1.1"), 400, MALFORMED),
    "13 TRACE": (head("TRACE /items/a HTTP/1.1"), 405, "method-not-allowed"),
    "13 wrong method": (head("DELETE /items/a HTTP/1.1"), 405, "method-not-allowed"),
    "13 unknown path": (head("GET /nowhere HTTP/1.1"), 404, "not-found"),
    "15 TLS hello": (bytes.fromhex("16030100c5010000c10303") + bytes(range(186)), 400, MALFORMED),
    "15 SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", 400, MALFORMED),
    "15 binary noise": (bytes(range(256)) * 40, 400, MALFORMED),
    "17 gzip": (post("Content-Encoding: gzip", "Content-Length: 3", body=b"abc"), 415, "content-encoding-unsupported"),
    "17 br": (post("Content-Encoding: br", "Content-Length: 3", body=b"abc"), 415, "content-encoding-unsupported"),
    "17 deflate": (post("Content-Encoding: deflate", CHUNKED, body=b"0\r\n\r\n"), 415, "content-encoding-unsupported"),
    "18 UTF-16": (
        post("Content-Length: 6", body='{"'.encode("utf-16"), path="/json"), 400, "json-malformed",
    ),
    "18 byte order mark": (
        post("Content-Length: 5", body=b"\xef\xbb\xbf{}", path="/json"), 400, "json-malformed",
    ),
    "21 declared too large": (post(f"Content-Length: {MODEL_LIMIT + 1}"), 413, "body-too-large"),
    "21 declared 4 EB": (post(f"Content-Length: {1 << 62}"), 413, "body-too-large"),
    "21 JSON too large": (post("Content-Length: 4097", path="/json"), 413, "body-too-large"),
    "21 expecting 100, too large": (
        post("Expect: 100-continue", f"Content-Length: {MODEL_LIMIT + 1}"), 413, "body-too-large",
    ),
}  # fmt: skip
TAKEN: dict[str, bytes] = {
    "6 gzip then chunked": post("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "6 chunked in HTTP/1.0": b"POST /models HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "7 no host": head(host=False),
    "7 two hosts": head("GET /items/a HTTP/1.1", "Host: other"),
    "7 host with user": head("GET /items/a HTTP/1.1", "Host: a@b", host=False),
    "7 empty host": head("GET /items/a HTTP/1.1", "Host:", host=False),
    "9 17 KB in one header": head("GET /items/a HTTP/1.1", "X-A: " + "a" * 17_000),
    "9 101 headers": head("GET /items/a HTTP/1.1", *(f"X-{n}: a" for n in range(100))),
    "10 target of 9 KB": head(f"GET /items/{'a' * 9000} HTTP/1.1"),
    "12 two spaces in the request line": head("GET  /items/a  HTTP/1.1"),
    "14 unknown expectation": post("Expect: bogus", "Content-Length: 0"),
    "upgrade": head("GET /items/a HTTP/1.1", "Connection: upgrade", "Upgrade: websocket"),
}
"""What the parser takes and a stricter one would refuse: none of it can be read in two ways here, since no other HTTP
reader stands behind this server, Host decides nothing on a public one, and whatever is too large is bounded by the limits above."""


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_problem_and_nothing_of_it_is_read_as_a_second_request(
    live: Live, case: str
) -> None:
    data, status, code = CASES[case]
    with Wire(live) as wire:
        answer = wire.send(data + head()).answer()
        assert (answer.status, answer.code) == (status, code)
        assert len(answer.headers["x-request-id"]) >= 8
        if status in (413, 415, 431) or code == MALFORMED:
            assert answer.headers["connection"] == "close"
            assert wire.ended()
    alive(live)


@pytest.mark.parametrize("case", TAKEN)
def test_harmless_oddities_are_answered(live: Live, case: str) -> None:
    answer = ask(live, TAKEN[case])
    assert answer.status == 200
    alive(live)


@pytest.mark.parametrize("data", [head("GET /nowhere HTTP/1.1"), post("Content-Length: 2", body=b"{{", path="/json")])
def test_an_application_s_refusal_keeps_the_connection(live: Live, data: bytes) -> None:
    with Wire(live) as wire:
        first, second = wire.send(data).answer(), wire.send(head()).answer()
    assert first.code in {"not-found", "json-malformed"}
    assert second.status == 200


def test_wrong_method_names_those_that_are_allowed(live: Live) -> None:
    answer = ask(live, head("DELETE /items/a HTTP/1.1"))
    assert "GET" in answer.headers["allow"]


# Group 11: heads that never end.


@pytest.mark.parametrize("begun", [b"GET /it", b"GET /items/a HTTP/1.1\r\nHost: te", b"\r\n"])
def test_a_head_that_never_ends_is_answered_408(impatient: Live, begun: bytes) -> None:
    with Wire(impatient) as wire:
        answer = wire.send(begun).answer()
        assert wire.ended()
    assert (answer.status, answer.code) == (408, "request-timeout")


def test_a_head_that_drips_is_answered_408_however_busy_it_looks(impatient: Live) -> None:
    with Wire(impatient) as wire:
        answer = wire.send(b"GET /items/a HTTP/1.1\r\nHost: localhost\r\nX-A: ").drip(b"a")
    assert answer.status == 408


def test_a_connection_that_says_nothing_is_closed_without_a_word(impatient: Live) -> None:
    with Wire(impatient) as wire:
        assert wire.ended()


def test_the_second_head_on_a_connection_has_the_same_deadline(impatient: Live) -> None:
    with Wire(impatient) as wire:
        wire.send(head()).answer()
        answer = wire.send(b"GET /items").answer()
    assert answer.status == 408


def test_an_idle_connection_is_closed_after_its_keep_alive_time(impatient: Live) -> None:
    with Wire(impatient) as wire:
        wire.send(head()).answer()
        assert wire.ended()


# Group 12: bodies that stall, drip, or end early.


@pytest.mark.parametrize("framing", ["Content-Length: 1000", CHUNKED])
def test_a_stalled_body_is_answered_408(impatient: Live, framing: str) -> None:
    with Wire(impatient) as wire:
        answer = wire.send(post(framing, body=b"1\r\na\r\n")).answer()
        assert wire.ended()
    assert (answer.status, answer.code) == (408, "request-timeout")


def test_a_body_of_a_few_bytes_a_second_is_answered_408(impatient: Live) -> None:
    with Wire(impatient) as wire:
        answer = wire.send(post("Content-Length: 1000")).drip(b"a")
    assert answer.status == 408


def test_chunks_of_nothing_but_extensions_are_answered_408(impatient: Live) -> None:
    with Wire(impatient) as wire:
        answer = wire.send(post(CHUNKED)).drip(b"1;" + b"e" * 500 + b"\r\nx\r\n")
    assert answer.status == 408


def test_a_body_above_the_least_rate_may_take_longer_than_the_timeout(impatient: Live) -> None:
    with Wire(impatient) as wire:
        wire.send(post("Content-Length: 20000"))
        for _ in range(10):  # 0.5 s in all, at 4 times the least rate
            wire.send(b"a" * 2000)
            time.sleep(0.05)
        answer = wire.answer()
    assert answer.status == 200
    assert json.loads(answer.body)["size"] == 20_000


def test_the_clock_stands_still_while_the_server_is_the_slow_one(impatient: Live) -> None:
    with Wire(impatient) as wire:
        answer = wire.send(post("Content-Length: 5000000", body=b"a" * 5_000_000, path="/late")).answer()
    assert answer.status == 200
    assert json.loads(answer.body) == {"size": 5_000_000}


def test_a_client_that_leaves_within_its_body_leaves_nothing_behind(live: Live) -> None:
    with Wire(live) as wire:
        wire.send(post("Content-Length: 1000", body=b"abc"))
        eventually(lambda: live.state.body_bytes.total == 3)
    eventually(lambda: live.state.admission.requests.total == live.state.body_bytes.total == 0)


def test_a_client_that_never_reads_its_answer_is_cut_off(impatient: Live) -> None:
    with Wire(impatient) as wire:
        wire.send(head("GET /endless HTTP/1.1"))
        eventually(lambda: impatient.state.admission.requests.total == 1)
        eventually(lambda: impatient.state.admission.requests.total == 0)
    alive(impatient)


@pytest.mark.parametrize("field", ["Connection: keep-alive", "Connection: close"])
def test_a_client_that_does_not_read_the_end_of_its_answer_is_cut_off(tmp_path: Path, field: str) -> None:
    settings = load_settings(data_dir=tmp_path, http={**IMPATIENT, "min_bytes_per_s": 10 * LARGE})
    with run_app(tiny_app(settings), settings) as live, Wire(live, receive_buffer=4096) as wire:
        wire.send(head("GET /large HTTP/1.1", field))
        connections = live.server.server_state.connections
        eventually(lambda: len(connections) == 1)
        eventually(lambda: not connections)
        wire.ended()
        assert len(wire.unread) < LARGE, "the rest was sent all the same"


# Groups 14, 19, 22: what is fine, and what streams past its limit.


def test_100_continue_is_sent_when_the_body_is_wanted(live: Live) -> None:
    with Wire(live) as wire:
        go_on = wire.send(post("Expect: 100-continue", "Content-Length: 5")).answer()
        answer = wire.send(b"hello").answer()
    assert go_on.status == 100
    assert json.loads(answer.body)["size"] == 5


def test_a_thousand_ranges_cost_nothing(live: Live) -> None:
    answer = ask(live, head("GET /items/a HTTP/1.1", "Range: bytes=" + ",".join(f"{n}-{n}" for n in range(1000))))
    assert answer.status == 200


def test_a_chunked_body_past_the_limit_is_answered_413_while_it_still_comes(live: Live) -> None:
    piece = b"2710\r\n" + b"a" * 10_000 + b"\r\n"
    with Wire(live) as wire:
        wire.send(post(CHUNKED))
        for _ in range(30):
            wire.send(piece)
        answer = wire.answer()
        assert wire.ended()
    assert (answer.status, answer.code) == (413, "body-too-large")
    assert json.loads(answer.body)["limit"] == MODEL_LIMIT


def test_a_body_of_just_the_limit_is_taken(live: Live) -> None:
    answer = ask(live, post(f"Content-Length: {MODEL_LIMIT}", body=b"a" * MODEL_LIMIT))
    assert json.loads(answer.body)["digest"] == hashlib.sha256(b"a" * MODEL_LIMIT).hexdigest()


@pytest.mark.parametrize("size", [1, 7, 4096, 9999])
def test_chunks_of_any_size_arrive_whole(live: Live, size: int) -> None:
    body = bytes(n % 251 for n in range(20_000))
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(body[at : at + size]), body[at : at + size]) for at in range(0, len(body), size)
    )
    answer = ask(live, post(CHUNKED, body=chunks + b"0\r\n\r\n"))
    assert json.loads(answer.body)["digest"] == hashlib.sha256(body).hexdigest()


def test_trailers_do_not_become_headers(live: Live) -> None:
    answer = ask(live, post(CHUNKED, body=b"1\r\na\r\n0\r\nX-Trailer: yes\r\n\r\n"))
    assert json.loads(answer.body)["trailers"] is False


def test_an_answer_before_the_body_reaches_a_client_that_sends_all_of_it(live: Live) -> None:
    size = 8_000_000
    with Wire(live) as wire:
        wire.send(post(f"Content-Length: {size}", path="/unread"))
        wire.send(b"a" * size)
        answer = wire.answer()
    assert answer.status == 204
    assert answer.headers["connection"] == "close"


# Pipelining and upgrades.


def test_pipelined_requests_are_answered_in_order(live: Live) -> None:
    with Wire(live) as wire:
        wire.send(b"".join(head(f"GET /items/{n} HTTP/1.1") for n in range(5)))
        answers = [wire.answer() for _ in range(5)]
    assert [json.loads(answer.body)["item"] for answer in answers] == list("01234")


def test_a_stalled_pipelined_body_is_refused_after_the_answer_before_it(impatient: Live) -> None:
    with Wire(impatient) as wire:
        wire.send(head() + post("Content-Length: 1000", body=b"abc"))
        first, second = wire.answer(), wire.answer()
    assert (first.status, second.status) == (200, 408)


def test_garbage_behind_a_request_ends_the_connection(live: Live) -> None:
    with Wire(live) as wire:
        answer = wire.send(head() + b"\0\0\0\0").answer()
        assert wire.ended()
    assert (answer.status, answer.code) == (400, MALFORMED)


def test_a_refused_head_request_gets_no_body(live: Live) -> None:
    with Wire(live) as wire:
        answer = wire.send(head("HEAD /nowhere HTTP/1.1", "Connection: close")).answer(head_only=True)
        assert answer.status == 404
        assert wire.ended()


def test_a_spoofed_forwarded_address_is_not_believed(live: Live) -> None:
    answer = ask(live, head("GET /items/a HTTP/1.1", "X-Forwarded-For: 203.0.113.9"))
    assert json.loads(answer.body)["client"][0] == "127.0.0.1"


def test_a_bug_tells_the_client_an_id_and_nothing_else(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(live, head("GET /boom HTTP/1.1", "X-Request-Id: find-me"))
    assert (answer.status, answer.code) == (500, "internal-error")
    assert b"secret" not in answer.body
    assert answer.headers["x-request-id"] == json.loads(answer.body)["request_id"] == "find-me"
    assert sum("request failed" in record.message for record in caplog.records) == 1


# Group 25 and the slow: many at once.


def test_requests_beyond_an_address_s_share_are_answered_503_and_others_and_supervisors_still_200(
    live: Live, gate: threading.Event
) -> None:
    gate.clear()
    wires = [Wire(live) for _ in range(4)]
    try:
        for wire in wires:
            wire.send(head("GET /wait HTTP/1.1"))
        eventually(lambda: live.state.admission.requests.total == 4)
        refused = ask(live, head())
        assert (refused.status, refused.code) == (503, "too-busy")
        assert int(refused.headers["retry-after"]) >= 1
        alive(live)
        assert ask(live, head(), address="127.0.0.2").status == 200
        question = head("POST /v1/selections HTTP/1.1", "Content-Length: 100000")
        assert ask(live, question, address="127.0.0.2").code == "too-busy", "before its body has come"
        gate.set()
        answers = [wire.answer() for wire in wires]
        assert [answer.status for answer in answers] == [200] * 4
    finally:
        gate.set()
        for wire in wires:
            wire.socket.close()


def test_bytes_beyond_the_limit_are_answered_503(live: Live) -> None:
    eventually(lambda: live.state.body_bytes.total == 0)
    most = post(f"Content-Length: {MODEL_LIMIT}", body=b"a" * (MODEL_LIMIT - 1))
    with Wire(live) as first, Wire(live) as second:
        first.send(most)
        eventually(lambda: live.state.body_bytes.total == MODEL_LIMIT - 1)
        refused = second.send(most).answer()
        assert (refused.status, refused.code) == (503, "too-busy")
        taken = first.send(b"a").answer()
        assert taken.status == 200
    eventually(lambda: live.state.body_bytes.total == 0)


def test_fifty_slow_clients_hold_nobody_up_and_are_gone_after_the_deadline(impatient: Live) -> None:
    wires = [Wire(impatient) for _ in range(50)]
    try:
        for wire in wires:
            wire.send(b"GET /items/a HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        for _ in range(20):
            alive(impatient)
        assert [answer.status for answer in (wire.answer() for wire in wires)] == [408] * 50
    finally:
        for wire in wires:
            wire.socket.close()


def test_connections_beyond_the_limit_are_answered_503_and_supervisors_still_200(live: Live) -> None:
    wires = [Wire(live, address=f"127.0.1.{number}") for number in range(61)]
    try:
        eventually(lambda: live.state.connections.total > 60)
        refused = ask(live, head())
        alive(live)
        wires += [Wire(live) for _ in range(SPARE_CONNECTIONS + 9)]
        unasked = [wire.answer() for wire in wires[-8:]]
    finally:
        for wire in wires:
            wire.socket.close()
    assert {answer.code for answer in (refused, *unasked)} == {"too-many-connections"}
    assert {answer.headers["connection"] for answer in (refused, *unasked)} == {"close"}

    def is_back() -> bool:
        with contextlib.suppress(AssertionError):  # a reset may overtake the refusal
            return ask(live, head("GET /healthz HTTP/1.1")).status == 200
        return False

    eventually(is_back)


def test_an_address_leaves_half_of_the_connections_to_others_and_its_supervisors_are_still_answered(live: Live) -> None:
    wires = [Wire(live) for _ in range(31)]
    try:
        eventually(lambda: live.state.connections.total == 31)
        refused = ask(live, head())
        alive(live)
        assert ask(live, head(), address="127.0.0.2").status == 200
        wires += [Wire(live) for _ in range(16)]
        unasked = wires[-1].answer()
    finally:
        for wire in wires:
            wire.socket.close()
    assert refused.code == unasked.code == "too-many-connections"
    eventually(lambda: live.state.connections.total == 0)


# The end of a server.

DRAINING_SERVER = """
import sys
from ledger_server.http.serve import serve
from ledger_server.settings import load_settings
from tests.integration.test_transport_bad_input import tiny_app

class Gate:
    def is_set(self):
        import os
        return os.path.exists(sys.argv[1])

settings = load_settings(port=0, drain_s=8)
serve(tiny_app(settings, gate=Gate()), settings)
print("ended well")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_requests_in_progress_and_exits_0(tmp_path: Path, number: signal.Signals) -> None:
    gate = tmp_path / "gate"
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", DRAINING_SERVER, str(gate)], cwd=tmp_path, env={"PYTHONPATH": str(root)},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving on http://127.0.0.1:"), line
        port = int(line.rsplit(":", 1)[1])
        slow = socket.create_connection(("127.0.0.1", port), timeout=10)
        kept = socket.create_connection(("127.0.0.1", port), timeout=10)
        slow.sendall(head("GET /wait HTTP/1.1"))
        kept.sendall(head("GET /healthz HTTP/1.1"))
        assert b"200 OK" in kept.recv(4096)
        process.send_signal(number)
        deadline_s = time.monotonic() + 5
        while True:  # the port closes although a request is in progress
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            except OSError:
                break
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert process.poll() is None, "the request in progress was dropped"
        gate.touch()
        answer = slow.recv(4096)
        assert b"200 OK" in answer
        assert b"connection: close" in answer
        assert process.wait(10) == 0
        assert process.stdout.read() == "ended well\n"
        slow.close()
        kept.close()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
