"""A server whose models lie in a bucket: it publishes, restarts, answers ranges, prunes, and outlives S3's absence."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from safetensors.numpy import save_file

from dag_acfl.__main__ import main
from fl_client.reader import LedgerReader
from fl_core.models import ModelLayout, TensorSpec, decode_any_order
from fl_core.types import digest_of
from fl_core.verify import verify
from ledger_server.admin.store_source import StoreSource
from ledger_server.app import create_app
from ledger_server.buckets import S3Address
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from ledger_server.store.blobs.s3 import S3Blobs
from ledger_server.store.errors import StoreLocationError
from tests.builders import ISSUER, START, TinyLedger, make_genesis, model
from tests.contract.test_store import found
from tests.live import run_app
from tests.s3 import S3Service
from tests.serving import NOW_MS, prepare, serving

LARGE = ModelLayout.of([TensorSpec("w", "F32", (40_000,))])
"""160 KB: such models lie outside the database."""
GENESIS = make_genesis(layout=LARGE, selector_params={"k": 3}, max_parents=4)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own settings."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith("DAG_ACFL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def address(s3: S3Service) -> S3Address:
    return s3.fresh()


def large(*values: float) -> bytes:
    return model(*values, layout=LARGE)


def in_bucket(address: S3Address, **changes: Any) -> dict[str, Any]:
    """The settings of a server whose models go there."""
    given = {"store": "s3", "s3_url": str(address), "s3_endpoint": address.endpoint, "s3_allow_http": True}
    return {**given, **changes}


def key_of(address: S3Address, data: bytes) -> str:
    return f"{address.prefix}/{digest_of(data)}"


def test_what_is_published_lies_in_the_bucket_and_is_there_after_a_restart(
    s3: S3Service, address: S3Address, database_url: str, tmp_path: Path
) -> None:
    blobs = in_bucket(address)
    with serving(database_url, tmp_path, genesis=GENESIS, first=large(1), blobs=blobs) as server:
        ids = [server.publish(parents=[server.ledger_id], model=large(1, value))["id"] for value in (2, 3)]
        assert server.client.get("/readyz").status_code == 200
    assert s3.models(address) == {key_of(address, data): data for data in (large(1), large(1, 2), large(1, 3))}
    with serving(database_url, tmp_path, new=False, blobs=blobs, cache={"model_bytes": 0}) as server:
        selection = server.select(ids[0]).json()
        assert set(selection["parents"]) == set(ids)
        aggregate = server.client.get(f"/v1/models/{selection['aggregate']['digest']}").content
        assert decode_any_order(aggregate)["w"][1] == pytest.approx(2.5), "the mean of both, which lie in the bucket"
        path = f"/v1/models/{digest_of(large(1, 3))}"
        assert server.client.get(path).content == large(1, 3)
        part = server.client.get(path, headers={"range": "bytes=100-199"})
        assert (part.status_code, part.content) == (206, large(1, 3)[100:200])
        assert list(verify(StoreSource(server.service.store))) == []


def test_a_model_that_was_pruned_leaves_the_bucket_and_comes_back_with_its_publication(
    s3: S3Service, address: S3Address, sqlite_url: str, tmp_path: Path
) -> None:
    blobs = in_bucket(address)
    with serving(sqlite_url, tmp_path, genesis=GENESIS, first=large(1), blobs=blobs) as server:
        newest = server.publish(parents=[server.ledger_id], model=large(1, 2), secret="a" * 64)["id"]
        for value in range(3, 9):
            newest = server.publish(parents=[newest], model=large(1, value), secret="a" * 64)["id"]
        ledger = server.ledger_id
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAG_ACFL_DATA_DIR", str(tmp_path))
        patch.setenv("DAG_ACFL_DATABASE_URL", sqlite_url)
        for name, value in in_bucket(address).items():
            patch.setenv(f"DAG_ACFL_BLOBS__{name.upper()}", str(value))
        assert main(["ledger", "prune", "--keep-days", "0"]) == 0
        assert main(["ledger", "verify"]) == 0
    left = s3.objects(address)
    assert key_of(address, large(1, 2)) not in left
    assert key_of(address, large(1, 8)) in left
    with serving(sqlite_url, tmp_path, new=False, blobs=blobs) as server:
        path = f"/v1/models/{digest_of(large(1, 2))}"
        assert server.client.get(path).status_code == 410
        server.publish(parents=[ledger, newest], model=large(1, 2), secret="b" * 64)
        assert server.client.get(path).content == large(1, 2)
    assert s3.objects(address)[key_of(address, large(1, 2))] == large(1, 2)


def test_without_s3_nothing_is_accepted_reading_the_ledger_goes_on_and_it_recovers(
    s3: S3Service, address: S3Address, sqlite_url: str, tmp_path: Path
) -> None:
    blobs = in_bucket(address)
    with serving(
        sqlite_url, tmp_path, genesis=GENESIS, first=large(1), blobs=blobs, cache={"model_bytes": 0}
    ) as server:
        known = server.publish(parents=[server.ledger_id], model=large(1, 2))["id"]
        path = f"/v1/models/{digest_of(large(1, 2))}"
        fields = {"parents": [server.ledger_id], "start": START, "num_examples": 1, "secret": "c" * 64}
        with s3.down():
            for refused in (
                server.post(fields, large(1, 3)),
                server.client.get(path),
                server.client.get("/readyz"),
            ):
                assert refused.status_code == 503
                assert "Traceback" not in refused.text
            problem = server.post(fields, large(1, 3)).json()
            assert problem["type"] == "/problems/store-unavailable"
            assert "S3 does not answer at s3://" in problem["detail"]
            assert server.client.get("/v1/tips").json()["transactions"] == 2
            assert server.client.get(f"/v1/transactions/{known}").status_code == 200
            assert server.client.get("/metrics").status_code == 200
        assert set(s3.models(address)) == {key_of(address, large(1)), key_of(address, large(1, 2))}, (
            "nothing was written"
        )
        assert server.client.get("/readyz").status_code == 200
        assert server.client.get(path).content == large(1, 2)
        server.publish(parents=[server.ledger_id], model=large(1, 3))
    assert len(s3.models(address)) == 3


# -- redirects ------------------------------------------------------------------------------------------


def test_who_asks_for_it_is_sent_to_the_bucket_for_an_updates_model_and_nobody_else_or_else_where(
    address: S3Address, database_url: str, tmp_path: Path
) -> None:
    blobs = in_bucket(address, redirect=True)
    with serving(database_url, tmp_path, genesis=GENESIS, first=large(1), blobs=blobs) as server:
        ids = [server.publish(parents=[server.ledger_id], model=large(1, value))["id"] for value in (2, 3)]
        path, ask = f"/v1/models/{digest_of(large(1, 2))}", server.client.get
        sent = ask(f"{path}?redirect=true", follow_redirects=False)
        assert (sent.status_code, sent.content, sent.headers["cache-control"]) == (307, b"", "no-store")
        assert sent.headers["location"].startswith(
            f"{address.endpoint}/{address.bucket}/{key_of(address, large(1, 2))}?"
        )
        assert "X-Amz-Expires=300&" in sent.headers["location"]
        with urlopen(sent.headers["location"], timeout=10) as found:
            assert found.read() == large(1, 2)
        fresh = {"if-none-match": sent.headers.get("etag", f'"{digest_of(large(1, 2))}"')}
        assert ask(f"{path}?redirect=true", headers=fresh, follow_redirects=False).status_code == 304
        assert server.client.head(f"{path}?redirect=true", follow_redirects=False).status_code == 200
        for asked in (path, f"{path}?redirect=false"):
            assert ask(asked, follow_redirects=False).content == large(1, 2)
        average = server.select(ids[0]).json()["aggregate"]["digest"]
        assert ask(f"/v1/models/{average}?redirect=true", follow_redirects=False).status_code == 200
        assert ask(f"/v1/models/{'0' * 64}?redirect=true", follow_redirects=False).status_code == 404
        assert ask(f"{path}?redirect=perhaps", follow_redirects=False).status_code == 422


def test_nobody_is_sent_to_the_bucket_where_the_operator_does_not_say_so(
    address: S3Address, sqlite_url: str, tmp_path: Path
) -> None:
    with serving(sqlite_url, tmp_path, genesis=GENESIS, first=large(1), blobs=in_bucket(address)) as server:
        answer = server.client.get(f"/v1/models/{digest_of(large(1))}?redirect=true", follow_redirects=False)
        assert (answer.status_code, answer.content) == (200, large(1))


def test_a_client_gets_its_models_from_the_bucket_and_from_the_server_where_that_was_tampered_with(
    s3: S3Service, address: S3Address, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    link = S3Blobs.link
    monkeypatch.setattr(S3Blobs, "link", lambda self, digest: asked.append(digest) or link(self, digest))
    settings = load_settings(data_dir=tmp_path, database_url=sqlite_url, blobs=in_bucket(address, redirect=True))
    prepare(sqlite_url, tmp_path, genesis=GENESIS, first=large(1), blobs="s3", s3=settings.blobs.s3)
    with run_app(create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS), settings) as live:
        bucket = f"{address.endpoint}/{address.bucket}"
        with LedgerReader(live.url, bucket=bucket) as reader:
            assert reader.download(digest_of(large(1))) == large(1)
            assert reader._bucket is not None
            assert reader._bucket.is_at_hand, "it gave the model"
        assert asked == [digest_of(large(1))]
        s3.put(address, key_of(address, large(1)), large(7))
        with LedgerReader(live.url, bucket=bucket) as reader:
            assert reader.download(digest_of(large(1))) == large(1), "which the server has in memory"
            assert not reader._bucket.is_at_hand  # type: ignore[union-attr]
        with s3.down(), LedgerReader(live.url, bucket=bucket) as reader:
            assert reader.download(digest_of(large(1))) == large(1)


# -- opening --------------------------------------------------------------------------------------------


def test_a_ledger_is_not_opened_with_a_bucket_that_is_not_its_own(
    address: S3Address, sqlite_url: str, tmp_path: Path
) -> None:
    with open_store(sqlite_url, data_dir=tmp_path, blobs="s3", s3=address) as store:
        found(store, TinyLedger())
    for other, says in (
        (replace(address, prefix="elsewhere"), "are missing"),
        (replace(address, bucket="nobody-made-it"), "there is no bucket 'nobody-made-it'; make it"),
        (None, "say in which"),
    ):
        with pytest.raises(StoreLocationError, match=says):
            open_store(sqlite_url, data_dir=tmp_path, s3=other)


# -- commands -------------------------------------------------------------------------------------------


def run(*arguments: object, code: int = 0) -> None:
    assert main([str(each) for each in arguments]) == code


@pytest.fixture
def site(address: S3Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a ledger of two publications in SQLite, all its models in the bucket that is set."""
    for name, value in in_bucket(address).items():
        monkeypatch.setenv(f"DAG_ACFL_BLOBS__{name.upper()}", str(value))
    save_file(decode_any_order(large(1)), tmp_path / "first.safetensors")
    folder = tmp_path / "site"
    run("ledger", "init", "--name", "pilot", "--model", tmp_path / "first.safetensors", "--data-dir", folder)
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    with serving(url, folder, new=False) as server:
        for value in (2, 3):
            server.publish(parents=[server.ledger_id], model=large(1, value))
    return folder


def test_a_backup_leaves_models_in_the_bucket_and_says_so_and_is_put_back(
    address: S3Address,
    site: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("ledger", "backup", tmp_path / "copy", "--data-dir", site)
    shown = capsys.readouterr()
    assert "sound: 3 models" in shown.out
    assert f"3 models stay in {address}: keep its versions" in shown.err
    run("ledger", "restore", tmp_path / "copy", "--data-dir", tmp_path / "again")
    run("ledger", "verify", tmp_path / "again")
    run("ledger", "export", tmp_path / "whole.dagacfl", tmp_path / "again")
    monkeypatch.delenv("DAG_ACFL_BLOBS__STORE")
    monkeypatch.delenv("DAG_ACFL_BLOBS__S3_URL")
    run("ledger", "verify", tmp_path / "whole.dagacfl")
    capsys.readouterr()
    for arguments, says in (
        (["ledger", "backup", tmp_path / "other", "--data-dir", site], "lie in a bucket; say in which"),
        (["ledger", "restore", tmp_path / "copy", "--data-dir", tmp_path / "b"], "lie in a bucket; say in which"),
        (["ledger", "verify", site], "lie in a bucket; say in which"),
    ):
        run(*arguments, code=1)
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line
        assert "DAG_ACFL_BLOBS__S3_URL" in line
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "b" / "ledger.sqlite3").exists()


def test_verify_and_backup_notice_a_model_that_is_gone_from_the_bucket(
    s3: S3Service, address: S3Address, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.remove(address, key_of(address, large(1, 2)))
    run("ledger", "verify", site, code=1)
    assert digest_of(large(1, 2))[:12] in capsys.readouterr().out
    run("ledger", "backup", tmp_path / "copy", "--data-dir", site, code=1)
    assert "so the copy gets no name" in capsys.readouterr().err
    run("ledger", "backup", tmp_path / "copy", "--data-dir", site, "--no-verify")


def test_a_bucket_that_does_not_open_is_one_line_from_serve_and_doctor(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("doctor", "--data-dir", site, "--port", 0)
    assert "bucket     s3://" in capsys.readouterr().out
    monkeypatch.setenv("DAG_ACFL_BLOBS__S3_URL", "s3://nobody-made-it/a")
    run("serve", "--data-dir", site, "--port", 0, code=1)
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("error")]
    assert "there is no bucket 'nobody-made-it'; make it, or correct blobs.s3_url" in line
    run("doctor", "--data-dir", site, "--port", 0, code=1)
    assert "there is no bucket 'nobody-made-it'" in capsys.readouterr().out


def test_a_bucket_setting_that_cannot_work_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value, says in (
        ("STORE", "s3", "store = s3 needs s3_url"),
        ("S3_URL", "https://pilot", "must be s3://bucket/prefix"),
        ("S3_ENDPOINT", "minio:9000", "must be a URL such as"),
        ("S3_ENDPOINT", "http://minio:9000", "set s3_allow_http"),
        ("S3_ENDPOINT", "https://key:secret@minio", "must be a URL such as"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"DAG_ACFL_BLOBS__{name}", value)
            run("serve", "--data-dir", tmp_path / "none", code=1)
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line
        assert "secret" not in line
