"""``/readyz`` means that a client would be served, the port outlives its 503, and the doctor says what a server says."""

import logging
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from httpx2 import Response

from fl_core.dag.signature import public_key_of
from fl_core.wire import v1
from ledger_server.admin import doctor
from ledger_server.app import create_app
from ledger_server.settings import Settings, load_settings
from tests.builders import ISSUER, START, key_from_seed, model
from tests.certificates import Authority
from tests.live import Live, eventually, free_ports, run_app
from tests.serving import NOW_MS, prepare, secret_for, serving

EVERYTHING_BYTES = 1 << 50
"""More than any disk has."""


def problem(response: Response) -> tuple[int, str, str]:
    content = response.json()
    return response.status_code, content["type"].removeprefix("/problems/"), content["detail"]


def test_with_too_little_free_nothing_is_written_and_reading_goes_on(tmp_path: Path, database_url: str) -> None:
    with serving(database_url, tmp_path) as server:
        published = server.publish(parents=[server.ledger_id], model=model(1))
        assert server.client.get("/readyz").status_code == 200
    with serving(database_url, tmp_path, new=False, min_free_bytes=EVERYTHING_BYTES) as server:
        fields = {"parents": [server.ledger_id], "start": START, "num_examples": 1}
        for refused in (
            server.post({**fields, "secret": secret_for(server.service, None)}, model(2)),
            server.select(published["id"]),
            server.join(model(3)),
        ):
            status, code, detail = problem(refused)
            assert (status, code) == (503, "store-unavailable")
            assert re.search(r"nearly full: with less than \d+ MB free nothing is written; free some space", detail)
            assert "retry-after" in refused.headers
        assert problem(server.client.get("/readyz"))[:2] == (503, "store-unavailable")
        assert server.client.get(v1.TIPS).json()["transactions"] == 2
        assert server.client.get(published["model"]["href"]).content == model(1)
        assert server.client.get("/healthz").status_code == 200


def test_what_a_pruning_left_free_in_the_file_is_room(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(sqlite_url, tmp_path)
    with serving(sqlite_url, tmp_path, new=False, min_free_bytes=1_000_000) as server:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=999_000))
        assert server.client.get("/readyz").status_code == 503
        monkeypatch.setattr(server.service.store.database, "reusable_bytes", lambda: 8192)
        assert server.client.get("/readyz").status_code == 200
        server.publish(parents=[server.ledger_id], model=model(1))


def test_a_publication_that_is_known_is_known_without_room(tmp_path: Path, database_url: str) -> None:
    from tests.serving import signed

    with serving(database_url, tmp_path) as server:
        fields = signed(server, model(1))
        assert server.post(fields, model(1)).status_code == 201
    with serving(database_url, tmp_path, new=False, min_free_bytes=EVERYTHING_BYTES) as server:
        assert server.post(fields, model(1)).status_code == 200


def test_the_databases_own_words_stay_in_the_log(
    tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ledger_server.store.errors import StoreUnavailableError

    secret = 'connection to server at "10.0.0.5", port 5432 failed'
    with serving(database_url, tmp_path) as server, caplog.at_level(logging.ERROR):

        def fail(*_: object, **__: object) -> None:
            raise StoreUnavailableError("the database cannot be read", private=secret)

        monkeypatch.setattr(server.service.store, "length", fail)
        monkeypatch.setattr(server.service.store, "transactions", fail)
        ready = server.client.get("/readyz")
        assert problem(ready) == (503, "store-unavailable", "nothing can be stored now; the server's log says why")
        read = server.client.get(v1.path(v1.TRANSACTION, transaction=server.ledger_id))
        assert problem(read) == (503, "store-unavailable", "the database cannot be read")
    reasons = [record.__dict__["reason"] for record in caplog.records if "reason" in record.__dict__]
    assert reasons == [f"the database cannot be read: {secret}"] * 2


def test_postgresqls_words_are_private(postgresql_url: str, tmp_path: Path) -> None:
    from sqlalchemy.engine import make_url

    from ledger_server.store import open_store
    from ledger_server.store.errors import StoreUnavailableError

    (port,) = free_ports(1)
    away = make_url(postgresql_url).set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
    with pytest.raises(StoreUnavailableError, match=str(port)) as refused:
        open_store(away, data_dir=tmp_path)
    assert "refused" not in refused.value.public


# -- the end ----------------------------------------------------------------------------------------


def status(live: Live, path: str) -> int | None:
    """What is answered; None where nobody listens."""
    try:
        with urllib.request.urlopen(live.url + path, timeout=10) as answer:
            code: int = answer.status
            return code
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def settings_for(tmp_path: Path, sqlite_url: str, **flags: object) -> Settings:
    prepare(sqlite_url, tmp_path)
    return load_settings(data_dir=tmp_path, database_url=sqlite_url, **flags)


def test_the_port_answers_until_a_balancer_that_asks_has_seen_the_503(tmp_path: Path, sqlite_url: str) -> None:
    settings = settings_for(tmp_path, sqlite_url, drain_delay_s=3600)
    with run_app(create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS), settings) as live:
        assert status(live, "/readyz") == 200
        live.server.handle_exit(signal.SIGTERM, None)
        eventually(lambda: status(live, "/readyz") == 503)
        assert status(live, v1.TIPS) == 200, "who has not noticed yet is still answered"
        live.server.handle_exit(signal.SIGINT, None)
        eventually(lambda: status(live, "/readyz") is None)


def test_a_server_that_no_balancer_asks_ends_at_once(tmp_path: Path, sqlite_url: str) -> None:
    settings = settings_for(tmp_path, sqlite_url, drain_delay_s=3600)
    with run_app(create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS), settings) as live:
        assert status(live, v1.TIPS) == 200
        live.server.handle_exit(signal.SIGTERM, None)
        eventually(lambda: status(live, "/healthz") is None)


def test_ctrl_c_waits_for_no_balancer(tmp_path: Path, sqlite_url: str) -> None:
    settings = settings_for(tmp_path, sqlite_url, drain_delay_s=3600)
    with run_app(create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS), settings) as live:
        assert status(live, "/readyz") == 200
        live.server.handle_exit(signal.SIGINT, None)
        eventually(lambda: status(live, "/healthz") is None)


# -- joining ----------------------------------------------------------------------------------------


def test_a_server_is_not_ready_while_a_peer_may_hold_more_and_is_when_none_answers(
    tmp_path: Path, sqlite_url: str
) -> None:
    prepare(sqlite_url, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        peer = f"second=http://127.0.0.1:{silent.getsockname()[1]}#{public_key_of(key_from_seed(2))}"
        with serving(sqlite_url, tmp_path, new=False, peers=(peer,)) as server:
            asked, _ = silent.accept()
            assert problem(server.client.get("/readyz"))[:2] == (503, "catching-up")
            assert server.client.get(v1.TIPS).status_code == 200
            asked.close()
            silent.close()
            eventually(lambda: server.client.get("/readyz").status_code == 200)


# -- the doctor -------------------------------------------------------------------------------------


def test_the_doctor_takes_the_peers_bound_for_clocks(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(tmp_path, sqlite_url)
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        for seconds, state in ((50, "ok"), (-50, "ok"), (118, "fail"), (-118, "fail")):
            ahead = SimpleNamespace(time=lambda seconds=seconds: time.time() + seconds)
            monkeypatch.setattr(doctor, "time", ahead)
            assert doctor.check_server(live.url).state == state, seconds


def test_the_doctor_says_what_a_server_says_that_is_not_ready(tmp_path: Path, sqlite_url: str) -> None:
    settings = settings_for(tmp_path, sqlite_url, min_free_bytes=EVERYTHING_BYTES)
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        check = doctor.check_server(live.url)
        assert (check.state, check.message) == (
            "fail",
            f"{live.url} answers 503: nothing can be stored now; the server's log says why",
        )
        assert doctor.check_port(live.host, live.port).state == "note", "the port is the server's all the same"


def test_the_doctor_names_what_a_server_runs(tmp_path: Path, sqlite_url: str) -> None:
    from ledger_server.build import build

    settings = settings_for(tmp_path, sqlite_url)
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        check = doctor.check_server(live.url)
    assert (check.state, check.fix) == ("ok", "")
    assert "{version}, commit {commit}".format_map(build()) in check.message


def test_the_doctor_says_how_to_believe_a_private_authority(tmp_path: Path, sqlite_url: str) -> None:
    tls = Authority(tmp_path / "tls").issue("server")
    prepare(sqlite_url, tmp_path)
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url, port=0, tls=tls)
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        check = doctor.check_server(live.url)
    assert (check.state, check.fix) == ("fail", "name its authority's PEM in SSL_CERT_FILE")


@pytest.mark.parametrize(
    ("flags", "state", "said"),
    [
        ({}, "ok", "this machine only"),
        ({"host": "0.0.0.0"}, "note", "reads, writes ask for a token (dag-acfl tokens create), and without TLS"),
        ({"host": "0.0.0.0", "public": True}, "note", "everybody who reaches the server may read and write"),
        ({"host": "0.0.0.0", "tls": {"certificate": "c", "key": "k"}}, "ok", "reads, writes ask for a token"),
        ({"trusted_proxies": ("127.0.0.1",)}, "ok", "reads, writes ask for a token"),
    ],
)
def test_the_doctor_says_who_would_be_answered(flags: dict[str, object], state: str, said: str) -> None:
    check = doctor.check_access(load_settings(**flags))
    assert check.state == state
    assert said in check.message
    assert ("--tls-certificate" in check.fix) == (state == "note")
