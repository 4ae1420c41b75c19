"""A pruned ledger from outside: over HTTP, by the SDK, and by the command."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dag_acfl.__main__ import main
from fl_client.client import LedgerClient
from fl_core.errors import ModelPrunedError
from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import digest_of
from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.builders import ISSUER, LAYOUT, key_from_seed, make_genesis, model
from tests.live import run_app
from tests.serving import Server, prepare, serving

GENERATIONS = 6
LOST = [digest_of(model(value / 8)) for value in range(1, GENERATIONS)]
"""A chain by one author: all but the newest may go."""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own settings."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith("DAG_ACFL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")


def chain(server: Server) -> list[str]:
    """One author's transactions, each on the one before."""
    ids = [server.publish(parents=[server.ledger_id], model=model(1 / 8), secret="a" * 64)["id"]]
    for value in range(2, GENERATIONS + 1):
        parent = [ids[-1]]
        ids.append(server.publish(parents=parent, model=model(value / 8), secret="a" * 64)["id"])
    return ids


def rules() -> Any:
    return make_genesis(selector_params={"k": 3}, freshness_s=10**9)


@pytest.fixture
def folder(configured_database: str, tmp_path: Path) -> Path:
    """The data folder of a ledger of one chain."""
    data = tmp_path / "site"
    data.mkdir()
    with serving(load_settings(data_dir=data).resolved_database_url, data, genesis=rules()) as server:
        chain(server)
    return data


# -- a server that prunes -----------------------------------------------------------------------------


@pytest.fixture
def pruning(sqlite_url: str, tmp_path: Path) -> Iterator[Server]:
    """A server that keeps what can be offered; its chain is pruned, and nothing is in memory."""
    with serving(sqlite_url, tmp_path, genesis=rules()) as before:
        chain(before)
    with serving(sqlite_url, tmp_path, new=False, prune={"keep_days": 0, "every_s": 0.05}) as server:
        end = time.monotonic() + 20
        while "dag_acfl_prune_runs_total 1.0" not in server.client.get("/metrics").text:  # counted when it is done
            assert time.monotonic() < end, "not pruned in time"
            time.sleep(0.01)
        yield server


def test_a_pruned_model_is_gone_by_a_problem_of_its_own_and_its_transaction_is_there(pruning: Server) -> None:
    listed = pruning.client.get(v1.TRANSACTIONS).json()["items"]
    assert len(listed) == 1 + GENERATIONS
    for item, status in zip(listed, [200, 410, 410, 410, 410, 410, 200], strict=True):
        for path in (item["model"]["href"], f"/v1/transactions/{item['id']}/model"):
            answer = pruning.client.get(path)
            assert answer.status_code == status
            if status == 410:
                assert answer.json()["type"] == "/problems/model-pruned"
                assert answer.json()["digest"] == item["model"]["digest"]
    page = pruning.client.get("/problems/model-pruned")
    assert "dropped to save space" in page.text


def test_a_client_is_served_by_its_newest_and_told_what_is_wrong_with_an_older_one(pruning: Server) -> None:
    ids = [item["id"] for item in pruning.client.get(v1.TRANSACTIONS).json()["items"]]
    assert pruning.select(ids[-1]).status_code == 201
    refused = pruning.select(ids[1])
    assert (refused.status_code, refused.json()["type"]) == (410, "/problems/model-pruned")
    assert pruning.join(model(1)).status_code == 201, "with its model anybody is served"


def test_costs_and_metrics_show_what_pruning_saved(pruning: Server) -> None:
    pruning.publish(parents=[pruning.ledger_id], model=model(3), secret="b" * 64)
    pruning.client.get(v1.path(v1.MODEL, digest=digest_of(model(3))))
    costs = pruning.client.get(v1.COSTS).json()
    count = 1 + GENERATIONS + 1
    assert costs["ledger_payload_bytes"] == count * LAYOUT.nbytes + pruning.service.header_bytes()[1]
    assert (costs["pruned_models"], costs["pruned_bytes"]) == (5, 5 * LAYOUT.nbytes)
    assert costs["bytes_per_client_round"] > costs["paper_bytes_per_client_round"] == 2 * (32 + LAYOUT.nbytes)
    figures = pruning.client.get("/metrics").text
    assert "dag_acfl_pruned_models 5.0" in figures
    assert f"dag_acfl_pruned_bytes_total {float(5 * LAYOUT.nbytes)}" in figures
    assert "dag_acfl_prune_runs_total 1.0" in figures


def test_clients_are_listed_by_author_with_their_newest(pruning: Server) -> None:
    pruning.publish(parents=[pruning.ledger_id], model=model(2), secret="b" * 64, metrics={"accuracy": 0.5})
    items = pruning.client.get(v1.CLIENTS).json()["items"]
    assert items == sorted(items, key=lambda item: item["author"])
    facts = {(item["sequence"], item["depth"], item["is_tip"], item["metrics"].get("accuracy")) for item in items}
    assert facts == {(GENERATIONS - 1, GENERATIONS, True, None), (0, 1, True, 0.5)}


def test_the_sdk_raises_the_error_of_that_name_and_verifies_over_http(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "prune", "--keep-days", "0", "--data-dir", str(folder)]) == 0
    settings = load_settings(data_dir=folder)
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        with LedgerClient(live.url) as client, pytest.raises(ModelPrunedError) as refused:
            client.download(LOST[0])
        assert refused.value.digest == LOST[0]
        capsys.readouterr()
        assert main(["ledger", "verify", live.url]) == 0
        assert "5 models pruned" in capsys.readouterr().out
        assert main(["ledger", "inspect", live.url]) == 0
        assert f"models {2 * LAYOUT.nbytes} bytes" in capsys.readouterr().out
        assert main(["ledger", "export", str(folder / "x.dagacfl"), live.url]) == 0
    assert main(["ledger", "verify", str(folder / "x.dagacfl")]) == 0
    assert "2 models, 0 averages recomputed, 5 models pruned" in capsys.readouterr().out


def test_the_command_prunes_beside_a_server_that_goes_on_publishing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(data_dir=folder)
    app = create_app(settings, key=ISSUER)
    with run_app(app, settings) as live, LedgerClient(live.url, key=key_from_seed(9)) as client:
        first = client.publish(model(1), parents=[client.genesis().ledger], num_examples=1)
        assert report("--keep-days", "0", folder=folder, capsys=capsys)["models"] == GENERATIONS - 1
        # The very bytes of a pruned model, as somebody's newest: they are here again.
        again = client.publish(model(1 / 8), parents=[first.id], num_examples=1)
        assert client.costs().pruned_models == GENERATIONS - 2
        assert report("--keep-days", "0", folder=folder, capsys=capsys)["models"] == 1, "what was superseded"
        assert client.select(transaction=again.id).reference == again.id
        capsys.readouterr()
        assert main(["ledger", "verify", live.url]) == 0
        assert "sound: 9 transactions" in capsys.readouterr().out
        assert main(["ledger", "verify", str(folder)]) == 0


# -- the command --------------------------------------------------------------------------------------


def report(*arguments: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["ledger", "prune", "--json", "--data-dir", str(folder), *arguments]) == 0
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


def test_a_dry_run_says_what_would_go_and_how_much(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = report("--keep-days", "0", "--dry-run", folder=folder, capsys=capsys)
    assert (said["models"], said["nbytes"], said["held"]) == (5, 5 * LAYOUT.nbytes, 2)
    assert said["storage_bytes"] == said["storage_bytes_before"]
    assert report("--keep-days", "0.5", folder=folder, capsys=capsys)["models"] == 0, "all came at one time"
    assert main(["ledger", "prune", "--keep-days", "0", "--dry-run", "--data-dir", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("5 models, ")
    assert "would go; 2 models left" in out
    done = report("--keep-days", "0", folder=folder, capsys=capsys)
    assert (done["models"], done["nbytes"], done["held"]) == (5, 5 * LAYOUT.nbytes, 2)
    assert report("--keep-days", "0", folder=folder, capsys=capsys)["models"] == 0
    assert main(["ledger", "verify", str(folder)]) == 0
    assert "2 models, 0 averages recomputed, 5 models pruned, 0 averages of pruned models" in capsys.readouterr().out
    assert main(["ledger", "verify", "--json", str(folder)]) == 0
    verified = json.loads(capsys.readouterr().out)
    assert (verified["sound"], verified["pruned"], verified["unprovable"]) == (True, 5, 0)


@pytest.fixture
def rows(configured_database: str, tmp_path: Path) -> Path:
    """The data folder of a ledger whose twelve models of 100 KB lie in rows."""
    layout = ModelLayout.of([TensorSpec("w", "F32", (25_000,))])  # 100 KB: in rows, as below 128 KiB
    data = tmp_path / "rows"
    data.mkdir()
    url = load_settings(data_dir=data).resolved_database_url
    genesis = make_genesis(layout=layout, selector_params={"k": 3})
    prepare(url, data, genesis=genesis, first=model(1, layout=layout))
    with serving(url, data, new=False) as server:
        parent = server.ledger_id
        for value in range(12):
            body = model(value / 12, layout=layout)
            parent = server.publish(parents=[parent], model=body, secret="a" * 64)["id"]
    return data


def test_compacting_gives_the_space_back_beside_a_server(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = load_settings(data_dir=rows)
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        done = report("--keep-days", "0", "--compact", folder=rows, capsys=capsys)
        assert done["models"] == 11
        assert done["storage_bytes_before"] - done["storage_bytes"] > 10 * 100_000
        assert main(["ledger", "verify", live.url]) == 0
    assert main(["ledger", "verify", str(rows)]) == 0


def test_pruning_beside_a_server_takes_no_room(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = load_settings(data_dir=rows)
    with run_app(create_app(settings, key=ISSUER), settings):
        done = report("--keep-days", "0", folder=rows, capsys=capsys)
    assert done["models"] == 11
    assert done["storage_bytes"] <= done["storage_bytes_before"]


def refused(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["ledger", "prune", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_dry_run_that_compacts_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--keep-days", "0", "--dry-run", "--compact")
    assert "choose one of them" in refused(*flags, "--data-dir", str(folder), capsys=capsys)


def test_a_place_without_a_ledger_is_refused_in_one_line(
    configured_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused("--keep-days", "0", "--data-dir", "nowhere", capsys=capsys)
    assert ("no ledger in nowhere yet" if configured_database == "sqlite" else "no ledger here yet") in line
    assert "dag-acfl ledger init" in line


@pytest.mark.parametrize("arguments", [[], ["--keep-days", "-1"], ["--keep-days", "many"]])
def test_how_much_to_keep_is_asked_for_and_never_assumed(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "prune", *arguments, "--data-dir", str(tmp_path)]) == 2
    assert "keep-days" in capsys.readouterr().err
