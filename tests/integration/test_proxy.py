"""The configurations of docs/proxy.md, as they stand, in front of a real server."""

import http.client
import json
import os
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.builders import ISSUER, model
from tests.certificates import Authority
from tests.live import Live, free_ports, run_app
from tests.serving import NOW_MS, START, prepare, publication

PAGE = (Path(__file__).parents[2] / "docs" / "proxy.md").read_text("utf-8")
MAX_BODY = 1_000_000


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy, and the server behind it."""

    port: int
    authority: Path
    live: Live

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def pool(self) -> urllib3.PoolManager:
        return urllib3.PoolManager(ca_certs=str(self.authority), retries=False)

    def connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)

    def publish(self, model_bytes: bytes) -> urllib3.BaseHTTPResponse:
        ledger = json.loads(self.pool().request("GET", self.url + v1.GENESIS).data)["ledger"]
        fields = publication(
            {"parents": [ledger], "start": START, "num_examples": 1, "secret": secrets.token_hex(32)}, model_bytes
        )
        return self.pool().request("POST", self.url + v1.TRANSACTIONS, fields=fields)


def block(language: str, changes: Mapping[str, str]) -> str:
    """The page's block in this language, with the addresses and files of a test."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    for old, new in changes.items():
        assert old in text, f"the page does not say {old!r}"
        text = text.replace(old, new)
    return str(text)


def nginx(folder: Path, port: int, live: Live, files: Mapping[str, Path]) -> list[str]:
    changes = {
        "listen 443 ssl http2": f"listen 127.0.0.1:{port} ssl http2",
        "/etc/nginx/chain.pem": str(files["certificate"]),
        "/etc/nginx/key.pem": str(files["key"]),
        "client_max_body_size  600m": f"client_max_body_size {MAX_BODY}",
        "client_header_timeout 10s": "client_header_timeout 1s",
        "http://127.0.0.1:8900": live.url,
    }
    temporary = [f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
    top = "daemon off; master_process off; events {}"
    text = "\n".join(
        [f"pid {folder}/pid; error_log stderr; {top}", "http {", "access_log off;", *temporary, block("nginx", changes), "}"]
    )  # fmt: skip
    (folder / "nginx.conf").write_text(text)
    return ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, port: int, live: Live, files: Mapping[str, Path]) -> list[str]:
    changes = {
        "{\n\tservers": "{\n\tadmin off\n\tauto_https disable_redirects\n\tservers",
        "read_header 10s": "read_header 1s",
        "ledger.hospital-a.example {": f"https://127.0.0.1:{port} {{\n\ttls {files['certificate']} {files['key']}",
        "600MB": str(MAX_BODY),
        "127.0.0.1:8900": f"127.0.0.1:{live.port}",
    }
    (folder / "Caddyfile").write_text(block("caddy", changes))
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


PROXIES = {"nginx": nginx, "caddy": caddy}


@contextmanager
def running(name: str, folder: Path, live: Live) -> Iterator[Proxy]:
    if shutil.which(name) is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI must test {name}; .ci/run installs it")
        pytest.skip(f"{name} is not installed")
    (port,) = free_ports(1)
    authority = Authority(folder / "certificates")
    command = PROXIES[name](folder, port, live, authority.issue(name))
    with (folder / "log").open("wb") as log:
        environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.02)
        yield Proxy(port, authority.certificate, live)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=sorted(PROXIES))
def proxy(
    request: pytest.FixtureRequest, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    url = f"sqlite:///{shutil.copy(sqlite_template, folder / 'ledger.sqlite3')}"
    prepare(url, folder)
    settings = load_settings(data_dir=folder, database_url=url, trusted_proxies=("127.0.0.1",), public=True)
    app = create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS)
    with run_app(app, settings) as live, running(request.param, folder, live) as started:
        yield started


def problem(response: Any) -> str:
    return str(json.loads(response.data)["type"])


def test_a_model_is_published_and_fetched(proxy: Proxy) -> None:
    data = model(1, 2, 3)
    published = proxy.publish(data)
    assert published.status == 201
    digest = json.loads(published.data)["model"]["digest"]
    assert proxy.pool().request("GET", proxy.url + v1.path(v1.MODEL, digest=digest)).data == data


def test_path_and_query_arrive_as_they_were_sent(proxy: Proxy) -> None:
    answer = proxy.pool().request("GET", f"{proxy.url}/v1/transactions?after=%2f..%2F&limit=1")
    assert (answer.status, problem(answer)) == (422, "/problems/query-invalid")
    assert proxy.pool().request("GET", f"{proxy.url}/v1/models/{'%41' * 64}").status == 422


def test_events_come_while_the_stream_is_open(proxy: Proxy) -> None:
    connection = proxy.connection()
    connection.request("GET", v1.EVENTS)
    stream = connection.getresponse()
    assert stream.readline() == b": connected\n"
    published = json.loads(proxy.publish(model(3, 2, 1)).data)
    while not (line := stream.readline()).startswith(b"data: "):
        assert line, "the stream ended"
    assert json.loads(line.removeprefix(b"data: "))["id"] == published["id"]
    connection.close()


def test_too_large_a_body_is_refused(proxy: Proxy) -> None:
    headers = {"content-type": v1.MODEL_MEDIA_TYPE}
    refused = proxy.pool().request(
        "POST", proxy.url + v1.SELECTIONS, body=bytes(MAX_BODY + 1), headers=headers, preload_content=False
    )
    # Caddy 2.6 says 502 when its limit cuts off what it was passing on, or ends the server's own 413 behind its head.
    assert refused.status in (413, 502)
    refused.close()


def test_a_head_that_never_ends_is_given_up(proxy: Proxy) -> None:
    connection = proxy.connection()
    connection.connect()
    connection.sock.sendall(b"GET /v1/tips HTTP/1.1\r\nHost: a\r\nX-A: ")
    while True:
        try:
            received = connection.sock.recv(4096)
        except ConnectionResetError:
            break
        assert b" 200 " not in received
        if not received:
            break
    connection.close()


def test_metrics_are_not_shown_outside(proxy: Proxy) -> None:
    assert proxy.pool().request("GET", f"{proxy.url}/metrics").status == 403


def test_odd_http_never_reaches_the_server(proxy: Proxy) -> None:
    for head in (b"Host: a\r\nHost: b", b"Host: a\r\nContent-Length: 1\r\nContent-Length: 2", b"X-A : b"):
        connection = proxy.connection()
        connection.connect()
        connection.sock.sendall(b"POST /v1/selections HTTP/1.1\r\n" + head + b"\r\n\r\n")
        assert b" 400 " in connection.sock.recv(4096)
        connection.close()
