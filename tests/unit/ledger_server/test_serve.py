import socket
from pathlib import Path

import pytest

from fl_core.errors import ParameterError
from ledger_server.http.serve import bind, serve, url_of
from ledger_server.settings import Settings


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


def test_an_unreadable_certificate_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    tls = {"certificate": tmp_path / "cert.pem", "key": tmp_path / "cert.pem"}
    with pytest.raises(ParameterError, match=r"^tls: ") as refused:
        serve(nothing, Settings(port=0, tls=tls))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
