import asyncio
import logging
import math
import os
import socket
import ssl
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from fastapi import FastAPI

import ledger_server.http.serve as module
from fl_core.errors import ParameterError
from ledger_server.http.serve import LedgerServer, bind, serve, url_of
from ledger_server.http.state import ServerState
from ledger_server.settings import Settings
from tests.certificates import Authority
from tests.live import eventually, run_app


async def nothing(*_: object) -> None:
    raise AssertionError("never asked")


def test_a_port_in_use_is_one_line_that_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ParameterError, match=f"port {port} is already in use; choose another with --port"):
            bind(Settings(port=port))


def test_an_address_of_another_machine_names_the_option() -> None:
    with pytest.raises(ParameterError, match=r"--host 192\.0\.2\.1"):
        bind(Settings(host="192.0.2.1", port=0))
    with pytest.raises(ParameterError, match="--host"):
        bind(Settings(host="no such host", port=0))


def test_the_url_is_that_of_the_bound_socket() -> None:
    with bind(Settings(port=0)) as listening:
        port = listening.getsockname()[1]
        assert port > 0
        assert url_of(listening, tls=False) == f"http://127.0.0.1:{port}"
        assert url_of(listening, tls=True) == f"https://127.0.0.1:{port}"


def test_a_renewed_certificate_is_shown_without_a_restart_and_half_a_pair_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    issued = [authority.issue(name, hours=hours) for hours, name in enumerate(("first", "second", "third"), 1)]
    files = {what: tmp_path / f"{what}.pem" for what in ("certificate", "key")}

    def put(which: int, *whats: str) -> None:
        for what in whats:
            files[what].write_bytes(issued[which][what].read_bytes())
            os.utime(files[what], (which, which))

    put(0, "certificate", "key")
    settings = Settings(port=0, tls=files, http={"timeout_s": 2.0})  # type: ignore[arg-type]
    with (
        run_app(FastAPI(), settings) as live,
        caplog.at_level(logging.INFO),
        socket.create_connection((live.host, live.port), timeout=30) as mute,
    ):
        eventually(lambda: live.state.connections.total == 1)
        shown = partial(ssl.get_server_certificate, (live.host, live.port))
        seen, hours = [shown()], [hours_left(live.server)]
        renew = live.server.config.callback_notify
        assert renew is not None
        live.server.config.timeout_notify = 3600  # only this test looks, however long it takes
        for which, whats in ((0, ()), (1, ("certificate", "key")), (2, ("certificate",)), (2, ("key",))):
            put(which, *whats)
            asyncio.run(renew())  # type: ignore[arg-type]  # a coroutine
            seen.append(shown())
            hours.append(hours_left(live.server))
        assert mute.recv(1) == b"", "a handshake has the time of a head"
        eventually(lambda: live.state.connections.total == 0)
    assert hours == [1, 1, 2, 2, 3], "of the certificate that is shown, whatever the files hold"
    assert seen == [issued[which]["certificate"].read_text() for which in (0, 0, 1, 1, 2)]
    said = [record.getMessage() for record in caplog.records if record.name == module.__name__]
    assert said == ["certificate renewed", "the certificate cannot be read anew; the old one is shown", said[0]]


def hours_left(server: LedgerServer) -> float:
    """Until the certificate ends, as the metric has it, rounded up."""
    server._state.metrics.refresh()
    ends_s = server._state.metrics.registry.get_sample_value("dag_acfl_certificate_ends_seconds")
    assert ends_s is not None
    return ends_s if math.isinf(ends_s) else math.ceil(ends_s / 3600)


def test_without_tls_no_certificate_ends() -> None:
    assert hours_left(LedgerServer(FastAPI(), ServerState(Settings(port=0)), on_alive=lambda: None)) == math.inf


def test_a_listed_proxy_may_hold_all_connections() -> None:
    with ExitStack() as stack:
        settings = Settings(port=0, trusted_proxies=("127.0.0.1",), http={"max_connections": 4})  # type: ignore[arg-type]
        live = stack.enter_context(run_app(FastAPI(), settings))
        for _ in range(4):
            stack.enter_context(socket.create_connection((live.host, live.port), timeout=30))
        eventually(lambda: live.state.connections.total == 4)
        assert live.state.connections.excess("127.0.0.1") < 0, "none of them is its own"


def test_an_unreadable_certificate_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    tls = {"certificate": tmp_path / "cert.pem", "key": tmp_path / "cert.pem"}
    with pytest.raises(ParameterError, match=r"^tls: ") as refused:
        serve(nothing, Settings(port=0, tls=tls))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
